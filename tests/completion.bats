#!/usr/bin/env bats
# jobs/completion: what Tab offers comes from the programs' own tables.

setup() {
    PATH=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}:$PATH
    # shellcheck source=jobs/completion/tessera
    . "$BATS_TEST_DIRNAME/../jobs/completion/tessera"
    # shellcheck disable=SC2317 # the completion calls it
    compopt() { options+=" $*"; }
    options=
}

# offers WORD...: what there is for the last of them
offers() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _tessera
    echo "$*: ${COMPREPLY[*]} $options"
}

# is WANT WORD...
is() {
    offers "${@:2}"
    [ "${COMPREPLY[*]}" = "$1" ]
}

@test "commands, what follows them, options" {
    is train tessera tr
    is "pin prune" tessera-ckpt p
    is show tessera ckpt sh
    is --gpu tessera plan --gp
    is --nodes tessera submit --no
    is tokenize tessera-data tok
    is "" tessera help tra
    is "" tessera-none x
    offers tessera ""
    [[ " ${COMPREPLY[*]} " == *" chat "*" submit "*" train "* ]]
}

@test "settings, and their choices, as a shell with = or without it cuts words" {
    is optimizer.name= tessera-train optimizer.na
    [[ $options == *nospace* ]]
    is "zero1 zero2 zero3" tessera train run.cfg parallel.strategy = z
    offers tessera train parallel.strategy =
    [[ ${COMPREPLY[*]} == "auto ddp"* ]]
    is "parallel.strategy=zero1 parallel.strategy=zero2 parallel.strategy=zero3" \
        tessera-train parallel.strategy=z
    is "" tessera-train no_such.setting = a
}

@test "every program that is there has a completion" {
    for program in $(compgen -c tessera- | sort -u); do
        complete -p "$program" | grep -F _tessera
    done
    complete -p tessera
    [ "$(complete -p | grep -c _tessera)" -ge 15 ]
}
