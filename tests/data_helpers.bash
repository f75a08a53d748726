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

# until_done OUT MS COMMAND...: kills it again and again, at a random moment of its first
# MS ms and 5 more each time, until it has made OUT; sets kills
until_done() {
    local pid ms
    kills=0
    while [ ! -e "$1" ] || [ -e ".$1.tokenize" ]; do
        "${@:3}" >log 2>&1 &
        pid=$!
        ms=$((RANDOM % $2 + 5 * kills))
        sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
        kill -KILL $pid 2>/dev/null && kills=$((kills + 1))
        wait $pid 2>/dev/null || true
    done
}
