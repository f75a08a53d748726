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

# slow_until RANK COMMAND...: holds that process up, for $STOPPED s at a time, until the
# command succeeds
slow_until() {
    local end=$((SECONDS + 120)) slow=$1
    shift
    until "$@" || [ $SECONDS -ge $end ]; do
        kill -STOP "$slow"
        sleep "${STOPPED:-0.1}"
        kill -CONT "$slow"
        sleep 0.05
    done
}

# action RUN ACTION: it is in the ledger, of rank 1
action() {
    jq -c 'select(.event == "slow") | [.rank, .action]' "$1/ledger.jsonl" |
        grep -qxF "[1,\"$2\"]"
}

swept() { # RUN
    jq -c 'select(.event == "slow" and .action == "sweep") | [.kind, .rank, .node]' \
        "$1/ledger.jsonl" | grep -qxF '["rate",-1,"all"]'
}

over_in_mlflow() { # FOLDER
    [[ $(cut -d' ' -f2 "$1"/*/*/metrics/watch/straggler_rank | uniq | xargs) == '-1 1 '*-1 ]]
}

# as_nodes SPARE: a command that gives each rank a node of its own, of a job
as_nodes() {
    cat >"$DIR/as_node" <<END
#!/bin/bash
hostname "n\$OMPI_COMM_WORLD_RANK"
export SLURM_JOB_ID=7 TESSERA_SPARE_NODES=$1
exec "\$@"
END
    chmod 755 "$DIR/as_node"
}

@test "a rank that is slow by itself is named in log, ledger and metrics" {
    # a program that is told, and a wait before each step that is longer than the step
    printf '#!/bin/sh\necho "$@" >>"%s"\n' "$DIR/told" >"$DIR/tell"
    chmod 755 "$DIR/tell"
    waits_so 0.3
    TESSERA_NOTIFY=$DIR/tell start 2 "$DIR/slow" train.max_duration=100000ba hardware.threads=1 \
        train.global_batch=96 watch.window=8 watch.on_straggler=replace "plugins=[\"$DIR/waits.so\"]" \
        "tracking.prometheus=$DIR/slow.prom" "tracking.mlflow=$DIR/slow.mlruns"
    wait_for 60 steps_logged "$DIR/slow" 2
    slow_until "$(ranks_of $pid | tail -n 1)" action "$DIR/slow" one-node
    grep -q 'rank 1 (.*) stays slow, and its node is not replaced: all ranks are' "$DIR/slow.log"
    from=$(wc -l <"$DIR/slow/metrics.jsonl")
    wait_for 30 steps_logged "$DIR/slow" $((from + 2))
    wait_for 30 grep -q '"watch/straggler_rank": 1,' "$DIR/slow/metrics.jsonl"
    grep -qx "straggler $DIR/slow 0 step [0-9]*: rank 1 (.*) takes .* as long as .*" "$DIR/told"
    [ "$(grep -c ^straggler "$DIR/told")" = 1 ]
    # what trackers keep of it goes when it is over
    wait_for 60 grep -q '^tessera_watch_straggler_rank{.*} -1$' "$DIR/slow.prom"
    grep -q '^tessera_watch_slowdown{.*} 1$' "$DIR/slow.prom"
    wait_for 30 over_in_mlflow "$DIR/slow.mlruns"
    kill -KILL $(ranks_of $pid) || true
    waited '!0'
    named "$DIR/slow"
    grep -q 'rank 1 (.*) takes .* times as long as the median of 2 ranks' "$DIR/slow.log"
    jq -s 'map(select(.event == "slow" and .rank == 1))[0] |
        .factor > 1.1 and .since <= .step and .node != ""' "$DIR/slow/ledger.jsonl" |
        grep -qx true
}

@test "a rank that stays slow ends the attempt for a spare node, same bits" {
    unshare -u true 2>/dev/null || skip "hosts of other names cannot be made"
    settings=(train.max_duration=60ba hardware.threads=1 train.global_batch=96
        eval.interval=0ba checkpoint.interval=1dur watch.window=6
        watch.on_straggler=replace)
    as_nodes 1
    command_of 1 "$DIR/left" "${settings[@]}"
    "$MPIRUN" 2 unshare -u "$DIR/as_node" "${command[@]}" >"$DIR/left.log" 2>&1 3>&- &
    pid=$!
    wait_for 60 steps_logged "$DIR/left" 2
    slow_until "$(ranks_of $pid | tail -n 1)" action "$DIR/left" replace
    waited 85
    grep -q 'rank 1 (n1) stays slow: the run saves' "$DIR/left.log"
    steps=$(wc -l <"$DIR/left/metrics.jsonl")
    [ "$steps" -lt 60 ]
    [ "$(newest "$DIR/left")" = "$DIR/left/checkpoints/$(printf 'step-%09d' "$steps")" ]
    # what the launch script makes of it
    "$BIN/tessera-ckpt" next "$DIR/left" --job 7 --attempt 1 -- ended=itself code=85 \
        state=RUNNING room=yes may_requeue=yes | grep -x 'do retry'
    "$BIN/tessera-ckpt" ledger "$DIR/left" --job 7 | grep -x 'slow n1'
    # who looks at the run sees it
    "$BIN/tessera-top" "$DIR/left" --once | tee "$DIR/top"
    grep -E 'own work [0-9.]+ ms \(median\), [0-9.]+ ms \(rank 1\)' "$DIR/top"
    grep -E '^slow +n1: straggler, rank 1, .*: replace' "$DIR/top"
    "$BIN/tessera-report" "$DIR/left" --json "$DIR/left.json"
    jq -e '.[0] | .figures.slowest_rank == 1 and .figures.waiting_rank == 0 and
        .figures.work_ms < .figures.work_ms_max' "$DIR/left.json"
    settings+=(watch.on_straggler=off)
    train 2 "$DIR/left" "${settings[@]}"
    train 1 "$DIR/whole" "${settings[@]}"
    [ "$(digest "$DIR/left")" = "$(digest "$DIR/whole")" ]
}

@test "a run that stays slow ends the attempt for a check of its nodes, same bits" {
    unshare -u true 2>/dev/null || skip "hosts of other names cannot be made"
    # three slots on two ranks: uneven by design, so that no rank is a straggler
    settings=(train.max_duration=60ba hardware.threads=1 train.global_batch=48
        parallel.slots=3 eval.interval=0ba checkpoint.interval=1dur watch.window=4
        watch.on_straggler=sweep "tracking.prometheus=$DIR/drop.prom")
    as_nodes 0
    command_of 1 "$DIR/drop" "${settings[@]}"
    "$MPIRUN" 2 unshare -u "$DIR/as_node" "${command[@]}" >"$DIR/drop.log" 2>&1 3>&- &
    pid=$!
    wait_for 120 steps_logged "$DIR/drop" 14
    # every step must be slow, not only most
    STOPPED=1 slow_until "$(ranks_of $pid | tail -n 1)" swept "$DIR/drop"
    waited 85
    grep 'step .* the run stays slow: the run saves, and goes on when all nodes' "$DIR/drop.log"
    awk '/^tessera_watch_rate/ { rate = $2 } END { exit !(rate > 0 && rate < 0.8) }' "$DIR/drop.prom"
    "$BIN/tessera-ckpt" next "$DIR/drop" --job 7 --attempt 1 -- ended=itself code=85 \
        state=RUNNING room=yes may_requeue=yes | tee "$DIR/next"
    grep -x 'do retry' "$DIR/next"
    grep -x 'phase job' "$DIR/next"
    [ -z "$("$BIN/tessera-ckpt" ledger "$DIR/drop" --job 7 | sed -n 's/^slow //p')" ]
    settings+=(watch.on_straggler=off)
    train 2 "$DIR/drop" "${settings[@]}"
    train 1 "$DIR/undisturbed" "${settings[@]}"
    [ "$(digest "$DIR/drop")" = "$(digest "$DIR/undisturbed")" ]
}

@test "nobody is looked for with watch.on_straggler = off, nor with one rank" {
    train 1 "$DIR/one"
    train 2 "$DIR/off" watch.on_straggler=off hardware.threads=1
    [ -z "$(verdicts "$DIR/one")$(verdicts "$DIR/off")" ]
    ! grep -q watch/straggler "$DIR/one/metrics.jsonl" || false
    ! grep -q watch/ "$DIR/off/metrics.jsonl" || false
}

@test "ranks that hang are named, and the log has what all are at" {
    run "$BATS_TEST_DIRNAME/name_culprit" "$(dirname "$BIN")" 1 stop loop
    echo "$output"
    [[ ${lines[-1]} == "culprit: 2 injected, 2 named, 0 wrong, "* ]]
    grep -qE '^# (rank|[0-9]+ ranks) .* waits?: step [0-9]+, .*, since' <<<"$output"
    # one that goes round shows where, one that is stopped can't; beside others it may not come to
    # that before all are ended, so it has three tries
    [ "$(grep -B 1 '^stop, ' <<<"$output" | grep -c stack)" = 0 ]
    for try in 1 2 3; do
        [ "$(grep -B 1 '^loop, ' <<<"$output" | head -n 1)" != '# and its stack' ] || break
        run "$BATS_TEST_DIRNAME/name_culprit" "$(dirname "$BIN")" 1 loop
        echo "$output"
    done
    [ "$(grep -B 1 '^loop, ' <<<"$output" | head -n 1)" = '# and its stack' ]
}
