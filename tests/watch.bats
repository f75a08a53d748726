#!/usr/bin/env bats
# Who holds a run up is named while it trains.

load run_helpers

setup_file() {
    data_folder
}

# verdicts RUN: the ledger's
verdicts() {
    jq -c 'select(.event == "slow") | [.kind, .rank, .over]' "$1/ledger.jsonl"
}

named() { # RUN
    verdicts "$1" | grep -qxF '["straggler",1,false]'
}

@test "a rank that is slow by itself is named in log, ledger and metrics" {
    start 2 "$DIR/slow" train.max_duration=100000ba hardware.threads=1 \
        train.global_batch=96 watch.window=8
    wait_for 60 steps_logged "$DIR/slow" 2
    slow=$(ranks_of $pid | tail -n 1)
    end=$((SECONDS + 90))
    until named "$DIR/slow" || [ $SECONDS -ge $end ]; do
        kill -STOP "$slow"
        sleep 0.1
        kill -CONT "$slow"
        sleep 0.05
    done
    wait_for 30 grep -q watch/straggler_rank "$DIR/slow/metrics.jsonl"
    kill -KILL $(ranks_of $pid) || true
    waited '!0'
    named "$DIR/slow"
    grep -q 'rank 1 (.*) takes .* times as long as the median of 2 ranks' "$DIR/slow.log"
    jq -s 'map(select(.event == "slow" and .rank == 1))[0] |
        .factor > 1.1 and .since <= .step and .node != ""' "$DIR/slow/ledger.jsonl" |
        grep -qx true
}

@test "nobody is looked for with watch.on_straggler = off, nor with one rank" {
    train 1 "$DIR/one"
    train 2 "$DIR/off" watch.on_straggler=off hardware.threads=1
    [ -z "$(verdicts "$DIR/one")$(verdicts "$DIR/off")" ]
    ! grep -q watch/ "$DIR/one/metrics.jsonl" "$DIR/off/metrics.jsonl" || false
}
