#!/usr/bin/env bats
# tessera-bench (tests/bench): its command line, and benchmarks that are short.
bats_require_minimum_version 1.5.0

setup() {
    BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
    BENCH=$BIN/../bench/tessera-bench
    [ -x "$BENCH" ] || skip "$BENCH was not built"
    DIR=$BATS_TEST_TMPDIR/dir # beside what bats puts there
    mkdir "$DIR"
}

# number KEY: its value in $output
number() {
    [[ "$output" =~ \"$1\":\ *([-+.e0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

# within CONDITION KEY...: it holds of each value
within() {
    local condition=$1 key
    shift
    for key; do
        awk -v value="$(number "$key")" "BEGIN { exit !($condition) }" ||
            return 1
    done
}

@test "--help names every benchmark" {
    run "$BENCH" --help
    [ "$status" -eq 0 ]
    for name in step gemm infer data ckpt comm; do
        [[ "$output" == *"tessera-bench $name "* ]]
    done
}

@test "what does not exist is refused with the choice" {
    run "$BENCH" stepp --dir "$DIR"
    [ "$status" -eq 64 ]
    [[ "$output" == *"no command stepp; did you mean step?"* ]]
    run "$BENCH" step --model 7b --dir "$DIR"
    [ "$status" -eq 64 ]
    [[ "$output" == *"no model '7b'; there are 125m, 10m and moe"* ]]
    run "$BENCH" step --model
    [ "$status" -eq 64 ]
}

@test "infer: a small model, every form of weights" {
    run --separate-stderr "$BENCH" infer --model llama-tiny --json \
        --seconds 0.1 --dir "$DIR"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    for form in fp32 bf16 int8; do
        within "value > 0" ${form}_{decode_tokens_per_s,decode_gbps,read_gbps} \
            ${form}_{decode_ratio,prompt_tokens_per_s,prompt_gflops,prompt_ratio}
    done
    run "$BENCH" infer --model "$DIR/none" --dir "$DIR"
    [ "$status" -ne 0 ]
    [[ "$output" == *"$DIR/none"* ]]
}

@test "step: a small model, one object, no page faults after the first step" {
    run --separate-stderr "$BENCH" step --model 10m --json --seconds 0.1 \
        --dir "$DIR"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *'"model": "10m"'* ]]
    within "value > 0" threads rounds step_ms gflop peak_gflops triad_gbps \
        elastic_ms elastic_ratio
    # the products alone take as long as ratio_peak says, and no less
    awk -v value="$(number ratio_peak)" -v gflop="$(number gflop)" \
        -v peak="$(number peak_gflops)" -v ms="$(number step_ms)" 'BEGIN {
            again = gflop / peak / ms * 1000
            exit !(value > 0 && value <= 1 && value > 0.999 * again &&
                value < 1.001 * again)
        }'
    # 6 per weight and token, and seven products of attention's causal half
    awk -v gflop="$(number gflop)" 'BEGIN {
            linear = 6 * 256 * (6 * 12 * 320 * 320 + 8192 * 320)
            attention = 6 * 4 * 7 * 320 * 64 * 65
            exit !(gflop > 0.999e-9 * (linear + attention) &&
                gflop < 1.001e-9 * (linear + attention))
        }'
    within "value < 50" faults
    ! [[ "$output" == *moe_ratio* ]]
}

@test "gemm: every shape beside the peak" {
    command -v python3 >/dev/null || skip "python3 is not installed"
    run --separate-stderr "$BENCH" gemm --model moe --tokens 16 --json \
        --seconds 0.1 --dir "$DIR"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    python3 - "$output" <<'EOF'
import json, sys
out = json.loads(sys.argv[1])
assert len(out["shapes"]) == 9 and out["rounds"] >= 3
fractions = []
for shape in out["shapes"]:
    assert shape["form"] in ("NT", "NN", "TN")
    assert shape["groups"] * shape["m"] * shape["n"] * shape["k"] > 0
    fraction = shape["ours_gflops"] / shape["peak_gflops"]
    assert 0 < shape["peak_fraction"] < 1.05
    assert abs(shape["peak_fraction"] / fraction - 1) < 0.001
    fractions.append(shape["peak_fraction"])
assert out["peak_fraction_min"] == min(fractions)
assert out["peak_fraction_median"] == sorted(fractions)[4]
for way in out["attention"]:
    assert way["tokens"] == 16 and 0 < way["peak_fraction"] < 1.05
EOF
}

@test "gemm: another kernel set, and what does not exist" {
    run "$BENCH" gemm --kernel-set sse9 --dir "$DIR"
    [ "$status" -ne 0 ]
    [[ "$output" == *"kernel set 'sse9' is not in this build"* ]]
    run "$BENCH" gemm --model 7b --dir "$DIR"
    [ "$status" -eq 64 ]
    run "$BENCH" data --tokens 64 --dir "$DIR"
    [ "$status" -eq 64 ]
    [[ "$output" == *"data has no option --tokens"* ]]
    # nothing stays
    [ -z "$(ls -A "$DIR")" ]
}

@test "data: reading ahead of files and of a slow server" {
    run --separate-stderr "$BENCH" data --json --dir "$DIR"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    within "value > 0" step_tokens_per_s loader_alone_tokens_per_s
    within "value >= 0 && value < 1" loader_100x_share remote_share \
        remote_cold_share
    # its address and its first batch are asked for, 50 ms each
    within "value > 0.1" remote_start_s
}

@test "step --parallel: ratios of two ranks, one object" {
    command -v mpirun >/dev/null || skip "there is no mpirun"
    mkdir "$DIR/parallel" "$DIR/bench-parallel"
    echo mine >"$DIR/bench-parallel/mine"
    run --separate-stderr "$BENCH" step --parallel --model 10m --json \
        --seconds 0.1 --dir "$DIR"
    echo "$output"
    echo "$stderr"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *'"model": "10m", "ranks": 2'* ]]
    within "value > 0" one_rank_ms one_rank_fast_ms zero1_ms zero1_fast_ms \
        ddp_ms zero3_ms ranks_ratio zero3_ratio elastic_ratio_parallel \
        elastic_ratio_one_rank
    awk -v a="$(number ddp_ms)" -v b="$(number zero3_ms)" \
        -v ratio="$(number zero3_ratio)" \
        'BEGIN { exit !(ratio > 0.999 * a / b && ratio < 1.001 * a / b) }'
    [ "$(ls -A "$DIR")" = $'bench-parallel\nparallel' ]
    [ "$(<"$DIR/bench-parallel/mine")" = mine ]
}

@test "comm --plan: bytes between nodes by the plan, and what is no plan" {
    command -v python3 >/dev/null || skip "python3 is not installed"
    # the way that counts, the most of the least that it may send, and messages
    while read -r plan way ratio messages; do
        run --separate-stderr "$BENCH" comm --plan "$plan" --json --dir "$DIR"
        [ "$status" -eq 0 ]
        python3 - "$output" "$way" "$ratio" "$messages" <<'EOF'
import json, sys
out = json.loads(sys.argv[1])
way = {way["way"]: way for way in out["ways"]}[sys.argv[2]]
print(out["nodes"], out["ranks"], way)
assert 0.98 < way["ratio"] <= float(sys.argv[3])
assert way["messages"] <= int(sys.argv[4])
assert 0 < way["smallest_bytes"] <= way["largest_bytes"]
EOF
    done <<'EOF'
2x2 levels 1.1 2
2x4 levels 1.1 4
3x2 levels 1.1 3
3x4 levels 1.1 5
4x4 levels 1.1 6
8x8 levels 1.01 14
64x8 levels 1.02 70
64x6 ranges 2.1 68
1024x8 levels 1.05 70
EOF
    for plan in 0x8 8x 8 x8 -1x8 8x8x8 " 8x8" 99999999999999999999x1 8x1025 \
        65536x2 "" 8X8; do
        run "$BENCH" comm --plan "$plan" --dir "$DIR"
        [ "$status" -eq 64 ]
        [[ "$output" == *"--plan takes NODESxRANKS, as 64x8: "* ]]
    done
    run "$BENCH" comm --plan 2x2 --model nope --dir "$DIR"
    [[ "$output" == *"no preset 'nope'"* ]]
    run "$BENCH" comm --model 125m --dir "$DIR"
    [ "$status" -eq 64 ]
    [ -z "$(ls -A "$DIR")" ]
}

@test "comm --nodes: one rank a node sends what has to go, by the interfaces' counters" {
    "$(dirname "$BENCH")/nodes" 2 1 0 "$DIR" true || skip "this machine makes no nodes"
    run --separate-stderr "$BENCH" comm --nodes 2 --node-ranks 1 --mbit 0 --json \
        --seconds 0.1 --dir "$DIR"
    echo "$output$stderr"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [ "$(jq -c '[.strategies[] | .strategy != "hsdp" and .ratio > 0.98 and .ratio < 1.05]' \
        <<<"$output")" = "[true,true,true,true,true,false,true,true,true]" ]
    within "value >= 1" internode_bytes_ratio
    within "value > 0" elastic_ratio_nodes internode_time_ratio
    [ "$(jq '[.strategies[].step_ms] | min > 0' <<<"$output")" = true ]
    run "$BENCH" comm --nodes 1
    [ "$status" -eq 64 ]
}
