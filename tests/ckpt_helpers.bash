# shellcheck shell=bash disable=SC2034 # variables of the bats files
# Shared by the bats files of checkpoints that the C tests' program saves.

BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
CKPT=$BIN/tessera-ckpt
SAVER=$BIN/../tests/test_ckpt_n1234
MPIRUN=$BATS_TEST_DIRNAME/mpirun

# need_saver [ranks] [h5dump] [python3]: else the test is skipped
need_saver() {
    [ -x "$SAVER" ] || skip "test_ckpt_n1234 was not built"
    local need
    for need in "$@"; do
        if [ "$need" = ranks ]; then
            "$MPIRUN" 2 true || skip "no working mpirun"
        else
            command -v "$need" >/dev/null || skip "$need is not installed"
        fi
    done
    DIR=$BATS_TEST_TMPDIR
}

# damage FILE OFFSET: changes one byte
damage() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf '%b' "\\0$(printf %o $((byte ^ 255)))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
