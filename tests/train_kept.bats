#!/usr/bin/env bats
# checkpoint.keep_state on nodes of this machine: deaths at moments drawn at random,
# what of the nodes' memory is not taken, and a save that nothing waits for.

load run_helpers
load kept_helpers

setup_file() {
    data_folder
    kept_nodes || return 0
    sixteen
    train 1 "$DIR/ref" >"$DIR/ref.log" 2>&1
    digest "$DIR/ref" >"$DIR/wanted"
    # the pair of nodes has two whole steps, newer than the run directory's
    dies_behind 7
    dies_kept 2 local-tidied:1
    save_all two
    # the newer one again, by three
    rm -r "$NODES"/node?/kept.*/*/checkpoints/"$(step_name two 2)"
    dies_kept 3 local-tidied:1
    save_all three
    # another run's, and this run when it has ended
    restore_all two
    rm -rf "$DIR/run" "$NODES"/node?
    dies_behind 7
    save_all other
    restore_all two
    kept 2 "$DIR/run"
    waited 0
    save_all ended
}

teardown_file() {
    rm -rf "$DIR" "${NODES:-/none}"
}

setup() {
    [ -n "${NODES:-}" ] || skip "nodes can't be made up here"
    sixteen
}

# shellcheck disable=SC2034 # of run_helpers
sixteen() {
    SHORT=(train.max_duration=16ba train.global_batch=6 parallel.slots=6
        data.seq_len=64 hardware.threads=1 eval.interval=0ba eval.samples=8)
}

# dies_behind STEPS: an attempt that ends when so many have ended
dies_behind() {
    kept 2 "$DIR/run"
    wait_for 120 steps_logged "$DIR/run" "$1"
    kill -KILL "$(cat "$NODES/pid1")"
    waited '!0'
}

# dies_kept RANKS POINT: an attempt that ends at its first step that is kept
dies_kept() {
    TRAIN=$BIN/../crash/bin/tessera-train TESSERA_CRASH_AT=$2 kept "$1" "$DIR/run"
    waited '!0'
}

save_all() { # NAME
    mkdir "$DIR/$1"
    cp -a "$DIR/run" "$NODES"/node? "$DIR/$1"
}

restore_all() { # NAME
    rm -rf "$DIR/run" "$NODES"/node?
    cp -a "$DIR/$1/run" "$DIR"
    cp -a "$DIR/$1"/node? "$NODES"
}

# step_name NAME 1|2: of the older, or the newer
step_name() {
    basename "$(echo "$DIR/$1"/node0/kept.*/*/checkpoints/step-* | cut -d' ' -f"$2")"
}

# shellcheck disable=SC2086 # it may be a pattern
# at NODE [NAME]: the newer step there, or a file of it
at() {
    echo "$NODES/node$1"/kept.*/*/checkpoints/"$(step_name two 2)${2:+/}"${2-}
}

flip() { # FILE: a byte in its middle
    local size byte
    size=$(stat -c %s "$1")
    byte=$(od -An -tu1 -j $((size / 2)) -N 1 "$1")
    # shellcheck disable=SC2059
    printf "\\x$(printf %x $((255 - byte)))" |
        dd of="$1" bs=1 seek=$((size / 2)) conv=notrunc status=none
}

# goes_on STEP [TEXT]: from there, says so, and ends with the bits of the undisturbed run
goes_on() {
    kept 2 "$DIR/run"
    waited 0 || { cat "$DIR/run.log"; return 1; }
    echo "$1 wanted, $(came_from "$DIR/run")"
    [ "$(came_from "$DIR/run")" = "$1" ]
    grep -q -- "${2:-}" "$DIR/run.log"
    [ "$(digest "$DIR/run")" = "$(cat "$DIR/wanted")" ]
    [ -z "$(find "$NODES"/node? -mindepth 1)" ]
}

@test "deaths at random: one finished step is computed again at most, none is lost" {
    run "$BATS_TEST_DIRNAME/kept" 3 "${SEED:-11}"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"kept: PASS seeds=3 deaths="* ]]
    ASYNC=false run "$BATS_TEST_DIRNAME/kept" 1 "${SEED:-2}"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "what is damaged, older, another run's or another layout's is not taken" {
    local newer older
    newer=$(step_name two 2) older=$(step_name two 1)
    newer=$((10#${newer#step-})) older=$((10#${older#step-}))
    [ $newer -eq $((older + 1)) ] && [ $older -gt 5 ]
    restore_all two
    goes_on $newer "came from the nodes' own folders"
    # a damaged byte: of a shard, of that and its parity, of the manifest
    restore_all two
    flip "$(at 0 'shard-*')"
    goes_on $newer "counts as lost"
    restore_all two
    flip "$(at 0 'shard-*')" && flip "$(at 1 'parity-*')"
    goes_on $older "damaged"
    restore_all two
    flip "$(at 0 MANIFEST.json)" && flip "$(at 1 MANIFEST.json)"
    goes_on $older
    # another layout's: of the same step the shard, and all that a node has
    restore_all two
    cp "$DIR"/three/node0/kept.*/*/checkpoints/"$(step_name two 2)"/shard-* \
        "$(at 0 'shard-*')"
    goes_on $newer
    restore_all two
    rm "$(at 0)"/*
    cp "$DIR"/three/node0/kept.*/*/checkpoints/"$(step_name two 2)"/* "$(at 0)"
    goes_on $older
    # another run's, and signed by another's secret
    restore_all two
    rm -r "$NODES"/node?
    cp -a "$DIR"/other/node? "$NODES"
    goes_on 5 "another run's than the one in"
    restore_all two
    rm "$DIR/run/.secret"
    goes_on 5 "not signed with the secret"
    # older than the run directory's
    restore_all two
    cp -a "$DIR"/ended/run/checkpoints/step-*15 "$DIR/run/checkpoints"
    goes_on 15 "came from the run directory"
}

@test "no step waits for a save into the run directory" {
    rm -rf "$DIR/run" "$NODES"/node?
    TRAIN=$BIN/../crash/bin/tessera-train TESSERA_CRASH_AT=manifest-written \
        TESSERA_CRASH_WAIT=600 kept 2 "$DIR/run" train.max_duration=9ba \
        checkpoint.timeout_s=1200
    wait_for 120 steps_logged "$DIR/run" 8
    [ -z "$(find "$DIR/run/checkpoints" -name 'step-*')" ]
    [ "$(kept_steps 0 | tail -n 1)" -ge 7 ]
    kill -KILL "$(cat "$NODES/pid0")"
    waited '!0'
    rm -r "$NODES/node0"
    kept 2 "$DIR/run" train.max_duration=9ba
    waited 0
    [ "$(came_from "$DIR/run")" -ge 7 ]
}

@test "a node that stops amid a save is named when it is missed, not when the save is" {
    rm -rf "$DIR/run" "$NODES"/node?
    TRAIN=$BIN/../crash/bin/tessera-train TESSERA_CRASH_AT=local-prepared:1 \
        TESSERA_CRASH_STOP=1 kept 2 "$DIR/run" checkpoint.async=false \
        checkpoint.timeout_s=1e5 parallel.lost_s=3
    wait_for 120 gone "$pid" || { kill -KILL "$(cat "$NODES/pid0")"; false; }
    waited '!0'
    grep 'no answer for 3 s from rank 1 (node1)' "$DIR/run.log"
}

@test "a folder of a node that is no memory is told of" {
    local fs told command
    for folder in "$DIR/disk.%j" "$NODES/memory.%j"; do
        rm -rf "$DIR/run"
        fs=$(stat -f -c %T "$(dirname "$folder")")
        command_of 1 "$DIR/run" "checkpoint.local_dir=$folder" \
            checkpoint.keep_state=true train.max_duration=2ba log.level=info
        "${command[@]}" >"$DIR/run.log" 2>&1
        told=$(grep -c 'is no memory' "$DIR/run.log") || true
        echo "$fs: $told"
        [ "$told" -eq "$([ "$fs" = tmpfs ] && echo 0 || echo 1)" ]
    done
    [ "$fs" = tmpfs ]
}
