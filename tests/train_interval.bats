#!/usr/bin/env bats
# checkpoint.interval = "auto": a run that measures its own saves, and what the
# ledger's failures make of it.

load run_helpers

setup_file() {
    data_folder
    reference
}

AUTO=(checkpoint.interval=auto checkpoint.keep=0 log.level=info)

saved_steps() { # DIR
    (cd "$1/checkpoints" && echo step-* | sed 's/step-0*//g')
}

# chosen LOG FIELD: a figure of the last choice
chosen() {
    grep 'checkpoint interval: ' "$1" | tail -n 1 |
        sed -n "s/.* interval: \(.*\)/\1/p" | case $2 in
        seconds) sed -E 's/^([0-9.e+]+) s.*/\1/' ;;
        failures) sed -E 's/.* after ([0-9]+) failures.*/\1/' ;;
        esac
}

@test "the first save is soon, the choice is logged with its figures" {
    train 2 "$DIR/auto" "${AUTO[@]}" 2>"$DIR/log"
    # hours of no failure: nothing is due after the first, but the last one
    [ "$(saved_steps "$DIR/auto")" = "5 24" ]
    [ "$(digest "$DIR/auto")" = "$(cat "$DIR/ref.digest")" ]
    number='[0-9][0-9.e+-]*'
    grep -Eq "checkpoint interval: $number s(, [^,]*)?, [0-9]+ steps \(cost $number s, save $number s, MTBF 6000 h after 0 failures in $number node-hours; Young $number s, Daly $number s, exact $number s\)" "$DIR/log"
    grep -q 'interval = "auto";' "$DIR/auto/config.cfg"
    [ "$(grep -c '"event": "commit"' "$DIR/auto/ledger.jsonl")" -eq 2 ]
}

@test "not staged, and with node-local saves beside: the same bits" {
    train 2 "$DIR/sync" "${AUTO[@]}" checkpoint.async=false 2>"$DIR/log"
    [ "$(saved_steps "$DIR/sync")" = "5 24" ]
    grep -q 'save 0 s, MTBF' "$DIR/log"
    [ "$(digest "$DIR/sync")" = "$(cat "$DIR/ref.digest")" ]
    train 2 "$DIR/both" "${AUTO[@]}" checkpoint.local_dir="$DIR/local" \
        checkpoint.local_interval=4ba 2>"$DIR/log"
    grep -q 'checkpoint interval: ' "$DIR/log"
    [ "$(saved_steps "$DIR/both")" = "5 24" ]
    [ "$(digest "$DIR/both")" = "$(cat "$DIR/ref.digest")" ]
}

@test "killed after the first save, resumed on other ranks: the same bits" {
    long=(train.max_duration=400ba scheduler.t_max=24ba)
    start 2 "$DIR/kill" "${AUTO[@]}" "${long[@]}"
    wait_for 60 test -e "$DIR/kill/checkpoints/step-000000005"
    kill -9 $(ranks_of $pid)
    wait $pid || true
    [ "$(tail -n 1 "$DIR/kill/metrics.jsonl" |
        sed -E 's/.*"step": ([0-9]+),.*/\1/')" -lt 400 ]
    train 3 "$DIR/kill" "${AUTO[@]}" 2>"$DIR/log"
    grep -q 'resumed at step 5 ' "$DIR/log"
    # five steps after the resume, and the last one
    [ "$(saved_steps "$DIR/kill")" = "5 10 24" ]
    [ "$(chosen "$DIR/log" failures)" -eq 1 ]
    [ "$(digest "$DIR/kill")" = "$(cat "$DIR/ref.digest")" ]
}

@test "a ledger with many failures gives a shorter interval" {
    train 1 "$DIR/calm" "${AUTO[@]}" train.max_duration=12ba 2>"$DIR/calm.log"
    mkdir -p "$DIR/storm"
    for i in $(seq 1 2000); do
        echo "{\"event\": \"start\", \"time\": $((1000 + 60 * i)).0, \"attempt\": $i, \"hosts\": [\"a\", \"b\"]}"
        echo "{\"event\": \"restart\", \"time\": $((1050 + 60 * i)).0, \"attempt\": $i, \"code\": 137}"
    done >"$DIR/storm/ledger.jsonl"
    train 1 "$DIR/storm" "${AUTO[@]}" train.max_duration=12ba 2>"$DIR/storm.log"
    [ "$(chosen "$DIR/calm.log" failures)" -eq 0 ]
    [ "$(chosen "$DIR/storm.log" failures)" -eq 2000 ]
    # 6000 hours over one more than the failures, on one node
    grep -Eq 'MTBF (2\.99[0-9]|3) h after' "$DIR/storm.log"
    # the root of 2000 is 45, and the cost of a save is not that uncertain
    awk -v calm="$(chosen "$DIR/calm.log" seconds)" \
        -v storm="$(chosen "$DIR/storm.log" seconds)" \
        'BEGIN { exit !(storm > 0 && calm > 4 * storm) }'
}

@test "a signal between two saves: the last step is saved" {
    start 1 "$DIR/signal" "${AUTO[@]}" train.max_duration=4000ba
    wait_for 60 grep -q 'checkpoint interval: ' "$DIR/signal.log"
    kill -TERM "$(ranks_of $pid)"
    waited 85
    saved=$(saved_steps "$DIR/signal")
    [ "${saved%% *}" = 5 ] && [ "${saved##* }" -gt 5 ]
}

@test "auto is for checkpoint.interval alone" {
    for key in eval.interval checkpoint.local_interval train.max_duration; do
        ends 64 "'$key': 'auto' is not a duration" train 1 "$DIR/none" "$key=auto"
    done
    ends 64 '' train 1 "$DIR/none" checkpoint.interval=3auto
    [ "$("$BIN/tessera-train" --print checkpoint.interval "$CONF" \
        checkpoint.interval=auto)" = auto ]
}
