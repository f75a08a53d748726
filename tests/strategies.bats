#!/usr/bin/env bats
# tessera-train under every strategy: memory as planned, signals, and what cannot
# be promised is refused. The same bits under each, also from the checkpoints of
# another one: tests/matrix.table.

load run_helpers

setup_file() {
    data_folder
}

TEN=(train.max_duration=10ba checkpoint.interval=10ba eval.interval=10ba
    hardware.threads=1)

@test "with compression a run keeps what is computed again, and its experts" {
    local packed=(model.preset=moe-tiny memory.compression=bf16
        parallel.strategy=zero2 scheduler.t_max=10ba)
    train 2 "$DIR/packed-moe" "${TEN[@]}" "${packed[@]}" train.max_duration=2ba
    for change in memory.checkpoint=ffn parallel.expert_degree=2; do
        ends 93 "${change%=*}" train 2 "$DIR/packed-moe" "${TEN[@]}" "${packed[@]}" $change
    done
    train 4 "$DIR/packed-moe" "${TEN[@]}" "${packed[@]}"
}

@test "zero3 with more blocks ahead than can travel at once: the same bits" {
    local deep=(model.n_layers=80 model.d_model=16 model.n_heads=2
        train.max_duration=2ba checkpoint.interval=2ba eval.interval=2ba
        parallel.strategy=zero3)
    train 1 "$DIR/deep" "${TEN[@]}" "${deep[@]}"
    train 2 "$DIR/ahead" "${TEN[@]}" "${deep[@]}" parallel.prefetch=80
    [ "$(digest "$DIR/ahead")" = "$(digest "$DIR/deep")" ]
}

@test "the ranks of a node write one file: the same state, which other ranks take up" {
    local short=(train.max_duration=2ba checkpoint.interval=2ba eval.interval=0ba
        scheduler.t_max=4ba parallel.strategy=zero3)
    train 3 "$DIR/alone" "${TEN[@]}" "${short[@]}"
    train 3 "$DIR/together" "${TEN[@]}" "${short[@]}" checkpoint.writers=node
    [ "$(digest "$DIR/together")" = "$(digest "$DIR/alone")" ]
    [ "$(find "$DIR/together" -name 'shard-*' | wc -l)" = 1 ]
    train 2 "$DIR/together" "${TEN[@]}" "${short[@]}" train.max_duration=4ba
    train 3 "$DIR/alone" "${TEN[@]}" "${short[@]}" train.max_duration=4ba
    [ "$(digest "$DIR/together")" = "$(digest "$DIR/alone")" ]
}

@test "fast and run train under every strategy; run keeps its own" {
    for strategy in ddp zero2 zero3; do
        for mode in fast run; do
            train 3 "$DIR/$mode-$strategy" "${TEN[@]}" train.max_duration=3ba \
                parallel.strategy=$strategy parallel.determinism=$mode \
                train.global_batch=16 train.microbatch=1
        done
    done
    ends 93 "parallel.strategy" train 3 "$DIR/run-zero3" "${TEN[@]}" parallel.strategy=zero2 \
        parallel.determinism=run train.global_batch=16 train.microbatch=1
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
    waited 85
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
    waited 85
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
    ends 64 "$text" train $ranks "$DIR/refused" "${TEN[@]}" "$@"
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
