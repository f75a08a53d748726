# shellcheck shell=bash disable=SC2034,SC2154 # variables of the bats files
# Shared by the bats files of tessera-data: each test in a folder of its own.

BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
DATA=$BIN/tessera-data

setup() {
    [ -x "$DATA" ] || skip "$DATA was not built"
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-$(basename "$BATS_TEST_FILENAME" .bats).XXXXXX")
    cd "$DIR" || return 1
    ! declare -F prepare >/dev/null || prepare
}

teardown() {
    cd / || return 1
    rm -rf "$DIR"
}

# fails CODE TEXT ARGUMENT...: one line on stderr, and the exit code; $SUBCOMMAND
# is what all of a file's calls ask for
fails() {
    local code=$1 text=$2
    shift 2
    run "$DATA" ${SUBCOMMAND:+"$SUBCOMMAND"} "$@"
    echo "status $status: $output"
    [ "$status" -eq "$code" ] && [[ "$output" == "tessera-data: "*"$text"* ]] &&
        [ "${#lines[@]}" -eq 1 ]
}
