#!/usr/bin/env bats
# tessera-bench: its command line, and one benchmark that is short.
bats_require_minimum_version 1.5.0

setup() {
    BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
    BENCH=$BIN/tessera-bench
    [ -x "$BENCH" ] || skip "$BENCH was not built"
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-bench-cmd.XXXXXX")
}

teardown() {
    rm -rf "$DIR"
}

# number KEY: its value in $output
number() {
    [[ "$output" =~ \"$1\":\ *([-+.e0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

@test "--help names every benchmark" {
    run "$BENCH" --help
    [ "$status" -eq 0 ]
    for name in step gemm infer data ckpt memory context; do
        [[ "$output" == *"  $name "* ]]
    done
}

@test "what does not exist is refused with the choice" {
    run "$BENCH" stepp --dir "$DIR"
    [ "$status" -eq 64 ]
    [[ "$output" == *"stepp"*"memory, context and comm"* ]]
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
        for key in decode_tokens_per_s decode_gbps read_gbps decode_ratio \
            prompt_tokens_per_s prompt_gflops prompt_ratio; do
            awk -v value="$(number ${form}_$key)" 'BEGIN { exit !(value > 0) }'
        done
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
    for key in threads rounds step_ms gflop peak_gflops triad_gbps elastic_ms \
        elastic_ratio; do
        awk -v value="$(number $key)" 'BEGIN { exit !(value > 0) }'
    done
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
    # by another library where there is one, and never without its name
    if [[ "$output" == *'"kept": true'* ]]; then
        [[ "$output" == *'"bound_library": "'*' kernels'*/* ]]
        awk -v value="$(number bound_ms)" 'BEGIN { exit !(value > 0) }'
        awk -v value="$(number ratio)" 'BEGIN { exit !(value > 0) }'
    else
        [[ "$output" == *'"bound_library": "none'* ]]
        ! [[ "$output" == *'"bound_ms"'* || "$output" == *'"ratio"'* ]]
    fi
    awk -v value="$(number faults)" 'BEGIN { exit !(value < 50) }'
    ! [[ "$output" == *moe_ratio* ]]
}

# gemm FAULT: few shapes, with a library of that fault where BLIS would be
gemm() {
    [ -e "$BIN/../fake/blas/libblis.so.4" ] || skip "the libraries were not built"
    BLAS_FAKE=$1 LD_LIBRARY_PATH=$BIN/../fake/blas run --separate-stderr \
        "$BENCH" gemm --model moe --tokens 16 --json --seconds 0.1 --dir "$DIR"
    echo "$output"
    echo "$stderr"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
}

@test "gemm: every shape beside the peak and beside the libraries that open" {
    command -v python3 >/dev/null || skip "python3 is not installed"
    gemm none
    python3 - "$output" <<'EOF'
import json, sys
out = json.loads(sys.argv[1])
assert len(out["shapes"]) == 9 and out["rounds"] >= 3
fractions, of_peers = [], []
for shape in out["shapes"]:
    assert shape["form"] in ("NT", "NN", "TN")
    assert shape["groups"] * shape["m"] * shape["n"] * shape["k"] > 0
    fraction = shape["ours_gflops"] / shape["peak_gflops"]
    assert 0 < shape["peak_fraction"] < 1.05
    assert abs(shape["peak_fraction"] / fraction - 1) < 0.001
    assert shape["peers"]["blis"] > 0
    best = shape["ours_gflops"] / max(shape["peers"].values())
    assert abs(shape["best_peer_fraction"] / best - 1) < 0.001
    fractions.append(shape["peak_fraction"])
    of_peers.append(shape["best_peer_fraction"])
assert out["peak_fraction_min"] == min(fractions)
assert out["peak_fraction_median"] == sorted(fractions)[4]
assert out["best_peer_fraction_min"] == min(of_peers)
assert out["best_peer_fraction_median"] == sorted(of_peers)[4]
for way in out["attention"]:
    assert way["tokens"] == 16 and 0 < way["peak_fraction"] < 1.05
# one of its choices of kernels is kept, and what it is stands there
blis = [l for l in out["libraries"] if l["library"] == "blis"]
kept = [l for l in blis if l["kept"]]
assert len(kept) == 1 and kept[0]["version"] == "BLIS 0.0-fake"
assert kept[0]["core"] in ("generic", "haswell") and kept[0]["gflops"] > 0
assert all("it has no kernels 'skx'" in l["problem"] for l in blis
           if l["forced"] == "skx")
assert all(l["core"] == "haswell" for l in blis if l["forced"] == "haswell")
EOF
}

@test "gemm: a library that multiplies wrong, or dies, is no peer" {
    for fault in wrong rounded dead; do
        gemm $fault
        ! [[ "$output" == *'"blis": '* ]]
        if [ $fault = dead ]; then
            [[ "$output" == *'"problem": "its process has ended"'* ]]
        else
            [[ "$output" == *'"problem": "its product NT 256 x 2304 x 768 is wrong"'* ]]
        fi
        [[ "$stderr" == *"no blis: its pro"* ]]
    done
}

@test "gemm: no library hangs where address space is short" {
    space=300000
    (ulimit -v $space && timeout 60 "$BENCH" --version) ||
        skip "the program wants more than $space KiB"
    run --separate-stderr timeout 120 bash -c "ulimit -v $space; exec $BENCH \
        gemm --model moe --tokens 16 --threads 2 --json --seconds 0.1 --dir $DIR"
    echo "$output"
    echo "$stderr"
    [ "$status" -eq 0 ]
    [[ "$output" == *'"problem": "ulimit -v or -d leaves '* ]]
    [[ "$output" == *'"peers": {}'* && "$output" != *best_peer_fraction* ]]
}

@test "gemm: another kernel set, and what does not exist" {
    run "$BENCH" gemm --kernel-set sse9 --dir "$DIR"
    [ "$status" -ne 0 ]
    [[ "$output" == *"kernel set 'sse9' is not in this build"* ]]
    run "$BENCH" gemm --mkl "$DIR/none" --dir "$DIR"
    [ "$status" -eq 64 ]
    [[ "$output" == *"--mkl $DIR/none: there is no libmkl_rt.so"* ]]
    run "$BENCH" gemm --model 7b --dir "$DIR"
    [ "$status" -eq 64 ]
    run "$BENCH" data --tokens 64 --dir "$DIR"
    [ "$status" -eq 64 ]
    [[ "$output" == *"--kernel-set and --tokens are for gemm, not for data"* ]]
    run "$BENCH" gemm-peer
    [ "$status" -eq 64 ]
    # nothing stays
    [ -z "$(ls -A "$DIR")" ]
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
    for key in one_rank_ms one_rank_fast_ms zero1_ms zero1_fast_ms ddp_ms \
        zero3_ms ranks_ratio zero3_ratio elastic_ratio_parallel \
        elastic_ratio_one_rank; do
        awk -v value="$(number $key)" 'BEGIN { exit !(value > 0) }'
    done
    awk -v a="$(number ddp_ms)" -v b="$(number zero3_ms)" \
        -v ratio="$(number zero3_ratio)" \
        'BEGIN { exit !(ratio > 0.999 * a / b && ratio < 1.001 * a / b) }'
    [ "$(ls -A "$DIR")" = $'bench-parallel\nparallel' ]
    [ "$(<"$DIR/bench-parallel/mine")" = mine ]
}
