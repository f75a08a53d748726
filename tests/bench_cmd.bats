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
    for name in step data ckpt memory context; do
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

@test "step: a small model, one object, no page faults after the first step" {
    run --separate-stderr "$BENCH" step --model 10m --json --seconds 0.1 \
        --dir "$DIR"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *'"model": "10m"'* ]]
    for key in threads rounds step_ms bound_ms ratio elastic_ms elastic_ratio; do
        awk -v value="$(number $key)" 'BEGIN { exit !(value > 0) }'
    done
    awk -v value="$(number faults)" 'BEGIN { exit !(value < 50) }'
    ! [[ "$output" == *moe_ratio* ]]
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
