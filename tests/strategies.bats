#!/usr/bin/env bats
# tessera-train under every strategy: the same bits, also from the checkpoints of
# another one; memory as planned; what cannot be promised is refused.

load run_helpers

setup_file() {
    export DIR
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-strategies.XXXXXX")
    load run_helpers
    make_data
}

teardown_file() {
    rm -rf "$DIR"
}

TEN=(train.max_duration=10ba checkpoint.interval=10ba eval.interval=10ba
    hardware.threads=1)

# same_everywhere NAME [key=value ...]: each strategy on 1 to 4 ranks ends where
# zero1 on one rank does
same_everywhere() {
    local name=$1 want strategy ranks
    shift
    train 1 "$DIR/$name" "${TEN[@]}" "$@"
    want=$(digest "$DIR/$name")
    for strategy in ddp zero1 zero2 zero3; do
        for ranks in 1 2 3 4; do
            train $ranks "$DIR/other" "${TEN[@]}" "$@" \
                parallel.strategy=$strategy
            echo "$strategy on $ranks"
            [ "$(digest "$DIR/other")" = "$want" ]
            [ "$(grep -o '"eval_loss": [^,]*' "$DIR/other/eval.jsonl")" = \
                "$(grep -o '"eval_loss": [^,]*' "$DIR/$name/eval.jsonl")" ]
            [ "$(cut -d, -f2-6 "$DIR/other/metrics.jsonl")" = \
                "$(cut -d, -f2-6 "$DIR/$name/metrics.jsonl")" ]
            rm -rf "$DIR/other"
        done
    done
    train 4 "$DIR/other" "${TEN[@]}" "$@" parallel.strategy=zero3 \
        parallel.shard_degree=2
    [ "$(digest "$DIR/other")" = "$want" ]
    rm -rf "$DIR/other"
}

@test "mpt: every strategy on 1 to 4 ranks, the same bits" {
    same_everywhere mpt
}

@test "llama: every strategy on 1 to 4 ranks, two leaves a slot, the same bits" {
    same_everywhere llama model.preset=llama-tiny train.global_batch=10 \
        parallel.slots=5 train.microbatch=1
}

@test "experts: every strategy on 1 to 4 ranks, the same bits" {
    same_everywhere moe model.preset=moe-tiny
}

@test "each strategy goes on from the checkpoint of another: the same bits" {
    step() { # RANKS STEPS [key=value ...]
        local ranks=$1 steps=$2
        shift 2
        train "$ranks" "$DIR/mixed" "${TEN[@]}" scheduler.t_max=10ba \
            "train.max_duration=${steps}ba" "$@"
    }
    step 3 2 parallel.strategy=zero3
    step 2 4 parallel.strategy=ddp
    step 4 6 parallel.strategy=zero3 parallel.shard_degree=2
    step 1 7 parallel.strategy=zero2
    step 4 9 parallel.strategy=zero2
    step 2 10 parallel.strategy=zero3 parallel.prefetch=3
    train 1 "$DIR/straight" "${TEN[@]}" scheduler.t_max=10ba
    [ "$(digest "$DIR/mixed")" = "$(digest "$DIR/straight")" ]
}

# same_as WANT RANKS [key=value ...]: a run that ends with this digest
same_as() {
    local want=$1 ranks=$2
    shift 2
    echo "on $ranks: $*"
    train "$ranks" "$DIR/group" "${TEN[@]}" "$@"
    [ "$(digest "$DIR/group")" = "$want" ]
    rm -rf "$DIR/group"
}

@test "experts on several ranks: with shards, replicas, prefetch and recompute" {
    local moe=(model.preset=moe-tiny) want
    train 1 "$DIR/alone" "${TEN[@]}" "${moe[@]}"
    want=$(digest "$DIR/alone")
    same_as "$want" 4 "${moe[@]}" parallel.strategy=zero3 \
        parallel.expert_degree=4
    same_as "$want" 4 "${moe[@]}" parallel.strategy=zero3 \
        parallel.expert_degree=2 parallel.shard_degree=2
    same_as "$want" 4 "${moe[@]}" parallel.strategy=zero3 \
        parallel.expert_degree=2 parallel.shard_degree=4 parallel.prefetch=2
    same_as "$want" 4 "${moe[@]}" parallel.strategy=zero2 \
        parallel.expert_degree=2 memory.checkpoint=block hardware.threads=2
    # 6 leaves on 4 ranks: in the last microstep two serve without a leaf
    train 1 "$DIR/six" "${TEN[@]}" "${moe[@]}" parallel.slots=6 \
        train.global_batch=6 train.microbatch=1
    same_as "$(digest "$DIR/six")" 4 "${moe[@]}" parallel.strategy=zero2 \
        parallel.expert_degree=4 parallel.slots=6 train.global_batch=6 \
        train.microbatch=1
}

@test "sequences on several ranks: with shards, replicas, recompute and packing" {
    local long=(model.preset=llama-tiny parallel.sequence_chunks=4) want
    train 1 "$DIR/long" "${TEN[@]}" "${long[@]}" parallel.strategy=zero3
    want=$(digest "$DIR/long")
    same_as "$want" 4 "${long[@]}" parallel.strategy=zero3 \
        parallel.sequence_degree=4
    same_as "$want" 4 "${long[@]}" parallel.strategy=zero3 \
        parallel.sequence_degree=2 parallel.shard_degree=2
    same_as "$want" 3 "${long[@]}" parallel.strategy=zero2
    same_as "$want" 2 "${long[@]}" parallel.strategy=zero2 \
        parallel.sequence_degree=2 memory.checkpoint="attention; ffn" \
        hardware.threads=2
    local packed=("${long[@]}" memory.compression=bf16)
    train 1 "$DIR/packed" "${TEN[@]}" "${packed[@]}" parallel.strategy=zero2
    same_as "$(digest "$DIR/packed")" 2 "${packed[@]}" \
        parallel.strategy=zero2 parallel.sequence_degree=2
}

@test "with compression a run keeps what is computed again, and its experts" {
    local packed=(model.preset=moe-tiny memory.compression=bf16
        parallel.strategy=zero2 scheduler.t_max=10ba)
    train 2 "$DIR/packed-moe" "${TEN[@]}" "${packed[@]}" train.max_duration=2ba
    for change in memory.checkpoint=ffn parallel.expert_degree=2; do
        run train 2 "$DIR/packed-moe" "${TEN[@]}" "${packed[@]}" $change
        echo "$output"
        [ "$status" -eq 93 ]
        [[ "$output" == *"${change%=*}"* ]]
    done
    train 4 "$DIR/packed-moe" "${TEN[@]}" "${packed[@]}"
}

@test "zero3 with more blocks ahead than can travel at once: the same bits" {
    local deep=(model.n_layers=80 model.d_model=16 model.n_heads=2
        train.max_duration=2ba checkpoint.interval=2ba eval.interval=2ba
        parallel.strategy=zero3) want
    train 1 "$DIR/deep" "${TEN[@]}" "${deep[@]}"
    want=$(digest "$DIR/deep")
    same_as "$want" 2 "${deep[@]}" parallel.prefetch=80
}

@test "fast and run train under every strategy; run keeps its own" {
    for strategy in ddp zero2 zero3; do
        for mode in fast run; do
            train 3 "$DIR/$mode-$strategy" "${TEN[@]}" train.max_duration=3ba \
                parallel.strategy=$strategy parallel.determinism=$mode \
                train.global_batch=16 train.microbatch=1
        done
    done
    run train 3 "$DIR/run-zero3" "${TEN[@]}" parallel.strategy=zero2 \
        parallel.determinism=run train.global_batch=16 train.microbatch=1
    [ "$status" -eq 93 ]
    [[ "$output" == *"parallel.strategy"* ]]
}

@test "bf16 gradients train to nearly the same loss" {
    for precision in fp32 bf16; do
        train 2 "$DIR/$precision" "${TEN[@]}" parallel.strategy=zero3 \
            parallel.determinism=run parallel.reduce_precision=$precision
    done
    [ "$(digest "$DIR/fp32")" != "$(digest "$DIR/bf16")" ]
    paste <(grep -o '"eval_loss": [^,]*' "$DIR/fp32/eval.jsonl") \
        <(grep -o '"eval_loss": [^,]*' "$DIR/bf16/eval.jsonl") |
        awk '{ d = $2 - $4; exit !(d < 0.01 && d > -0.01) }'
}

@test "a rank's memory is what was planned, and falls with what is spread" {
    local before=1000000 strategy line planned peak
    for strategy in ddp zero1 zero2 zero3; do
        line=$(train 4 "$DIR/memory" "${TEN[@]}" model.preset=mpt-125m \
            model.n_layers=12 model.d_model=512 model.n_heads=8 \
            model.vocab_size=1024 model.max_seq_len=64 train.max_duration=1ba \
            parallel.strategy=$strategy parallel.slots=4 train.global_batch=4 \
            checkpoint.async=false data.eval= eval.samples=0 \
            log.level=info 2>&1 | grep "memory: planned")
        rm -rf "$DIR/memory"
        planned=$(sed 's/.*planned \([0-9]*\) MiB.*/\1/' <<<"$line")
        peak=$(sed 's/.*peak \([0-9]*\) MiB.*/\1/' <<<"$line")
        echo "# $strategy on 4: planned $planned MiB, peak $peak MiB" >&3
        [ $((peak * 100)) -le $((planned * 105)) ]
        # zero3 takes up to 6 % less: not all of a rank's rooms are touched
        [ $((peak * 100)) -ge $((planned * 93)) ]
        [ "$planned" -lt "$before" ]
        before=$planned
    done
}

@test "a signal during training and during an evaluation under zero3" {
    start 3 "$DIR/signal" "${TEN[@]}" parallel.strategy=zero3 \
        train.max_duration=100000ba eval.interval=5ba eval.samples=0
    wait_for 60 steps_logged "$DIR/signal" 7
    kill -TERM $(ranks_of $pid | head -n 1)
    status=0
    wait $pid || status=$?
    [ "$status" -eq 85 ]
}

# ends_evaluation [key=value ...]: after a signal to both ranks at the beginning
# of an evaluation only some of its microsteps are computed
ends_evaluation() {
    start 2 "$DIR/cut" "${TEN[@]}" "data.eval=$DIR/data/train" \
        eval.samples=2500 eval.interval=1ba scheduler.t_max=10ba \
        train.microbatch=1 train.max_duration=100ba log.level=info "$@"
    wait_for 60 steps_logged "$DIR/cut" 1
    # shellcheck disable=SC2046 # one word for each rank
    kill -TERM $(ranks_of $pid)
    status=0
    wait $pid || status=$?
    [ "$status" -eq 85 ]
    grep -E "evaluation left after [0-9]+ of [0-9]+ microsteps" "$DIR/cut.log"
    rm -rf "$DIR/cut"
}

@test "a signal ends an evaluation of ranks that compute together" {
    ends_evaluation model.preset=llama-tiny parallel.strategy=zero3 \
        parallel.sequence_chunks=2 parallel.sequence_degree=2
    ends_evaluation model.preset=moe-tiny parallel.strategy=zero2 \
        parallel.expert_degree=2
}

refused() { # RANKS TEXT [key=value ...]
    local ranks=$1 text=$2
    shift 2
    run train $ranks "$DIR/refused" "${TEN[@]}" "$@"
    echo "status $status: $output"
    [ "$status" -eq 64 ]
    [[ "$output" == *"$text"* ]]
    [ ! -e "$DIR/refused/checkpoints/step-000000010" ]
}

@test "what cannot be kept is refused with the reason" {
    refused 1 "elastic cannot promise" parallel.strategy=zero3 \
        parallel.reduce_precision=bf16
    refused 2 "zero2 and zero3" parallel.strategy=zero1 \
        parallel.reduce_precision=bf16 parallel.determinism=run
    refused 3 "does not divide the 3 ranks" parallel.strategy=zero3 \
        parallel.shard_degree=2
    refused 2 "only parallel.strategy=zero3" parallel.strategy=zero1 \
        parallel.shard_degree=2
    refused 1 "the most ranks of the run" parallel.strategy=zero3 \
        parallel.shard_degree=16
    refused 3 "does not divide the 3 ranks" parallel.strategy=zero2 \
        parallel.sequence_chunks=2 parallel.sequence_degree=2
    refused 1 "does not divide the 1 ranks" parallel.strategy=zero2 \
        model.preset=moe-tiny parallel.expert_degree=2
    refused 1 "parallel.strategy" parallel.strategy=zero4
}
