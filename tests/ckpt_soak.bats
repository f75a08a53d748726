#!/usr/bin/env bats
# The sections of the fault matrix that are quick enough for every day; all of
# it is `make soak-ckpt`. And the build that is shipped has no crash points.

setup() {
    BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
    SOAK=$BIN/../soak
    [ -x "$SOAK/victim" ] || skip "the soak programs were not built"
    "$BATS_TEST_DIRNAME/mpirun" 2 true || skip "no working mpirun"
}

matrix() { # SECTION...: all cells right, and how many
    local last
    "$BATS_TEST_DIRNAME/soak/matrix" "$SOAK" "$@" >"$BATS_TEST_TMPDIR/out" ||
        { cat "$BATS_TEST_TMPDIR/out" && return 1; }
    last=$(tail -n 1 "$BATS_TEST_TMPDIR/out")
    [[ $last == "fault matrix: "*" cells, 0 wrong" ]]
    cells=${last//[^0-9 ]/}
    read -r cells _ <<<"$cells"
}

@test "death at every crash point" {
    matrix crash points
    [ "$cells" -ge 50 ]
}

@test "a power cut at every crash point" {
    matrix cut
    [ "$cells" -ge 100 ]
}

@test "every call of a save fails once" {
    matrix faults
    [ "$cells" -ge 150 ]
}

@test "the same where ranks write one file together" {
    matrix together
    [ "$cells" -ge 100 ]
}

@test "a save makes few metadata calls" {
    matrix calls
    [ "$cells" -eq 2 ]
}

@test "exchanged, torn and missing files" {
    matrix damage
    [ "$cells" -ge 30 ]
}

@test "the matrix notices what is wrong" {
    # a victim that forgets what it committed
    mkdir "$BATS_TEST_TMPDIR/soak"
    cp "$SOAK/shim.so" "$BATS_TEST_TMPDIR/soak"
    cat >"$BATS_TEST_TMPDIR/soak/victim" <<END
#!/bin/sh
[ "\$1" != check ] || rm -rf "\$2/checkpoints"
exec "$(realpath "$SOAK")/victim" "\$@"
END
    chmod +x "$BATS_TEST_TMPDIR/soak/victim"
    run "$BATS_TEST_DIRNAME/soak/matrix" "$BATS_TEST_TMPDIR/soak" crash
    [ "$status" -eq 1 ]
    [[ $output == *"starts afresh (committed 2), WRONG"* ]]
    [[ ${lines[-1]} != *" 0 wrong" ]]
}

@test "the shipped programs have no crash points" {
    grep -q TESSERA_CRASH_AT "$BIN/../crash/bin/tessera-train"
    for program in "$BIN"/tessera*; do
        run grep -q TESSERA_CRASH_AT "$program"
        [ "$status" -eq 1 ]
    done
}
