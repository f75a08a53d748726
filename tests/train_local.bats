#!/usr/bin/env bats
# Training with node-local checkpoints on this machine, one node: deleted
# checkpoints stay deleted, and what only the node has can be scavenged.

load run_helpers

setup_file() {
    data_folder
    # 24 steps, the last one in the run directory; step 21 is on the node, too.
    train_local "$DIR/ref" >"$DIR/ref.log" 2>&1
    digest "$DIR/ref" >"$DIR/ref.digest"
}

train_local() { # RUN [key=value ...]
    train 2 "$1" checkpoint.interval=1dur checkpoint.local_interval=3ba \
        "checkpoint.local_dir=$1.node-%j" "${@:2}"
}

scavenge() { # RUN [OPTION ...]
    "$BIN/tessera-ckpt" scavenge "$1" --local "$1.node-%j" "${@:2}"
}

# A run whose checkpoints are on the node alone, as if it had been cut off
# before its last step.
cut_off() { # RUN
    train_local "$1"
    [ "$(basename "$(echo "$1".node-0/*/checkpoints/step-*)")" = step-000000021 ]
    rm -r "$1"/checkpoints/step-*
}

finishes() { # RUN [key=value ...]: with the bits of the undisturbed run
    train_local "$@" 2>&1 | tee "$1.log"
    [ "$(digest "$1")" = "$(cat "$DIR/ref.digest")" ]
}

@test "a run goes on from its node" {
    cut_off "$DIR/on"
    finishes "$DIR/on" log.level=info
    grep "step 21 came from the nodes' own folders" "$DIR/on.log"
}

@test "deleted checkpoints do not come back from the node" {
    cut_off "$DIR/afresh"
    rm -r "$DIR/afresh/checkpoints"
    finishes "$DIR/afresh" log.level=info
    grep "step 21 is another run's than the one in .*: ignored" \
        "$DIR/afresh.log"
    ! grep "came from" "$DIR/afresh.log"
    steps_logged "$DIR/afresh" 48
}

@test "nor does a deleted run" {
    cut_off "$DIR/again"
    rm -r "$DIR/again"
    finishes "$DIR/again"
    grep "step 21 is another run's" "$DIR/again.log"
    [ "$(wc -l <"$DIR/again/metrics.jsonl")" -eq 24 ]
}

@test "scavenge commits the node's step, which the run goes on from" {
    cut_off "$DIR/saved"
    ends 0 '' scavenge "$DIR/saved"
    [[ $output == "step 21: "*" from the nodes in "* ]]
    "$BIN/tessera-ckpt" verify "$DIR/saved/checkpoints/step-000000021"
    [ "$(cat "$DIR/saved/checkpoints/LATEST")" = step-000000021 ]
    grep '"event": "commit".*"scavenged": true' "$DIR/saved/ledger.jsonl" |
        grep '"attempt": 1, "step": 21,'
    [ ! -e "$DIR/saved/.lock" ]
    # as if on other nodes
    rm -r "$DIR/saved.node-0"
    finishes "$DIR/saved" log.level=info
    grep "step 21 came from the run directory" "$DIR/saved.log"
}

@test "scavenge leaves a run alone that has the step, or is another" {
    cut_off "$DIR/same"
    scavenge "$DIR/same"
    ends 0 '' scavenge "$DIR/same" --json
    [[ $(tr -d ' \n' <<<"$output") == '{"step":-1,"bytes":0,'* ]]
    rm -r "$DIR/same/checkpoints"
    ends 0 '' scavenge "$DIR/same"
    [ "$output" = "the nodes have nothing newer than the run directory" ]
    [ ! -e "$DIR/same/checkpoints/step-000000021" ]
}

@test "scavenge: damage on the only node is told, and nothing is committed" {
    cut_off "$DIR/torn"
    for shard in "$DIR"/torn.node-0/*/checkpoints/step-*/shard-*1-of-*; do
        size=$(stat -c %s "$shard")
        printf x | dd of="$shard" bs=1 seek=$((size / 2)) conv=notrunc
    done
    ends 0 "damaged: looking whether another node has it" scavenge "$DIR/torn"
    [[ $output == *"the nodes have nothing newer than the run directory" ]]
    [ -z "$(find "$DIR/torn/checkpoints" -name '*step*')" ]
}

@test "scavenge: one clear line for what it can't do" {
    ends 64 '' "$BIN/tessera-ckpt" scavenge "$DIR/ref"
    [ "$output" = "tessera-ckpt: scavenge needs --local DIR; see --help" ]
    ends 64 '' "$BIN/tessera-ckpt" scavenge "$DIR/none" --local "$DIR/x"
    [ "$output" = "tessera-ckpt: $DIR/none: no such run directory" ]
    ends 64 "must be an absolute path" "$BIN/tessera-ckpt" scavenge "$DIR/ref" --local x
    ends 64 '' "$BIN/tessera-ckpt" scavenge "$DIR/ref" --local "$DIR/x" --timeout no
    ends 64 '' "$BIN/tessera-ckpt" ls "$DIR/ref" --local "$DIR/x"
}
