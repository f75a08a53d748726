#!/usr/bin/env bats
# tests/soak_cluster in short, and the seeds that have failed once.

setup() {
    local why
    why=$("$BATS_TEST_DIRNAME/cluster" possible) || skip "no local cluster: $why"
}

# soaks SEED MINUTES [KINDS]: something was done to it, and its last line is as it must be.
# A seed is no order of moments: one that leaves something behind or drains another node is
# told and run again, and two such are a failure. Other bits are one at once.
soaks() {
    local try
    for try in 1 2; do
        ONLY=${3:-} run "$BATS_TEST_DIRNAME/soak_cluster" "$1" "$2" 3>&-
        echo "$output"
        echo "# seed $1: ${lines[-1]}" >&3
        [[ ! ${lines[-1]} =~ ^"soak: PASS faults="[1-9][0-9]*" kinds="[0-9]+" attempts="[0-9]+" identical=yes wrong_drains=0 leftovers=0 seconds="[0-9]+$ ]] ||
            return "$status"
        [[ ${lines[-1]} == "soak: FAIL "*" identical=yes "* ]] || return 1
    done
    [ "$try" -eq 1 ]
}

@test "90 seconds of faults of every kind: the same bits, nothing left" {
    soaks 24 1.5
}

# Two at a time, as each waits for the most part.
@test "seeds that have failed once" {
    local seed minutes kinds out
    while read -r seed minutes kinds; do
        [[ $seed != '#'* ]] || continue
        [ "$(jobs -rp | wc -l)" -lt 2 ] || wait -n || :
        out="$BATS_TEST_TMPDIR/$seed $kinds.out"
        { soaks "$seed" "$minutes" "$kinds" && touch "${out%.out}.passed"; } </dev/null >"$out" 2>&1 &
    done <"$BATS_TEST_DIRNAME/soak_cluster.seeds"
    wait
    for out in "$BATS_TEST_TMPDIR"/*.out; do
        [ -e "${out%.out}.passed" ] || { cat "$out" && false; }
    done
}

@test "what a machine does not have is said" {
    run env PATH="${PATH//\/sbin/}" "$BATS_TEST_DIRNAME/soak_cluster" kinds
    grep 'kind frozen: .* cannot be had here: no .*, no fsfreeze' <<<"$output"
}
