#!/usr/bin/env bats
# Ctrl-C, other signals and the file STOP: answered at once, heard between the
# microbatches of a long step, and recorded as what they are.

load run_helpers

setup_file() {
    data_folder
    train 1 "$DIR/whole" "${SLOW[@]}"
    digest "$DIR/whole" >"$DIR/whole.digest"
}

# Steps of 192 microbatches; nothing is saved but the last one and at a stop.
SLOW=(train.global_batch=192 train.microbatch=1 train.max_duration=3ba
    scheduler.warmup=1ba checkpoint.interval=100ba eval.interval=0ba
    log.level=info)

last_stop() { # DIR FILTER
    jq -sr "map(select(.event == \"stop\")) | last | $2" "$1/ledger.jsonl"
}

@test "Ctrl-C twice on a long step: answered, given up, saved, the same bits" {
    local dir=$DIR/once
    start 1 "$dir" "${SLOW[@]}" train.profile=2ba-3ba
    wait_for 60 steps_logged "$dir" 1
    kill -INT "$pid"
    sleep 0.02
    kill -INT "$pid" # a terminal and a parent send it both
    waited 85
    [ "$(basename "$(newest "$dir")")" = step-000000001 ]
    grep -q 'Ctrl-C: ending with a checkpoint of the last finished step' "$dir.log"
    grep -q 'step 2 is given up after' "$dir.log"
    tail -n 1 "$dir.log" | grep -q 'ended after step 1 with code 85: stopped by SIGINT (Ctrl-C); the same command goes on'
    [ "$(last_stop "$dir" '[.step, .code, .reason] | map(tostring) | join(" ")')" = \
        "1 85 stopped by SIGINT (Ctrl-C)" ]
    steps_logged "$dir" 1
    cp -r "$dir" "$DIR/base"
    train 1 "$dir" "${SLOW[@]}"
    [ "$(digest "$dir")" = "$(cat "$DIR/whole.digest")" ]
}

@test "one of two ranks is asked amid a step: all give it up together" {
    local strategy dir
    for strategy in zero1 zero2; do
        dir=$DIR/two-$strategy
        cp -r "$DIR/base" "$dir"
        start 2 "$dir" "${SLOW[@]}" parallel.strategy="$strategy"
        wait_for 60 grep -q 'computing step 2: 96 microbatches' "$dir.log"
        kill -TERM "$(ranks_of "$pid" | tail -n 1)"
        ! wait "$pid"
        [ "$(last_stop "$dir" '[.step, .code, .reason] | map(tostring) | join(" ")')" = \
            "1 85 stopped by SIGTERM" ]
        grep -q 'step 2 is given up after' "$dir.log"
        train 2 "$dir" "${SLOW[@]}" parallel.strategy="$strategy"
        [ "$(digest "$dir")" = "$(cat "$DIR/whole.digest")" ]
    done
}

@test "a step is given up while only one rank knows how the save before it ended" {
    local dir=$DIR/skew code=0
    # only this build has crash points
    TRAIN=$BIN/../crash/bin/tessera-train TESSERA_CRASH_AT=result-agreed:1 \
        TESSERA_CRASH_WAIT=3 start 2 "$dir" "${SLOW[@]}" \
        checkpoint.interval=1ba train.global_batch=1024
    wait_for 60 grep -q '"event": *"commit"' "$dir/ledger.jsonl"
    kill -TERM "$(ranks_of "$pid" | tail -n 1)"
    wait "$pid" || code=$?
    [ "$code" -eq 85 ]
    grep -q 'step 2 is given up after' "$dir.log"
    [ "$(last_stop "$dir" '[.step, .code, .reason] | map(tostring) | join(" ")')" = \
        "1 85 stopped by SIGTERM" ]
}

@test "the file STOP ends a run, and its next start, until it is removed" {
    local dir=$DIR/file code
    start 1 "$dir" train.global_batch=64
    wait_for 60 steps_logged "$dir" 2
    touch "$dir/STOP"
    for again in 1 2; do
        waited 85
        [[ $(last_stop "$dir" .reason) == *"stopped by the file STOP in the run directory, remove it to go on"* ]]
        start 1 "$dir" train.global_batch=64
    done
    wait "$pid" || true
    rm "$dir/STOP"
    train 1 "$dir" train.global_batch=64
    [ "$(last_stop "$dir" .reason)" = "train.max_duration = 24ba reached" ]
}
