#!/usr/bin/env bats
# The cells of tests/matrix for every day, all of it is `make matrix`; and that
# it calls broken what is.

MATRIX=$BATS_TEST_DIRNAME/matrix

setup() {
    "$BATS_TEST_DIRNAME/mpirun" 2 true || skip "no working mpirun"
}

@test "strategies on 1 to 8 ranks are what the table says" {
    run "$MATRIX" --small
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "${lines[-1]}" =~ ^matrix:\ ([0-9]+)\ cells,\ .*,\ 0\ broken$ ]]
    [ "${BASH_REMATCH[1]}" -ge 12 ]
}

@test "a cell that is not what the table says is broken" {
    export MATRIX_TABLE=$BATS_TEST_TMPDIR/table
    cat >"$MATRIX_TABLE" <<'END'
# WHEN FAMILY STRATEGY RANKS CLASS DETAIL
small mpt-tiny zero2 1 identical
small mpt-tiny zero3 1 refused any reason
small mpt-tiny hsdp 3 identical
small mpt-tiny hsdp 1 refused another reason
small mpt-tiny fast 2 identical
small mpt-tiny bf16 2 tolerance 1e-9
END
    run "$MATRIX" --small
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "matrix: 6 cells, 1 identical, 0 within tolerance, 0 refused, 5 broken" ]
    [[ "$output" == *"zero3 on 1: broken     should be refused: not refused, status 0"* ]]
    [[ "$output" == *"hsdp  on 3: broken     should be identical: status 64: "*"does not divide the 3 ranks"* ]]
    [[ "$output" == *"hsdp  on 1: broken     should be refused: refused with: "* ]]
    [[ "$output" == *"fast  on 2: broken     should be identical: the digest is another"* ]]
    [[ "$output" == *"bf16  on 2: broken     should be tolerance: weights off by "* ]]
}

@test "a cell whose ranks are on other nodes than it says is broken" {
    unshare --uts true || skip "no node has a name of its own"
    export MATRIX_TABLE=$BATS_TEST_TMPDIR/table
    echo "small mpt-tiny zero2 1,1 identical" >"$MATRIX_TABLE"
    printf '#!/bin/sh\nshift\nexec "$@"\n' >"$BATS_TEST_TMPDIR/unshare"
    printf '#!/bin/sh\n' >"$BATS_TEST_TMPDIR/hostname"
    chmod +x "$BATS_TEST_TMPDIR"/{unshare,hostname}
    PATH=$BATS_TEST_TMPDIR:$PATH run "$MATRIX"
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"on 1,1: broken     should be identical: the nodes are others than 1,1"* ]]
    printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/unshare"
    PATH=$BATS_TEST_TMPDIR:$PATH run "$MATRIX"
    [ "$status" -eq 64 ]
    echo "small mpt-tiny zero2 1 identical" >>"$MATRIX_TABLE"
    PATH=$BATS_TEST_TMPDIR:$PATH run "$MATRIX"
    [[ "$output" == *"cells over nodes are left out"*"1 cells, 1 identical"* ]]
}

@test "cells are picked by pattern, and a wrong pattern is no success" {
    run "$MATRIX" 'mpt-tiny/hsdp/[13]$'
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "matrix: 2 cells, 0 identical, 0 within tolerance, 2 refused, 0 broken" ]
    run "$MATRIX" zero9
    [ "$status" -eq 64 ]
}
