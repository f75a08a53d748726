#!/usr/bin/env bats
# Figures that runs take now and then (monitor.*), in metrics.jsonl: the same of
# any ranks where that is promised, nothing of the run changes, and the energy of
# a made-up machine is in the report.
load run_helpers
SMALL=(model.n_layers=2 model.d_model=32 model.n_heads=2)
EVERY=(monitor.norms=6ba monitor.activations=6ba monitor.memory=6ba)

setup_file() {
    data_folder
    train 1 "$DIR/plain" "${SMALL[@]}" monitor.system=0ba monitor.memory=0ba
    train 1 "$DIR/one" "${SMALL[@]}" "${EVERY[@]}"
}

setup() {
    cd "$DIR" || return 1
}

# figures DIR PATTERN: STEP NAME VALUE of each that matches
figures() {
    jq -r --arg p "$2" '.step as $s | to_entries[] | select(.key | test($p)) |
        "\($s) \(.key) \(.value)"' "$1/metrics.jsonl"
}

@test "every sixth step, and the run is the same" {
    [ "$(digest "$DIR/one")" = "$(digest "$DIR/plain")" ]
    step_losses "$DIR/one" >losses
    step_losses "$DIR/plain" | diff - losses
    [ "$(figures "$DIR/one" '^norm/grad/global$' | cut -d ' ' -f 1 | xargs)" = "6 12 18 24" ]
    [ "$(figures "$DIR/one" '^activation/(mean|std|max|zeros)/' | wc -l)" = 32 ]
    [ "$(figures "$DIR/plain" '^(norm|activation|memory|system|gpu)/' | wc -l)" = 0 ]
    # the norm of the gradient is the one that each line has
    jq -s -e 'map(select(.["norm/grad/global"]) |
        (.["norm/grad/global"] / .grad_norm - 1) | fabs) |
        length == 4 and max < 1e-7' "$DIR/one/metrics.jsonl"
    # the squares of tensors add up
    jq -s -e 'map(select(.["norm/update/global"]) | .["norm/update/global"] as $g |
        ([to_entries[] | select(.key | test("^norm/update/t")) | .value * .value] |
            add | sqrt) / $g - 1 | fabs) |
        length == 4 and max < 1e-7' "$DIR/one/metrics.jsonl"
}

@test "alerts of GPUs that the ledger has are counted, those of this attempt" {
    mkdir "$DIR/alerts"
    for attempt in 1 1 2; do
        echo '{"event":"gpu-alert","time":1.5,"attempt":'$attempt',"node":"n1","code":"GPU_SLOWED",' \
            '"reason":"it says","fatal":false}' >>"$DIR/alerts/ledger.jsonl"
    done
    train 1 "$DIR/alerts" "${SMALL[@]}" monitor.system=12ba
    [ "$(figures "$DIR/alerts" '^gpu/alerts$' | xargs)" = "12 gpu/alerts 2 24 gpu/alerts 2" ]
    [ "$(figures "$DIR/one" '^gpu/alerts$' | wc -l)" = 0 ]
}

@test "the same figures on two and four ranks" {
    train 2 "$DIR/two" "${SMALL[@]}" "${EVERY[@]}" parallel.strategy=zero3
    train 4 "$DIR/four" "${SMALL[@]}" "${EVERY[@]}" parallel.strategy=ddp
    figures "$DIR/one" '^(norm|activation)/' >want
    [ "$(wc -l <want)" -gt 400 ]
    figures "$DIR/two" '^(norm|activation)/' | diff want -
    figures "$DIR/four" '^(norm|activation)/' | diff want -
}

@test "a run that is killed and goes on has them at the same steps" {
    pid=
    held 10 1 "$DIR/killed" "${SMALL[@]}" "${EVERY[@]}"
    kill -9 "$pid"
    wait "$pid" || true
    train 2 "$DIR/killed" "${SMALL[@]}" "${EVERY[@]}"
    figures "$DIR/one" '^(norm|activation)/' | sort >want
    figures "$DIR/killed" '^(norm|activation)/' | sort -u | diff want -
}

@test "memory by kind, as the plan has it" {
    train 1 "$DIR/memory" "${SMALL[@]}" monitor.memory=12ba log.level=info 2>log
    grep -q 'memory of a rank: weights .*, moments .*; resident now: ' log
    jq -s -e 'map(select(.step == 12))[0] | .["memory/planned/weights"] > 0 and
        .["memory/planned/moments"] == 2 * .["memory/planned/weights"] and
        .["memory/planned/total"] > .["memory/planned/moments"] and
        .["memory/peak"] >= .["memory/resident"] and
        .["memory/resident"] > 1e6' "$DIR/memory/metrics.jsonl"
    [ "$(figures "$DIR/memory" '^memory/peak' | wc -l)" = 2 ]
}

@test "what a machine tells of itself, at the last step" {
    jq -s -e 'map(select(.step == 24))[0] | .["system/process_cpus"] > 0 and
        .["system/memory_available"] > 0 and .["system/disk_free"] > 0 and
        .["system/node_cpu"] <= 1.01 and .["system/load"] >= 0 and
        .["system/resident"] > 1e6' "$DIR/one/metrics.jsonl"
    [ "$(figures "$DIR/one" '^system/load' | wc -l)" = 1 ]
    jq -s -e 'all(.["time/remaining"] >= 0) and .[0]["time/remaining"] > 0' \
        "$DIR/one/metrics.jsonl"
    [ "$(jq 'select(.step == 24)["time/remaining"]' "$DIR/one/metrics.jsonl")" = 0 ]
}

# zone NAME KIND MICROJOULES
zone() {
    mkdir -p "root/sys/class/powercap/$1"
    echo "$2" >"root/sys/class/powercap/$1/name"
    echo 262143328850 >"root/sys/class/powercap/$1/max_energy_range_uj"
    echo "$3" >"root/sys/class/powercap/$1/energy_uj"
}

@test "energy comes to the report, with tokens per joule" {
    pid=
    zone intel-rapl:0 package-0 1000000
    zone intel-rapl:0:0 core 1000000
    export TESSERA_SYSTEM_ROOT=$DIR/root
    start 2 "$DIR/energy" "${SMALL[@]}" monitor.system=24ba
    wait_for 60 steps_logged "$DIR/energy" 3
    echo 9000000 >root/sys/class/powercap/intel-rapl:0/energy_uj
    wait "$pid"
    unset TESSERA_SYSTEM_ROOT
    # two ranks, one node: 8 J, once
    [ "$(jq -s 'map(.energy_j // 0) | add' "$DIR/energy/metrics.jsonl")" = 8 ]
    "$BIN/tessera-report" "$DIR/energy" --json report.json >/dev/null
    jq -e '.. | objects | select(has("energy_j")) | .energy_j == 8 and
        .tokens_per_j == 24 * 8 * 64 / 8' report.json
}

@test "counters that nobody may read are told of once" {
    TESSERA_SYSTEM_ROOT=$DIR/nothing train 2 "$DIR/unknown" "${SMALL[@]}" log.level=debug 2>log
    [ "$(grep -c 'energy of processors is not known: .*/sys/class/powercap' log)" = 1 ]
    [ "$(grep -c energy_j "$DIR/unknown/metrics.jsonl")" = 0 ]
}

@test "an interval in seconds is refused where steps are meant" {
    ends 64 "monitor.norms" train 1 "$DIR/refused" "${SMALL[@]}" monitor.norms=10sec
}
