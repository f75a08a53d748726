#!/usr/bin/env bats
# Algorithms over starts of a run: what is kept and what begins anew, whatever
# the ranks and however often it is killed.

load run_helpers

setup_file() {
    data_folder
    train 2 "$DIR/plain" "${SIX[@]}"
    train 1 "$DIR/means" "${SIX[@]}" \
        'algorithms=({name="ema";half_life="4ba";},{name="label_smoothing";smoothing=0;})'
    train 1 "$DIR/swa" "${SIX[@]}" \
        'algorithms=({name="swa";start="2ba";end="9ba";update_interval="1ba";})'
}

SIX=(train.max_duration=6ba scheduler.t_max=6ba eval.interval=6ba checkpoint.keep=0)
# one step behind those of another run, of which nothing is seen
NEXT=(train.max_duration=7ba scheduler.t_max=7ba eval.interval=7ba optimizer.lr=0)

eval_losses() { # DIR
    sed -n 's/.*"eval_loss": \([^,}]*\).*/\1/p' "$1/eval.jsonl"
}

@test "a mean that load_ignore leaves out begins with the weights, not with zeros" {
    local want name list
    train 1 "$DIR/without" "${NEXT[@]}" "checkpoint.load=$DIR/plain"
    want=$(eval_losses "$DIR/without")
    for name in ema:means swa:swa; do
        list='{name="ema";half_life="4ba";}'
        [ "${name%:*}" = ema ] ||
            list='{name="swa";start="2ba";end="9ba";update_interval="1ba";}'
        train 2 "$DIR/anew-${name%:*}" "${NEXT[@]}" "checkpoint.load=$DIR/${name#*:}" \
            "algorithms=($list)" 'checkpoint.load_ignore=algorithms/* lm_haed.*' \
            log.level=info 2>"$DIR/told"
        grep -q "algorithms: ${name%:*} begins anew" "$DIR/told"
        [ "$(grep "which is to be left out, matches no tensor" "$DIR/told" | grep -c lm_haed)" -eq 1 ]
        echo "$name: $(eval_losses "$DIR/anew-${name%:*}"), want $want"
        [ "$(eval_losses "$DIR/anew-${name%:*}")" = "$want" ]
    done
    # of which some tensor is left out begins anew as a whole
    train 1 "$DIR/some" "${NEXT[@]}" "checkpoint.load=$DIR/swa" \
        'algorithms=({name="swa";start="2ba";end="9ba";update_interval="1ba";})' \
        'checkpoint.load_ignore=algorithms/*norm_f*'
    [ "$(eval_losses "$DIR/some")" = "$want" ]
    # what is not left out goes on
    train 1 "$DIR/on" "${NEXT[@]}" "checkpoint.load=$DIR/swa" \
        'algorithms=({name="swa";start="2ba";end="9ba";update_interval="1ba";})'
    [ "$(eval_losses "$DIR/on")" != "$want" ]
}

@test "a mean whose interval is less than any step is refused" {
    ends 64 "ema: half_life and update_interval must be above 0" train 1 "$DIR/never" "${SIX[@]}" \
        'algorithms=({name="ema";update_interval="1e-15dur";})'
}

@test "the state of an algorithm is found by its name, in another list" {
    train 1 "$DIR/turned" "${NEXT[@]}" "checkpoint.load=$DIR/means" \
        'algorithms=({name="z_loss";},{name="ema";half_life="4ba";})'
    train 2 "$DIR/straight" "${NEXT[@]}" "checkpoint.load=$DIR/means" \
        'algorithms=({name="ema";half_life="4ba";})'
    [ "$(eval_losses "$DIR/turned")" = "$(eval_losses "$DIR/straight")" ]
}

@test "another list's tensors are an error that names load_ignore" {
    ends 93 '' train 1 "$DIR/none" "${NEXT[@]}" "checkpoint.load=$DIR/plain" \
        'algorithms=({name="ema";})'
    [[ "$output" == *'checkpoint.load_ignore = "algorithms/*" leaves out'*"is not in the checkpoint"* ]]
    ends 93 '' train 2 "$DIR/none" "${NEXT[@]}" "checkpoint.load=$DIR/means"
    [[ "$output" == *'checkpoint.load_ignore = "algorithms/*" leaves out'*"is not in the model"* ]]
    ends 93 '' train 1 "$DIR/none" "${NEXT[@]}" "checkpoint.load=$DIR/plain" \
        optimizer.name=lion
    [[ "$output" == *'checkpoint.load_ignore = "optimizer/*" leaves out'* ]]
    train 1 "$DIR/fits" "${NEXT[@]}" "checkpoint.load=$DIR/means" \
        'checkpoint.load_ignore=algorithms/*'
}

@test "a fraction of the run stays at its step when the run is to last longer" {
    local list='{name="swa";start="0.25dur";end="0.75dur";update_interval="1ba";}'
    list="$list,"'{name="seq_length_warmup";duration="0.5dur";min_seq_len=16;step_size=16;}'
    list="$list,"'{name="layer_freezing";start="0.5dur";match="*wte*";}'
    local at="${list//0.25dur/2ba}"
    at=${at//0.75dur/6ba}
    at=${at//0.5dur/4ba}
    local fixed=(scheduler.name=constant checkpoint.interval=1ba checkpoint.keep=0
        eval.interval=1ba)
    train 1 "$DIR/steps" "${fixed[@]}" "algorithms=($at)" train.max_duration=12ba
    train 2 "$DIR/parts" "${fixed[@]}" "algorithms=($list)" train.max_duration=8ba
    # as if it had ended after the third step
    rm -rf "$DIR"/parts/checkpoints/step-00000000[4-9]
    ends 0 "swa: start stays at 2 steps; by train.max_duration = 12ba it would now be 3" \
        train 1 "$DIR/parts" "${fixed[@]}" "algorithms=($list)" \
        train.max_duration=12ba log.level=info
    [[ "$output" == *"swa: end stays at 6 steps"*"would now be 9"* ]]
    [[ "$output" == *"seq_length_warmup: duration stays at 4 steps"* ]]
    [[ "$output" == *"layer_freezing: start stays at 4 steps"* ]]
    [ "$(step_losses "$DIR/parts")" = "$(step_losses "$DIR/steps")" ]
    "$BIN/tessera-ckpt" diff "$(newest "$DIR/parts")" "$(newest "$DIR/steps")" || true
    [ "$(digest "$DIR/parts")" = "$(digest "$DIR/steps")" ]
}

# figure NAME DIR: of every logged step, a line each
figure() {
    sed -n "s|.*\"$1\": \([^,}]*\).*|\1|p" "$2/metrics.jsonl"
}

# prompts of about 40 bytes with an answer behind them
make_prompts() {
    local i
    for i in $(seq 64); do
        printf '{"prompt": "What is the number that follows %d in a row? ", "response": "it is %d"}\n' \
            $((1000 + i)) $((1001 + i))
    done >"$DIR/prompts.jsonl"
    "$BIN/tessera-data" tokenize --prompts --seq-len 64 --out "$DIR/prompts" \
        "$DIR/prompts.jsonl"
}

PROMPTS=(data.eval= eval.samples=0 train.max_duration=6ba checkpoint.interval=6ba)

@test "steps of prompts alone are told, and metrics count what is trained" {
    local list='{name="seq_length_warmup";duration="4ba";min_seq_len=16;step_size=16;}'
    make_prompts
    ends 0 "step 1 trains on nothing: no label is among the first 16 of the 64 tokens*min_seq_len" \
        train 1 "$DIR/short" "${PROMPTS[@]}" "data.train=$DIR/prompts" \
        "algorithms=($list)"
    [ "$(grep -c 'trains on nothing' <<<"$output")" -eq 1 ]
    figure train/loss_tokens "$DIR/short"
    [ "$(figure train/loss_tokens "$DIR/short" | head -n 1)" = 0 ]
    [ "$(figure train/loss_tokens "$DIR/short" | tail -n 1)" -ge 64 ]
    # 8 samples of 16, 16, 32, 48, 64 and 64 tokens, over a resume
    figure tokens "$DIR/short"
    [ "$(figure tokens "$DIR/short" | tr '\n' ' ')" = "128 256 512 896 1408 1920 " ]
    train 2 "$DIR/short" "${PROMPTS[@]}" "data.train=$DIR/prompts" \
        "algorithms=($list)" train.max_duration=7ba
    [ "$(figure tokens "$DIR/short" | tail -n 1)" = 2432 ]
}

@test "sam without epsilon goes on behind a step without labels" {
    [ -e "$DIR/prompts" ] || make_prompts
    train 1 "$DIR/sam" "${PROMPTS[@]}" "data.train=$DIR/prompts" optimizer.name=sgd \
        'algorithms=({name="sam";epsilon=0;},{name="seq_length_warmup";duration="4ba";min_seq_len=16;step_size=16;})'
    [ "$(figure step "$DIR/sam" | tail -n 1)" = 6 ]
    [ "$(figure loss "$DIR/sam" | tail -n 1)" != 0 ]
}

SELECT='{name="selective_backprop";start="2ba";end="1dur";keep=0.4;interrupt=3;}'

@test "samples are chosen by all ranks alike, through a kill, with any strategy" {
    local on want ranks at
    # of microbatches of 4 some have nothing left
    on=(train.max_duration=9ba scheduler.t_max=9ba train.global_batch=16
        train.microbatch=4 parallel.slots=4 checkpoint.interval=3ba
        eval.interval=9ba checkpoint.keep=0)
    train 1 "$DIR/chosen" "${on[@]}" "algorithms=($SELECT)"
    want=$(digest "$DIR/chosen")
    # 6 of 16 samples in steps 3 to 9 but for those of threes
    figure train/loss_tokens "$DIR/chosen" | tr '\n' ' ' | tee "$DIR/labels"
    [ "$(cat "$DIR/labels")" = "1008 1008 1008 378 378 1008 378 378 1008 " ]
    [ "$(figure tokens "$DIR/chosen" | tail -n 1)" = 6656 ]
    train 1 "$DIR/all" "${on[@]}"
    [ "$(digest "$DIR/all")" != "$want" ]
    for at in ddp:2 zero2:3 zero3:4; do
        train "${at#*:}" "$DIR/chosen-${at%:*}" "${on[@]}" \
            "algorithms=($SELECT)" "parallel.strategy=${at%:*}"
        [ "$(digest "$DIR/chosen-${at%:*}")" = "$want" ]
    done
    start 3 "$DIR/chosen-killed" "${on[@]}" "algorithms=($SELECT)" \
        train.max_duration=400ba checkpoint.interval=1ba
    wait_for 60 steps_logged "$DIR/chosen-killed" 5
    mapfile -t ranks < <(ranks_of "$pid")
    kill -KILL "${ranks[@]}"
    wait "$pid" || true
    rm -rf "$DIR"/chosen-killed/checkpoints/step-00000000[5-9] \
        "$DIR"/chosen-killed/checkpoints/step-0000000[1-9]?
    train 2 "$DIR/chosen-killed" "${on[@]}" "algorithms=($SELECT)"
    [ "$(digest "$DIR/chosen-killed")" = "$want" ]
}

@test "what is chosen has higher losses than what is not" {
    local on=(train.max_duration=12ba eval.samples=0 data.eval= optimizer.lr=0)
    train 1 "$DIR/hard" "${on[@]}" 'algorithms=({name="selective_backprop";start="0ba";end="1dur";interrupt=0;keep=0.25;})'
    train 1 "$DIR/plainly" "${on[@]}"
    # with weights that stay, the mean loss of what is chosen is above that of all
    paste <(figure loss "$DIR/hard") <(figure loss "$DIR/plainly") | tee /dev/stderr |
        awk '{ hard += $1; all += $2 } END { exit !(hard > all) }'
}

@test "the gradient of an embedding that does not train is not scaled in silence" {
    ends 64 "embedding_scaling: the embedding does not train" \
        train 1 "$DIR/frozen" "${SIX[@]}" 'model.freeze=*wte* *wpe*' \
        'algorithms=({name="embedding_scaling";})'
}
