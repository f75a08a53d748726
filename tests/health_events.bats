#!/usr/bin/env bats
# What programs hear of nodes: a line of JSON for each that is not well and each
# decision, Prometheus' file, a program that is told; and what an administrator
# asks of them: the report, recheck, undrain, selftest.
# shellcheck disable=SC2030,SC2031 # every test is a subshell

load admin_helpers

setup() {
    [ "$(id -u)" -eq 0 ] || skip "prolog and epilog are root's"
    node_install
    EVENTS=$NODE/events
    mkdir "$EVENTS"
    configure "TESSERA_EVENTS=$EVENTS"
    rm -f /run/tessera/state.n*
}

teardown() {
    [ -n "${NODE:-}" ] || return 0
    cat "$LOG" "$NODE"/events/* 2>/dev/null
    rm -rf "$NODE" /run/tessera/state.n*
}

report() {
    run "$BIN/tessera-health" report "$@"
    echo "$output"
}

# on_all PHASE: of twenty nodes, all at once
on_all() {
    local node pids=()
    for node in n{1..20}; do
        as_slurmd "$1" "$node" &
        pids+=($!)
    done
    wait "${pids[@]}" || true
}

act() { # ACT NODE
    run env -i TIMEOUT="${TIMEOUT:-60}" SLURMD_NODENAME="$2" \
        "$NODE/libexec/tessera/node-health.real" --act "$1"
    echo "$output"
}

@test "each of sixty situations has one line, whatever hangs and however busy the node is" {
    configure TESSERA_DRAIN_PERCENT=10
    mkfifo "$NODE/pipe"
    configure "TESSERA_LOG=$NODE/pipe" # nobody reads it: it never opens
    for i in {1..20}; do
        timeout 120 bash -c 'while :; do :; done' &
        echo $! >>"$NODE/busy"
    done
    bad_with GPU_ECC
    on_all prolog
    check_says 1 '{"host":"x","verdict":"warn","code":"LOAD_HIGH","reason":"tessera: LOAD_HIGH load"}'
    on_all epilog
    check_says 3 '{"verdict":"unknown","reason":"tessera: NVML_MISSING gpu"}'
    on_all prolog
    xargs kill <"$NODE/busy"
    [ "$(grep -h '"state":"bad"' "$EVENTS"/* | wc -l)" -eq 20 ]
    [ "$(grep -h '"event":"decision"' "$EVENTS"/* | wc -l)" -eq 20 ]
    [ "$(grep -h '"state":"warn"' "$EVENTS"/* | wc -l)" -eq 20 ]
    [ "$(grep -h '"state":"unknown"' "$EVENTS"/* | wc -l)" -eq 20 ]
    [ "$(cat "$EVENTS"/*.jsonl | wc -l)" -eq 80 ]
    # and the report counts the same
    report --json "$EVENTS"
    [ "$status" -eq 0 ]
    drained=$(drained)
    [ "$drained" -ge 1 ] && [ "$drained" -le 2 ]
    jq -e --argjson drained "$drained" '.events == 80 and .strange == 0 and
        (.decisions | length) == 20 and
        (.codes | map({(.code): .}) | add |
            .GPU_ECC.bad == 20 and .GPU_ECC.drained == $drained and
            .GPU_ECC.nodes == 20 and .GPU_ECC.jobs == 1 and
            .LOAD_HIGH.warned == 20 and .NVML_MISSING.warned == 20)' <<<"$output"
}

@test "the report says what each node did next" {
    configure TESSERA_ENFORCE=0
    bad_with GPU_ECC
    job=11 as_slurmd prolog n1
    job=12 as_slurmd prolog n1
    job=12 as_slurmd prolog n2
    check_says 0 '{"verdict":"ok"}'
    as_slurmd prolog n2
    as_slurmd prolog n2 # well as before: no line
    as_slurmd prolog n3
    [ ! -e "$EVENTS/n3.jsonl" ]
    echo "no JSON" >>"$EVENTS/n2.jsonl"
    # a time that no calendar has
    grep decision "$EVENTS/n2.jsonl" | sed 's/"time":[0-9.]*/"time":1e300/' >"$EVENTS/odd.jsonl"
    report "$EVENTS"
    [[ $status -eq 0 && $output == *"7 events; 2 lines are none, passed over"* ]]
    [[ $output =~ GPU_ECC\ +0\ +3\ +3\ +0\ +2\ +2 ]]
    [[ $output =~ n1\ +11\ +GPU_ECC\ +would-drain\ +bad\ GPU_ECC\ after\ [0-9]+\ s,\ bad\ for\ the\ same\ 1\ times ]]
    [[ $output =~ n1\ +12\ +GPU_ECC\ +would-drain\ +nothing\ since ]]
    [[ $output =~ n2\ +12\ +GPU_ECC\ +would-drain\ +sound\ again\ after ]]
    sed -i 's/"time":[0-9.]*/"time":1700000000/' "$EVENTS/n1.jsonl"
    report --since 30d "$EVENTS"
    [[ $output == *"3 events"* && $output != *n1* ]]
    report --since 30x "$EVENTS"
    [ "$status" -eq 64 ]
    report
    [ "$status" -eq 64 ]
    mkdir "$NODE/empty" && report "$NODE/empty"
    [[ $status -eq 0 && $output == *"sound nodes write nothing"*"0 events"* ]]
    report "$NODE/etc"
    [[ $output == *"no *.jsonl there"* ]]
}

@test "events that cannot be written are said in the log" {
    configure "TESSERA_EVENTS=$NODE/nowhere"
    bad_with GPU_ECC
    as_slurmd prolog n1 || true
    grep 'TESSERA_EVENTS: .*/nowhere/n1.jsonl cannot be written' "$LOG"
    [ "$(drained)" -eq 1 ]
}

@test "ten thousand events are one report" {
    for i in {0..99}; do
        for j in {0..99}; do
            echo "{\"schema\":\"tessera-event/1\",\"time\":17000$i$j,\"host\":\"n$i\",\"job\":$j,\"state\":\"bad\",\"code\":\"C$((j % 7))\"}"
        done
    done >"$EVENTS/all.jsonl"
    time report --json "$EVENTS"
    jq -e '.events == 10000 and (.codes | map(.bad) | add) == 10000 and
        all(.codes[]; .nodes == 100)' <<<"$output"
}

@test "Prometheus' file has the last look, whole" {
    configure "TESSERA_METRICS=$NODE"
    bad_with GPU_ECC
    as_slurmd prolog n1 || true
    grep -x 'tessera_node_state{node="n1",phase="prolog"} 2' "$NODE/tessera.n1.prom"
    grep -x 'tessera_node_fault{node="n1",code="GPU_ECC"} 1' "$NODE/tessera.n1.prom"
    check_says 0 '{"verdict":"ok"}'
    as_slurmd epilog n1
    grep -x 'tessera_node_state{node="n1",phase="epilog"} 0' "$NODE/tessera.n1.prom"
    run grep fault= "$NODE/tessera.n1.prom"
    [ "$status" -ne 0 ]
    ls "$NODE"/tessera.*
    [ "$(ls "$NODE"/tessera.* | wc -l)" -eq 1 ]
}

@test "a program of root's is told of each decision, no other" {
    printf '#!/bin/bash\nprintf "[%%s]" "$@" >>%q\n' "$NODE/told" >"$NODE/tell"
    chmod 755 "$NODE/tell"
    configure "TESSERA_NOTIFY=$NODE/tell"
    bad_with GPU_ECC
    as_slurmd prolog n1 || true
    cat "$NODE/told"
    grep -Fx '[drained][n1][4711][drained: tessera: GPU_ECC shm 0MiB/32]' "$NODE/told"
    rm "$NODE/told"
    chmod 777 "$NODE/tell"
    as_slurmd prolog n2 || true
    [ ! -e "$NODE/told" ]
    grep 'TESSERA_NOTIFY is not called: .*must belong to root' "$LOG"
    printf '#!/bin/bash\nexec sleep 60\n' >"$NODE/tell"
    chmod 755 "$NODE/tell"
    SECONDS=0
    as_slurmd prolog n3 || true
    [ "$SECONDS" -lt 60 ] # slurmd's own limit
    grep 'n3 .*TESSERA_NOTIFY .*no answer' "$LOG"
}

@test "what we have drained serves again after two sound looks, nothing else" {
    bad_with GPU_ECC
    as_slurmd prolog n1 || true
    act recheck n1
    [ "$status" -eq 1 ]
    [[ $output == *"not sound, stays drained: tessera: GPU_ECC"* ]]
    check_says 0 '{"verdict":"ok"}'
    act recheck n1
    [ "$status" -eq 1 ]
    [[ $output == *"sound at 2 looks, would undrain: tessera: GPU_ECC"* ]]
    grep DRAIN "$NODE/cluster/n1"
    act undrain n1
    [ "$status" -eq 0 ]
    grep '^IDLE|' "$NODE/cluster/n1"
    grep '"outcome":"undrained","code":"GPU_ECC"' "$EVENTS/n1.jsonl"
    echo "IDLE+DRAIN|2026-11-22T10:00:00|fan is loud" >"$NODE/cluster/n2"
    act undrain n2
    [ "$status" -eq 1 ]
    grep 'fan is loud' "$NODE/cluster/n2"
}

@test "a node drained by a probe is probed before it serves again" {
    printf '#!/bin/bash\necho "$*" >>%q\necho "verdict x bad GEMM_WRONG GEMM_WRONG tessera: GEMM_WRONG gemm"\necho "bad gemm"\nexit 2\n' \
        "$NODE/probed" >"$NODE/probes"
    chmod 755 "$NODE/probes"
    configure "TESSERA_PROBES=$NODE/probes"
    check_says 0 '{"verdict":"ok"}'
    echo "IDLE+DRAIN|2026-11-22T10:00:00|tessera: GEMM_WRONG gemm 3" >"$NODE/cluster/n1"
    act undrain n1
    [ "$status" -eq 1 ]
    grep 'only gemm' "$NODE/probed"
    grep DRAIN "$NODE/cluster/n1"
}

@test "selftest tries what prolog and epilog need" {
    check_says 0 '{"host":"x","verdict":"ok"}'
    configure TESSERA_ENFORCE=0
    install -m 755 /bin/true "$NODE/probes"
    configure "TESSERA_PROBES=$NODE/probes"
    mkdir -m 1777 "$NODE/spool"
    configure "TESSERA_SPOOL=$NODE/spool"
    act selftest n1
    [ "$status" -eq 0 ]
    [[ $output == *"ok     settings         dry run: no node is drained"* ]]
    [[ $output == *"-      TESSERA_NOTIFY   not set: nobody is told"* ]]
    [[ $output == *"ok     node             this node is idle"* ]]
    [[ $output == *"ok     check            finds this node ok"* ]]
    chmod 755 "$NODE/spool"
    configure "TESSERA_METRICS=$NODE/nowhere"
    configure "TESSERA_NOTIFY=$NODE/nothing"
    TZ=UTC date +%FT%T >"$NODE/cluster/res.tessera-latched.SHM_FULL"
    act selftest n21
    [ "$status" -eq 1 ]
    [[ $output == *"wrong  TESSERA_SPOOL "*"has mode 755, give it 1777"* ]]
    [[ $output == *"wrong  TESSERA_METRICS "*"No such file"* ]]
    [[ $output == *"wrong  TESSERA_NOTIFY "*"No such file"* ]]
    [[ $output == *"wrong  node             sinfo"* ]]
    [ "$(grep -vc '^ok  \|^-  \|^wrong  ' <<<"$output")" -eq 0 ]
    [[ $output == *"wrong  reservations     latched: delete the reservation tessera-latched.SHM_FULL"* ]]
    configure TESSERA_ENFORC=1
    TIMEOUT=30 act selftest n1
    [[ $output == *"wrong  settings "*"no such setting"* ]]
    [[ $output == *"wrong  slurm.conf       PrologEpilogTimeout is 30 s"* ]]
}
