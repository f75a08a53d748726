#!/usr/bin/env bats
# tessera-hash has README's digests with every kernel set and on several ranks;
# tests/hash tells what differs; and wrong command lines are refused.

BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
HASH=$BIN/tessera-hash
MPIRUN=$BATS_TEST_DIRNAME/mpirun

# A program that gives one digest with its first kernel set and $OTHER with the
# second, and a README that has the first.
setup() {
    export BUILD=$BATS_TEST_TMPDIR HASH_README=$BATS_TEST_TMPDIR/README WITH_MPI=0
    mkdir -p "$BUILD/bin"
    cat >"$BUILD/bin/tessera-hash" <<'END'
#!/bin/bash
case $* in
--help) echo "kernel sets here: one other" ;;
*=other*) echo "hash: mpt $OTHER ok" ;;
*) echo "hash: mpt 0123456789abcdef ok" ;;
esac
echo "hash: PASS 1 digests"
END
    chmod +x "$BUILD/bin/tessera-hash"
    echo '| `mpt` | `0123456789abcdef` | what it is |' >"$HASH_README"
    export HASH_HEADER=$BATS_TEST_TMPDIR/digests.h
    echo '    { "mpt", "ffffffffffffffff" },' >"$HASH_HEADER"
}

# hash_is CODE [--update]: how tests/hash ends
hash_is() {
    run "$BATS_TEST_DIRNAME/hash" --short "${@:2}"
    echo "$output"
    [ "$status" -eq "$1" ]
}

@test "every kernel set, and two ranks: README's digests" {
    unset HASH_README
    BUILD=$(dirname "$BIN") WITH_MPI=1 hash_is 0
    [[ "${lines[-1]}" =~ ^hash:\ PASS\ [0-9]+\ digests$ ]]
    [[ "$output" == *"hash: mpt "*" ok"* ]]
}

@test "the program knows README's digests" {
    cd "$BATS_TEST_DIRNAME/.."
    diff <(sed -nE 's/^\| `([a-z-]+)` \| `([0-9a-f]{16})` \|.*/\1 \2/p' README.md) \
        <(grep -oE '"[a-z-]+", "[0-9a-f]{16}"' src/cmd/hash_digests.h | tr -d '",')
    run "$HASH" mpt llama hardware.threads=1
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 3 ]
    [[ "${lines[1]}" =~ ^hash:\ llama\ [0-9a-f]{16}\ ok$ ]]
    [ "${lines[2]}" = "hash: PASS 2 digests" ]
}

# waits SETTING ...: how long idle threads spin in the program, by GCC's runtime
waits() {
    env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "$@" \
        "$HASH" --help 2>&1 | sed -n "s/^.*GOMP_SPINCOUNT = '\(.*\)'$/\1/p" | tail -n 1
}

@test "idle threads spin for a moment, or as they are told" {
    [ -n "$(waits)" ] || skip "another OpenMP"
    [ "$(waits)" -eq 2000 ]
    [ "$(waits OMP_WAIT_POLICY=passive)" -eq 2000 ]
    [ "$(waits GOMP_SPINCOUNT=77)" -eq 77 ]
    [ "$(waits OMP_WAIT_POLICY=active)" -gt 1000000 ]
    [ "$(waits OMP_WAIT_POLICY=active GOMP_SPINCOUNT=5)" -eq 5 ]
}

@test "one digest everywhere passes" {
    OTHER=0123456789abcdef hash_is 0
    [[ "$output" == *"hash: several ranks skipped: this build has no MPI"* ]]
    [ "${lines[-2]}" = "hash: mpt 0123456789abcdef ok" ]
    [ "${lines[-1]}" = "hash: PASS 1 digests" ]
}

@test "another digest of one kernel set fails, and is not written" {
    before=$(cat "$HASH_README")
    OTHER=1111111111111111 hash_is 1
    [[ "$output" == *"hash: mpt 1111111111111111 differs, README has 0123456789abcdef (this build, other, threads: 1)"* ]]
    [[ "$output" != *" ok"* ]]
    [[ "$output" != *PASS* ]]
    OTHER=1111111111111111 hash_is 1 --update
    [ "$(cat "$HASH_README")" = "$before" ]
}

@test "a style that README does not have fails; where all agree it is written" {
    export OTHER=0123456789abcdef
    echo '| `mpt` | `ffffffffffffffff` | what it is |' >"$HASH_README"
    hash_is 1
    hash_is 0 --update
    [ "$(cat "$HASH_README")" = '| `mpt` | `0123456789abcdef` | what it is |' ]
    [ "$(cat "$HASH_HEADER")" = '    { "mpt", "0123456789abcdef" },' ]
    echo nothing >"$HASH_README"
    hash_is 1
    [[ "$output" == *"README has none"* ]]
    hash_is 64 --update
}

@test "a program that fails has no digests" {
    printf '#!/bin/sh\necho "kernel sets here: one"\necho no >&2; exit 93\n' \
        >"$BUILD/bin/tessera-hash"
    hash_is 1
    [[ "$output" == *"threads: 1: no digests:"*"no"* ]]
}

@test "the command line" {
    run "$HASH" nothing
    [ "$status" -eq 64 ]
    [[ "$output" == *"no style 'nothing'"* ]]
    run "$HASH" train.seed=3
    [ "$status" -eq 64 ]
    [[ "$output" == *"'train.seed=3': only settings that leave the bits alone"* ]]
    run "$HASH" --wrong
    [ "$status" -eq 64 ]
    run "$HASH" mpt hardware.kernel_set=best
    [ "$status" -ne 0 ]
    [[ "$output" == *"use auto or one of: "* ]]
    run "$HASH" --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"styles: mpt "*"kernel sets here: "* ]]
}

@test "more ranks than slots are refused, and train alone with --alone" {
    "$MPIRUN" 2 true || skip "no working mpirun"
    run "$MPIRUN" 5 "$HASH" mpt hardware.threads=1
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"5 ranks: at most 4 train together; with --alone"* ]]
    run "$MPIRUN" 5 "$HASH" --alone mpt hardware.threads=1
    echo "$output"
    [ "$(grep -c '^hash: mpt [0-9a-f]\{16\} ' <<<"$output")" -eq 5 ]
}
