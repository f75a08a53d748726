#!/usr/bin/env bats
# Death at every point of a save to the nodes' own folders, of single ranks and
# of all, and loading with a node's folder lost: the newest step that all nodes
# have comes back, with its values, out of the others' folders.

setup() {
    PROGRAM=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}/../tests/test_ckpt_local_n4
    FOLDER=$BATS_TEST_TMPDIR/nodes
    mkdir "$FOLDER"
    unshare --uts true || skip "host names can't be given here"
}

ranks() {
    timeout -k 5 600 "$BATS_TEST_DIRNAME/mpirun" 4 "$PROGRAM" "$@"
}

# dies POINT[:RANK]: saving step 3 over 1 and 2 ends there
dies() {
    rm -rf "$FOLDER"/*
    ranks save "$FOLDER" 1 && ranks save "$FOLDER" 2
    TESSERA_CRASH_AT=$1 ranks save "$FOLDER" 3 >"$BATS_TEST_TMPDIR/out" 2>&1 && {
        echo "$1 was not reached"
        return 1
    }
    return 0
}

# goes_on POINT STEP...: one of these steps is loaded, also without any one node;
# the next save works and is loaded.
goes_on() {
    local step lost
    for lost in none 0 1 2; do
        [ $lost = none ] || mv "$FOLDER/node$lost" "$FOLDER/away"
        step=$(ranks load "$FOLDER")
        echo "$1, node $lost lost: step $step"
        [[ " ${*:2} " == *" $step "* ]]
        [ $lost = none ] || mv "$FOLDER/away" "$FOLDER/node$lost"
    done
    ranks save "$FOLDER" 4
    [ "$(ranks load "$FOLDER")" = 4 ]
    [ "$(find "$FOLDER" -name 'step-*' | sort -u | wc -l)" -eq 3 ]
    [ -z "$(find "$FOLDER" -name '.t*')" ]
}

@test "before all nodes have agreed the old step comes back" {
    for point in local-folder-made local-shard-written:0 local-prepared:1 \
        local-prepared:2 local-folded local-folded:2 local-sealed:3 \
        local-verified local-verified:3; do
        dies $point
        goes_on $point 2
    done
}

@test "while nodes commit: the new step where all have it, else the old one" {
    for point in local-agreed local-agreed:2; do
        dies $point
        goes_on $point 2 3
    done
    dies local-committed:2
    goes_on local-committed:2 2 3
}

@test "when all nodes have it the new step comes back" {
    for point in local-tidied local-tidied:3; do
        dies $point
        goes_on $point 3
    done
}

@test "death while lost shards are made again: the next load makes them" {
    local point
    for point in local-rebuilding local-rebuilding:2 local-rebuilt; do
        rm -rf "$FOLDER"/*
        ranks save "$FOLDER" 1 8
        rm -r "$FOLDER/node0"
        if TESSERA_CRASH_AT=$point ranks load "$FOLDER"; then
            echo "$point was not reached"
            return 1
        fi
        [ "$(ranks load "$FOLDER")" = 1 ]
        # two ranks were on that node: both shards are on the others
        [ "$(find "$FOLDER" -name 'shard-0000[01]-*' | wc -l)" -eq 2 ]
    done
}

@test "two nodes of a group lost: nothing is loaded, and the log says so" {
    ranks save "$FOLDER" 1 8
    rm -r "$FOLDER/node0" "$FOLDER/node2"
    [ "$(ranks load "$FOLDER" 2>"$BATS_TEST_TMPDIR/err")" = -1 ]
    cat "$BATS_TEST_TMPDIR/err"
    grep "step 1 is not used: .* (2 of 3 members of its XOR group are)" \
        "$BATS_TEST_TMPDIR/err"
}
