#!/usr/bin/env bats
# finish: a run ends by rules, at the same step and bits through kill -9.

load run_helpers

setup_file() {
    data_folder
}

LONG=(train.max_duration=150ba checkpoint.interval=5ba checkpoint.keep=0
    eval.interval=4ba optimizer.lr=0.005)

last_step() { # DIR
    local name
    name=$(basename "$(newest "$1")")
    echo $((10#${name#step-}))
}

@test "a threshold ends a run after the step behind the one that meets it" {
    ends 0 "finish, rule 1 (threshold): train/loss was *, beyond 3.2: the next step is the last" \
        train 1 "$DIR/a" "${LONG[@]}" log.level=info \
        'finish=({name="threshold"; metric="train/loss"; value=3.2;})'
    # why it ended: ledger and last line
    why=$(jq -sr 'last.reason' "$DIR/a/ledger.jsonl")
    [[ $why == "finish, rule 1 (threshold): train/loss was "*", beyond 3.2" ]]
    [[ ${lines[-1]} == *"finished after step "*": $why; loss "*"; next: tessera-generate $DIR/a"* ]]
    met=$(jq -s 'map(select(.loss < 3.2)) | .[0].step' "$DIR/a/metrics.jsonl")
    [ "$(last_step "$DIR/a")" -eq $((met + 1)) ]
    digest "$DIR/a" >"$DIR/a.digest"
}

@test "the same through kill -9 on two ranks, and again when it is over" {
    held 7 2 "$DIR/b" "${LONG[@]}" \
        'finish=({name="threshold"; metric="train/loss"; value=3.2;})'
    wait_for 60 [ -e "$DIR/b/checkpoints/step-000000005" ]
    kill -9 $(ranks_of "$pid")
    wait "$pid" || true
    for again in 1 2; do
        ends 0 '' train 2 "$DIR/b" "${LONG[@]}" \
            'finish=({name="threshold"; metric="train/loss"; value=3.2;})'
        [ "$(digest "$DIR/b")" = "$(cat "$DIR/a.digest")" ]
        [[ $(jq -sr 'last.reason' "$DIR/b/ledger.jsonl") == "finish, rule 1 (threshold): "* ]]
    done
}

@test "no better value for as long as the patience lasts" {
    ends 0 "finish, rule 1 (early_stop): after step * eval/loss had not been better than * for 8 steps" \
        train 1 "$DIR/c" "${LONG[@]}" log.level=info \
        'finish=({name="early_stop"; min_delta=0.5; patience="8ba";})'
    # by hand from what evaluations gave
    met=$(jq -s 'reduce .[] as $e ({}; if .met then . elif .best == null or
        $e.eval_loss < .best - 0.5 then {best: $e.eval_loss, at: $e.step}
        elif $e.step - .at >= 8 then .met = $e.step else . end) | .met' \
        "$DIR/c/eval.jsonl")
    [ "$(last_step "$DIR/c")" -eq $((met + 1)) ]

    # stopped just where the rule was met: the same last step
    start 1 "$DIR/d" "${LONG[@]}" checkpoint.interval=1ba \
        'finish=({name="early_stop"; min_delta=0.5; patience="8ba";})'
    wait_for 60 [ -e "$DIR/d/checkpoints/$(printf step-%09d "$met")" ]
    kill -9 $(ranks_of "$pid") || true
    wait "$pid" || true
    rm -rf "$DIR/d/checkpoints/$(printf step-%09d $((met + 1)))"
    train 1 "$DIR/d" "${LONG[@]}" checkpoint.interval=1ba \
        'finish=({name="early_stop"; min_delta=0.5; patience="8ba";})'
    [ "$(digest "$DIR/d")" = "$(digest "$DIR/c")" ]
}

@test "an ended run goes on when it is to last longer, by its rules anew" {
    local rule='finish=({name="threshold"; metric="train/loss"; value=5.5;})'
    train 1 "$DIR/f" "${LONG[@]}" "$rule"
    local ended
    ended=$(last_step "$DIR/f")
    # by other rules it goes on to its end
    train 1 "$DIR/f" "${LONG[@]}" train.max_duration=30ba scheduler.t_max=150ba \
        'finish=({name="threshold"; metric="train/loss"; value=0.1;})'
    [ "$(last_step "$DIR/f")" -eq 30 ]
    # by the same they are judged anew
    train 1 "$DIR/g" "${LONG[@]}" "$rule"
    train 1 "$DIR/g" "${LONG[@]}" "$rule" train.max_duration=40ba \
        scheduler.t_max=150ba
    [ "$(last_step "$DIR/g")" -eq $((ended + 2)) ]
    # and another run that goes on from it knows nothing of them
    ends 0 '' train 1 "$DIR/h" "${LONG[@]}" checkpoint.load="$DIR/g" \
        train.max_duration=20ba scheduler.t_max=150ba
    [ "$(last_step "$DIR/h")" -eq 20 ]
}

@test "a figure that never comes is told at the end" {
    ends 0 '' train 1 "$DIR/i" train.max_duration=4ba scheduler.warmup=1ba \
        'finish=({name="threshold"; metric="gpu/power"; value=100;})'
    [[ $output == *'rule 1 was never judged: no step had a figure "gpu/power"'* ]]
}

@test "rules that can never be judged are refused" {
    ends 64 "data.eval is empty" \
        train 1 "$DIR/e" data.eval= eval.samples=0 'finish=({name="early_stop";})'
    ends 64 "item 1 (threshold): 'value' is missing" train 1 "$DIR/e" 'finish=({name="threshold";})'
}
