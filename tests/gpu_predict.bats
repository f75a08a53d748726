#!/usr/bin/env bats
# tests/gpu/predict: what a step enqueues, without computing it.
bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/.." || exit
    PREDICT=$(dirname "${TESSERA_BIN:-$PWD/build/bin}")/gpu/predict
    [ -x "$PREDICT" ] || skip "$PREDICT is not built: make tests"
}

# total COLUMN OP: of the lines of an op, or of all ops that begin so
total() {
    awk -v column="$1" -v op="$2" 'index($6, op) == 1 { sum += $column }
        END { printf "%.2f\n", sum }' <<<"$output"
}

step() {
    run -0 "$PREDICT" model.preset=mpt-125m data.seq_len=2048 \
        train.microbatch=2 train.global_batch=4 parallel.slots=1 "$@"
}

@test "products and attention are those of the model" {
    step
    # 3 times 2 x 8192 tokens x (12 layers of 12 x 768^2 + 50368 x 768) = 2.03
    [ "$(total 2 gemm)" = 6.09 ]
    # causal, of 2 x 2 x 12 heads of 64: 2 and 5 products
    [ "$(total 2 attention_forward)" = 0.31 ]
    [ "$(total 2 attention_backward)" = 0.77 ]
    [ "$(total 1 attention_forward)" = 24.00 ]
    # one update of 123.6 million parameters at 28 bytes
    [ "$(total 1 adamw)" = 1.00 ]
    [[ $(total 3 adamw) == 3.[4-6]* ]]
}

@test "one leaf has no gradient of its own, several have under elastic" {
    step train.microbatch=4
    [ "$(total 1 accumulate)" = 0.00 ]
    step
    [ "$(total 1 accumulate)" = 14.00 ]
    step parallel.determinism=fast
    [ "$(total 1 accumulate)" = 0.00 ]
}

@test "logits are many rows at a time" {
    step --shapes train.microbatch=4 data.seq_len=2000
    [[ $output == *"gemm NT 8000x50368x768"* ]]
    step --shapes model.max_seq_len=4096 data.seq_len=4096
    [[ $output == *"gemm TN 50368x768x8192"* ]]
    step --shapes train.microbatch=8 train.global_batch=8
    [[ $output == *"gemm NT 8192x50368x768"* ]]
}

@test "documents are told of only where a sample has several" {
    step
    [[ $output != *documents* ]]
    step --documents
    [ "$(grep -c "attention_.*ward, documents" <<<"$output")" = 2 ]
    [ "$(total 1 attention_backward)" = 24.00 ]
}

@test "activations are kept on a device, but where memory.checkpoint names them" {
    step
    [ "$(total 1 activation_forward)" = 24.00 ]
    kept=$(grep -o 'memory [0-9.]*' <<<"$output")
    step memory.checkpoint="activation: first-2"
    [ "$(total 1 activation_forward)" = 28.00 ]
    step memory.checkpoint=activation
    [ "$(total 1 activation_forward)" = 48.00 ]
    [[ $(grep -o 'memory [0-9.]*' <<<"$output") < $kept ]]
    step memory.checkpoint=ffn
    [ "$(total 1 activation_forward)" = 48.00 ]
}

@test "a rate decides the time, and MFU with it" {
    step
    slow=$(grep -o 'MFU [0-9.]*' <<<"$output")
    step --gemm=1600e12 --attention-forward=1e15 --attention-backward=1e15
    [[ $slow < $(grep -o 'MFU [0-9.]*' <<<"$output") ]]
    step --launch=1
    [[ $output == *"MFU 0.000"* ]]
}

# mfu RANGE: of the line of JSON
mfu() {
    sed -nE "s/.*\"$1\": ([0-9.]+).*/\1/p" <<<"$output"
}

@test "a range for what is measured, on any GPU of tessera-plan and any number" {
    step
    table=$(sed -nE 's/.*MFU ([0-9.]+).*/\1/p' <<<"$output")
    run -0 "$PREDICT" --json mpt-125m data.seq_len=2048 train.microbatch=2 train.global_batch=4 parallel.slots=1
    [[ $output == '{"model": "mpt-125m", "gpu": "h200", "gpus": 1, '*'}}' ]]
    low=$(mfu low) expected=$(mfu expected) high=$(mfu high)
    awk "BEGIN { exit !($low < $expected && $expected < $high && $high < $table) }"
    run -0 "$PREDICT" --json --gpus 64 mpt-125m data.seq_len=2048 train.microbatch=2 train.global_batch=4 parallel.slots=1
    # each updates its part
    [[ $(mfu low) < $low && $(mfu high) > "$high" ]]
    run -0 "$PREDICT" --json --gpu b200 mpt-125m data.seq_len=2048 train.microbatch=2 train.global_batch=4 parallel.slots=1
    [[ $output == *'"peak_tflops": 2250.0, "memory_gbps": 8000, '* ]]
    run -64 "$PREDICT" --json --gpu h300
    run -64 "$PREDICT" --json --gpus none
}

@test "64 GPUs in levels: 7B with 8k tokens each, one microbatch" {
    local all=(--json --gpu h100-sxm --gpus 64 mpt-7b data.seq_len=2048 train.microbatch=4
        train.global_batch=4 parallel.slots=1)
    declare -A expected
    for strategy in zero1 zero2 zero3 "zero3 parallel.shard_degree=8"; do
        # zero1 does not fit
        run "$PREDICT" "${all[@]}" "parallel.strategy=${strategy% *}" ${strategy#zero?}
        expected[$strategy]=$(mfu expected)
        echo "# $strategy: $(mfu low) $(mfu expected) $(mfu high)" >&3
    done
    [[ ${expected[zero2]} > 0.479 && ${expected[zero3]} > 0.479 ]]
    [[ -n ${expected[zero1]} && ${expected[zero1]} < ${expected[zero3]} ]]
    [[ ${expected[zero3 parallel.shard_degree=8]} < ${expected[zero3]} ]]
}

@test "what does not fit or is not known is an error" {
    run -93 "$PREDICT" model.preset=mpt-30b data.seq_len=2048
    [[ $output == *"more than an H200 has"* ]]
    run -64 "$PREDICT" --gem=1
    [[ $output == *"--gem=1: no such rate"* ]]
    run -64 "$PREDICT" --gemm=fast
    run ! "$PREDICT" model.preset=dbrx data.seq_len=2048
    [[ $output == *"only dense models"* ]]
}

@test "one of 64 ranks: products begin gradients, and few kernels add them" {
    run -0 "${PREDICT}_ranks" --ranks 64 parallel.strategy=zero3 model.preset=mpt-1b \
        data.seq_len=2048 train.microbatch=1 train.global_batch=256 \
        parallel.slots=4
    line=$(grep '^gradients' <<<"$output")
    echo "# $line" >&3
    read -r bytes kernels adds < <(tr -dc '0-9. \n' <<<"$line")
    awk -v b="$bytes" -v k="$kernels" -v a="$adds" \
        'BEGIN { exit !(b > 7 && b <= 10 && k <= 60 && a >= 1 && a <= 8) }'
    run -64 "${PREDICT}_ranks" --ranks 2 parallel.strategy=zero1
    run -64 "$PREDICT" --ranks 2 parallel.strategy=zero3
}
