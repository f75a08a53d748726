# shellcheck shell=bash disable=SC2034,SC2154 # variables of bats and its files
# For tests of tessera-health, whose check() calls it with thresholds of theirs.

HEALTH=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}/tessera-health

# field KEY: a string at the top of the JSON line in $output
field() {
    sed -n "s/^[^[]*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$output"
}

# gives STATUS CODE ARGUMENT...: how the check ends; $output is its JSON line
gives() {
    run check "${@:3}" --json
    [ "$status" -eq "$1" ]
    [ "$(field code)" = "$2" ]
}
