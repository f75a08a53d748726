#!/usr/bin/env bats
# A file system that is full for a while: a run waits for it where it must and
# loses nothing; one that can't be written at all ends the run for good.

load run_helpers

setup_file() {
    data_folder
}

setup() {
    mkdir -p "$DIR/small"
    mount -t tmpfs -o size=32m tessera-test "$DIR/small" ||
        skip "can't mount a small tmpfs"
}

teardown() {
    umount -l "$DIR/small" 2>/dev/null || true
}

fill() {
    head -c 64M /dev/zero >"$DIR/small/ballast" 2>/dev/null || true
}

LENGTH=(train.max_duration=120ba checkpoint.interval=12ba eval.interval=21ba
    log.level=info tracking.tensorboard=true)

@test "full in the midst of a run: the same weights, no line lost, one attempt" {
    train 1 "$DIR/calm" "${LENGTH[@]}"
    command_of 1 "$DIR/small/run" "${LENGTH[@]}"
    "${command[@]}" >"$DIR/log" 2>&1 3>&- &
    pid=$!
    wait_for 100 steps_logged "$DIR/small/run" 5
    kill -STOP "$pid"
    fill
    kill -CONT "$pid"
    # to the last step, whose checkpoint finds no room either
    wait_for 100 grep 'step 120 is the last one: trying again' "$DIR/log"
    rm "$DIR/small/ballast"
    wait "$pid"
    grep 'metrics.jsonl: .*its lines are kept until there is room' "$DIR/log"
    grep 'metrics.jsonl: there is room again' "$DIR/log"
    [ "$(digest "$DIR/small/run")" = "$(digest "$DIR/calm")" ]
    for file in metrics ledger eval; do
        jq -es . "$DIR/small/run/$file.jsonl" >/dev/null # no torn line
    done
    [ "$(step_losses "$DIR/small/run")" = "$(step_losses "$DIR/calm")" ]
    [ "$(jq -r .step "$DIR/small/run/metrics.jsonl" | xargs)" = "$(seq -s ' ' 120)" ]
    [ "$(jq -c '[.step, .eval_loss]' "$DIR/small/run/eval.jsonl")" = \
        "$(jq -c '[.step, .eval_loss]' "$DIR/calm/eval.jsonl")" ]
    # more failures in a row than checkpoint.failures_max
    [ "$(grep -c '"save-failed"' "$DIR/small/run/ledger.jsonl")" -gt 3 ]
    [ "$(grep -c '"event": "start"' "$DIR/small/run/ledger.jsonl")" -eq 1 ]
    jq -e 'select(.event == "stop" and .code == 0)' "$DIR/small/run/ledger.jsonl"
}

@test "full at the start or at the end for longer is 75, not to be written at all 93" {
    mkdir "$DIR/small/run"
    fill
    ends 75 "No space left on device" train 1 "$DIR/small/run" parallel.timeout_s=2
    rm "$DIR/small/ballast"
    mount -o remount,ro "$DIR/small"
    ends 93 "Read-only file system" train 1 "$DIR/small/run"
}
