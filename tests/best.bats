#!/usr/bin/env bats
# Evaluation while training: checkpoint.keep_best and RUN#best, through resumes and
# rollbacks; several held-out sets; means of checkpoints.

load run_helpers

setup_file() {
    data_folder
}

# A rate that is soon too high, so that the best step is not the last one.
ROUGH=(train.max_duration=20ba eval.interval=2ba eval.samples=0 optimizer.lr=0.05
    checkpoint.interval=2ba checkpoint.keep=1 checkpoint.keep_best=true scheduler.warmup=20ba)

# best_of DIR [STEP]: the evaluated step with the least loss, up to that one, of
# those that were saved: every second
best_of() {
    jq -s "map(select(.step % 2 == 0 and .step <= ${2:-999})) | min_by(.eval_loss).step" \
        "$1/eval.jsonl"
}

steps() { # DIR
    printf '%s\n' "$1"/checkpoints/step-* | sed 's/.*step-0*//' | tr '\n' ' '
}

at() { # DIR STEP
    printf '%s/checkpoints/step-%09d' "$1" "$2"
}

marked() { # DIR
    "$BIN/tessera-ckpt" ls "$1" --json | jq 'map(select(.best)) | map(.step)[]'
}

@test "the best checkpoint stays beside the newest, on one rank and on two" {
    train 1 "$DIR/one" "${ROUGH[@]}"
    best=$(best_of "$DIR/one")
    echo "best: $best, there are: $(steps "$DIR/one")"
    [ "$best" -lt 20 ]
    [ "$(steps "$DIR/one")" = "$best 20 " ]
    [ "$(marked "$DIR/one")" = "$best" ]
    "$BIN/tessera-ckpt" ls "$DIR/one" | grep -E "^$best .* best "
    # killed at once behind a commit, and on with two ranks
    train 1 "$DIR/two" "${ROUGH[@]}" train.max_duration="$((best + 1))ba" \
        scheduler.t_max=20ba
    rm -r "$(at "$DIR/two" $((best + 1)))"
    train 2 "$DIR/two" "${ROUGH[@]}"
    [ "$(steps "$DIR/two")" = "$best 20 " ]
    [ "$("$BIN/tessera-ckpt" digest "$DIR/two#best")" = \
        "$("$BIN/tessera-ckpt" digest "$DIR/one#best")" ]
}

@test "RUN#best and RUN#STEP are taken wherever a model or a checkpoint is" {
    best=$(best_of "$DIR/one")
    at=$(at "$DIR/one" "$best")
    [ "$("$BIN/tessera-ckpt" show "$DIR/one#best" --json | jq .step)" = "$best" ]
    ends 0 '' "$BIN/tessera-ckpt" diff "$DIR/one#best" "$DIR/one#$best"
    ends 0 good "$BIN/tessera-ckpt" verify "$DIR/one#best"
    ends 64 'no such checkpoint' "$BIN/tessera-ckpt" show "$DIR/one#3"
    cp -r "$DIR/one" "$DIR/hurt"
    truncate -s 10 "$(at "$DIR/hurt" "$best")/MANIFEST.json"
    ends 0 "$(at hurt "$best") is passed over, whatever its loss: " "$BIN/tessera-ckpt" show "$DIR/hurt#best"
    [ -z "$("$BIN/tessera-ckpt" ls "$DIR/hurt" 2>&1 >"$DIR/listed")" ]
    grep -q "bad " "$DIR/listed"
    ends 0 '' "$BIN/tessera-generate" "$DIR/one#best" --prompt the --max-tokens 4
    "$BIN/tessera-eval" "$DIR/one#best" --perplexity "$DIR/data/eval" --json >"$DIR/a"
    "$BIN/tessera-eval" "$at" --perplexity "$DIR/data/eval" --json >"$DIR/b"
    [ "$(jq -S '.. | .loss? // empty' "$DIR/a")" = "$(jq -S '.. | .loss? // empty' "$DIR/b")" ]
    "$BIN/tessera-hf" export "$DIR/one#best" --out "$DIR/exported"
    train 1 "$DIR/from" model.weights="$DIR/one#best" train.max_duration=1ba
    grep -q "\"$at\"" "$DIR/from/ledger.jsonl"
    train 1 "$DIR/loaded" checkpoint.load="$DIR/one#best" checkpoint.load_weights_only=true \
        train.max_duration=1ba
    train 1 "$DIR/on" checkpoint.load="$DIR/one#best" train.max_duration="$((best + 1))ba"
    [ "$("$BIN/tessera-ckpt" show "$DIR/on" --json | jq .step)" = $((best + 1)) ]
    # another set's losses do not compare
    train 1 "$DIR/one" "${ROUGH[@]}" train.max_duration=22ba data.eval="$DIR/data/train" \
        eval.samples=16
    [ "$(marked "$DIR/one")" = 22 ]
}

@test "a last step that is evaluated behind its save can be the best" {
    train 1 "$DIR/last" train.max_duration=5ba eval.interval=0ba checkpoint.interval=0ba
    [ "$(marked "$DIR/last")" = 5 ]
    train 1 "$DIR/none" train.max_duration=5ba checkpoint.interval=2ba data.eval= \
        eval.samples=0
    ends 64 'no such checkpoint that was evaluated' "$BIN/tessera-ckpt" show "$DIR/none#best"
}

@test "a step that was given up is not the best" {
    best=$(best_of "$DIR/one")
    long=("${ROUGH[@]}" checkpoint.keep=0 scheduler.t_max=20ba)
    train 1 "$DIR/back" "${long[@]}" train.max_duration="${best}ba"
    [ "$(marked "$DIR/back")" = "$best" ]
    # as a run that went back and was killed at once leaves its ledger
    uuid=$(jq -r .state.run_uuid "$(at "$DIR/back" "$best")/MANIFEST.json")
    jq -nc --arg uuid "$uuid" --argjson to $((best - 2)) '{ event: "rollback", attempt: 1,
        run_uuid: $uuid, kind: "spike", step: ($to + 3), loss: 9, grad_norm: 9,
        reason: "test", from: ($to + 2), to: $to, first: $to, batches: 3,
        number: 1 }' >>"$DIR/back/ledger.jsonl"
    long+=(train.max_duration=$((best + 1))ba eval.interval=0ba)
    ends 93 'has given up since*remove it' train 1 "$DIR/back" "${long[@]}"
    rm -r "$(at "$DIR/back" "$best")"
    train 2 "$DIR/back" "${long[@]}"
    # the step is saved again, and was evaluated in the old way alone
    grep "\"step\": $best," "$DIR/back/eval.jsonl"
    "$BIN/tessera-ckpt" ls "$DIR/back" --json >"$DIR/list"
    jq -e --argjson step "$best" 'map(select(.step == $step))[0] |
        .eval_loss == null and (.best | not)' "$DIR/list"
    now=$(marked "$DIR/back")
    echo "now: $now of $(steps "$DIR/back")"
    [ "$now" = "$(jq 'map(select(.eval_loss != null)) | min_by(.eval_loss).step' "$DIR/list")" ]
    [ "$now" != "$best" ]
}

@test "intervals that never meet are told of when a run starts" {
    cat >"$DIR/said.table" <<'TABLE'
eval.interval=4ba checkpoint.interval=3ba|
eval.interval=5ba checkpoint.interval=7ba|meet at none before the last
eval.interval=5ba checkpoint.interval=auto|unless by chance
eval.interval=5ba checkpoint.interval=1h|unless by chance
TABLE
    while IFS='|' read -r settings text; do
        # shellcheck disable=SC2086 # several words
        train 1 "$DIR/meet" checkpoint.keep_best=true $settings >"$DIR/said" 2>&1
        if [ -n "$text" ]; then grep "keep_best.*$text" "$DIR/said"; else
            ! grep keep_best "$DIR/said"; fi
        rm -r "$DIR/meet"
    done <"$DIR/said.table"
}

# SETS: run settings of two further held-out sets, one of them beside the data
sets_are() {
    SETS=("eval.sets=more, half=$DIR/half" eval.interval=4ba eval.samples=8
        train.max_duration=8ba)
    [ -d "$DIR/half" ] && return
    head -c 30000 "$DIR/text" >"$DIR/some"
    "$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.5 \
        --out "$DIR/data/train/more" "$DIR/some"
    tail -c 20000 "$DIR/text" >"$DIR/some"
    "$BIN/tessera-data" tokenize --seq-len 64 --out "$DIR/half" "$DIR/some"
}

# of eval.jsonl, without times and attempts
results() {
    jq -c '[.step, .eval_loss, .sets]' "$1/eval.jsonl"
}

@test "several held-out sets: each has its loss, as if it were alone" {
    sets_are
    train 1 "$DIR/sets" "${SETS[@]}" tracking.tensorboard=true log.level=info 2>"$DIR/said"
    grep 'step 4 eval loss .* of half' "$DIR/said"
    jq -es 'length == 2 and all(.sets | keys == ["half", "more"])' "$DIR/sets/eval.jsonl"
    grep -rqa eval/half/loss "$DIR/sets" --include='events.out*'
    for set in half more; do
        folder=$DIR/half
        [ $set = half ] || folder=$DIR/data/train/more/eval
        train 1 "$DIR/alone-$set" "${SETS[@]:1}" data.eval="$folder"
        [ "$(jq -c "[.step, .sets.$set.loss, .sets.$set.tokens]" "$DIR/sets/eval.jsonl")" = \
            "$(jq -c '[.step, .eval_loss, .tokens]' "$DIR/alone-$set/eval.jsonl")" ]
    done
    # what they tell changes nothing of what is trained
    [ "$(digest "$DIR/sets")" = "$(digest "$DIR/alone-half")" ]
    # and the first one decides what is best
    [ "$("$BIN/tessera-ckpt" ls "$DIR/sets" --json | jq '.[-1].eval_loss')" = \
        "$(jq -s '.[-1].eval_loss' "$DIR/sets/eval.jsonl")" ]
}

@test "several held-out sets: the same on more ranks and through a resume" {
    sets_are
    SETS+=(scheduler.t_max=8ba)
    train 1 "$DIR/resumed" "${SETS[@]}" train.max_duration=5ba
    train 3 "$DIR/resumed" "${SETS[@]}"
    train 2 "$DIR/ranks" "${SETS[@]}"
    [ "$(results "$DIR/ranks")" = "$(results "$DIR/sets")" ]
    [ "$(results "$DIR/resumed" | jq -c 'select(.[0] != 5)')" = "$(results "$DIR/sets")" ]
}

@test "several held-out sets: stops, pages and refusals name them" {
    sets_are
    train 1 "$DIR/stopped" "${SETS[@]}" \
        'finish=({name="threshold"; metric="eval/half/loss"; value=100.0;})'
    [ "$(jq -s '.[-1].step' "$DIR/stopped/eval.jsonl")" -lt 8 ]
    "$BIN/tessera-report" "$DIR/sets" --json "$DIR/page.json" --out "$DIR/page.html"
    jq -e '[.. | .sets? | .half?.loss? // empty] | length == 1' "$DIR/page.json"
    grep -q 'evaluation of half' "$DIR/page.html"
    "$BIN/tessera-top" "$DIR/sets" --once | grep -E 'eval .*[0-9] of half'
    ends 64 'eval.sets: half has a weight' train 1 "$DIR/no" "${SETS[@]}" "eval.sets=half=$DIR/half 0.5"
    ends 64 'half is there twice' train 1 "$DIR/no" "${SETS[@]}" "eval.sets=half, half"
    ends 64 'need data.eval' train 1 "$DIR/no" "${SETS[@]}" data.eval= eval.samples=0
    ends 93 'eval.sets: nothing' train 1 "$DIR/no" "${SETS[@]}" eval.sets=nothing
}

@test "average: the mean of weights, which a run can begin with" {
    train 1 "$DIR/mean" train.max_duration=6ba checkpoint.interval=2ba
    "$BIN/tessera-ckpt" average "$DIR/averaged" "$DIR/mean#2" "$DIR/mean#4" "$DIR/mean#6"
    ends 64 exists "$BIN/tessera-ckpt" average "$DIR/averaged" "$DIR/mean#2"
    # of one itself: its bits
    "$BIN/tessera-ckpt" average "$DIR/same" "$DIR/mean#4" "$DIR/mean#4"
    ends 0 'equal, bit for bit' "$BIN/tessera-hf" verify "$DIR/same" "$DIR/mean#4"
    # each tensor's mean is the mean of its means
    for of in averaged mean#2 mean#4 mean#6; do
        "$BIN/tessera-ckpt" show "$DIR/$of" --stats --json >"$DIR/of-$of"
    done
    jq -es 'map([.tensors[] | select(.name | test("^(optimizer|algorithms|data)/") | not)] |
        map({ (.name): .stats.mean }) | add) | .[0] as $mean | .[1:] as $of |
        ($mean | length) > 10 and ($mean | to_entries | all(.key as $key |
            (($of | map(.[$key]) | add / 3) - .value | fabs) < 1e-7))' \
        "$DIR/of-averaged" "$DIR/of-mean#2" "$DIR/of-mean#4" "$DIR/of-mean#6"
    train 2 "$DIR/begun" model.weights="$DIR/averaged" train.max_duration=1ba
    # others by name
    train 1 "$DIR/narrow" model.ffn_width=64 train.max_duration=1ba
    ends 64 'another model.ffn_width' "$BIN/tessera-ckpt" average "$DIR/not" "$DIR/mean#2" "$DIR/narrow"
    train 1 "$DIR/scaled" model.clip_qkv=8 train.max_duration=1ba
    ends 64 'another model.clip_qkv' "$BIN/tessera-ckpt" average "$DIR/not" "$DIR/mean#2" \
        "$DIR/scaled"
    [ ! -e "$DIR/not" ]
}
