#!/usr/bin/env bats
# Trackers of real runs: what their files have after a run, after one that was
# killed and went on, and that no tracker holds up a run or ends it. The real
# packages read the files in tests/interop/track.sh.
load run_helpers
SMALL=(model.n_layers=1 model.d_model=32 model.n_heads=2)

setup_file() {
    data_folder
    train 1 "$DIR/plain" "${SMALL[@]}"
}

setup() {
    cd "$DIR" || return 1
    SERVER=
}

teardown() {
    [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null || true
}

# sinks DIR: settings of all that write files
sinks() {
    echo tracking.tensorboard=true "tracking.prometheus=$1.prom" \
        "tracking.mlflow=$1.mlruns"
}

# shown_once DIR: each step of 24 once, with the loss that metrics.jsonl has
shown_once() {
    step_losses "$1" >want
    [ "$(wc -l <want)" = 24 ]
    sed -n 's/.*"step": \([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | sort -n | uniq -d |
        wc -l >replayed
    awk '{ print $3, $2 }' "$1".mlruns/*/*/metrics/train/loss |
        diff <(awk '{ printf "%d %.17g\n", $1, $2 }' want) - || return 1
    grep -q '^tessera_step{run="'"$(basename "$1")"'",job=""} 24$' "$1.prom"
    grep -q '^tessera_running{.*} 0$' "$1.prom"
}

@test "all files of a run, on two ranks" {
    # shellcheck disable=SC2046 # words
    train 2 "$DIR/all" "${SMALL[@]}" $(sinks "$DIR/all") 2>log
    [ "$(digest "$DIR/all")" = "$(digest "$DIR/plain")" ]
    shown_once "$DIR/all"
    [ "$(cat replayed)" = 0 ]
    [ "$(find "$DIR/all/tensorboard" -name 'events.out.tfevents.*' | wc -l)" = 1 ]
    grep -q '^status: 3$' "$DIR"/all.mlruns/*/*/meta.yaml
    [ "$(cat log "$DIR/all/ledger.jsonl" | grep -c tracking)" = 0 ]
    # nothing changes when it is finished already
    find "$DIR/all/tensorboard" "$DIR"/all.mlruns -type f | sort | xargs cksum >before
    # shellcheck disable=SC2046
    train 1 "$DIR/all" "${SMALL[@]}" $(sinks "$DIR/all")
    find "$DIR/all/tensorboard" "$DIR"/all.mlruns -type f | sort | xargs cksum | diff before -
}

@test "killed and started again: each step once" {
    pid=
    # shellcheck disable=SC2046
    held 13 1 "$DIR/killed" $(sinks "$DIR/killed") checkpoint.interval=5ba
    kill -9 "$pid"
    wait "$pid" || true
    # shellcheck disable=SC2046
    train 1 "$DIR/killed" $(sinks "$DIR/killed") checkpoint.interval=5ba
    shown_once "$DIR/killed"
    echo "# $(cat replayed) steps came again" >&3
    [ "$(find "$DIR/killed/tensorboard" -type f | wc -l)" = 2 ]
    [ "$(find "$DIR/killed.mlruns" -path '*/metrics/train/loss' | wc -l)" = 1 ]
}

@test "an address that cannot be meant: what and why, before anything begins" {
    for address in http://me:secret@host/ HTTP://me:secret@host 'https://host/?secret' \
        postgresql://me:secret@host/x sqlite:///x; do
        ends 64 "tracking.mlflow" train 1 "$DIR/bad" "tracking.mlflow=$address"
        [[ "$output" != *secret* ]]
        [ ! -e "$DIR/bad" ]
    done
    ends 64 "tracking.mlflow_register is for a server" train 1 "$DIR/bad" \
        "tracking.mlflow=$DIR/m" tracking.mlflow_register=model
    run train 1 "$DIR/bad" tracking.prometheus=run.txt
    [ "$status" -eq 64 ] && [[ "$output" == *.prom* ]]
}

# seconds COMMAND...: how long it takes, on stdout
seconds() {
    local begin=$EPOCHREALTIME
    "$@" || return 1
    awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $begin }"
}

@test "no server, and one that never answers: the run is the same" {
    perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 50,
        LocalAddr => "127.0.0.1") or die; $| = 1; print $s->sockport, "\n"; sleep 600' \
        >port 3>&- &
    SERVER=$!
    wait_for 10 test -s port
    plain=$(seconds train 1 "$DIR/none" "${SMALL[@]}")
    refused=$(seconds train 1 "$DIR/refused" "${SMALL[@]}" \
        tracking.mlflow=http://127.0.0.1:1 tracking.mlflow_register=m 2>refused.log)
    hangs=$(seconds train 1 "$DIR/hangs" "${SMALL[@]}" "tracking.mlflow=http://127.0.0.1:$(cat port)" \
        tracking.mlflow_register=m tracking.finish_s=0.5 2>hangs.log)
    echo "# $plain s without trackers, $refused s refused, $hangs s without an answer" >&3
    for name in refused hangs; do
        cat $name.log
        [ "$(digest "$DIR/$name")" = "$(digest "$DIR/plain")" ]
        [ "$(grep -c 'tracking: mlflow: http' $name.log)" = 1 ]
        grep -q 'tracking: mlflow has not got 24 records' $name.log
        grep -q '"event": "tracking-lost".*"sink": "mlflow", "records": 24' \
            "$DIR/$name/ledger.jsonl"
        tail -n 1 "$DIR/$name/ledger.jsonl" | grep -q tracking-lost
    done
}

@test "what stands where a tracker writes is left alone" {
    mkdir -p "$DIR/links" "$DIR/outside"
    ln -s "$DIR/outside" "$DIR/links/tensorboard"
    mkdir "$DIR/links.prom"
    train 1 "$DIR/links" "${SMALL[@]}" tracking.tensorboard=true \
        "tracking.prometheus=$DIR/links.prom" 2>log
    cat log
    for sink in tensorboard prometheus; do
        [ "$(grep -c "tracking: $sink: " log)" = 1 ]
        grep -q "tracking: $sink has not got 24 records" log
    done
    [ -z "$(ls "$DIR/outside")" ]
    [ "$(digest "$DIR/links")" = "$(digest "$DIR/plain")" ]
}

@test "records of the run itself follow no link" {
    for name in metrics ledger; do
        mkdir -p "$DIR/planted.$name"
        echo precious >"$DIR/$name.target"
        ln -s "$DIR/$name.target" "$DIR/planted.$name/$name.jsonl"
        ends '!0' '' train 1 "$DIR/planted.$name" "${SMALL[@]}"
        echo "$output"
        [[ "$output" == *"$name.jsonl: is a link, which is not followed"* ]]
        [ "$(cat "$DIR/$name.target")" = precious ]
    done
    mkdir "$DIR/elsewhere"
    ln -s elsewhere "$DIR/linked"
    train 1 "$DIR/linked" "${SMALL[@]}"
    [ "$(digest "$DIR/linked")" = "$(digest "$DIR/plain")" ]
}

@test "commands of hooks are no parameters" {
    train 1 "$DIR/hooked" "${SMALL[@]}" "tracking.mlflow=$DIR/hooked.mlruns" \
        "hooks.on_fit_end=true # t0ken"
    ls "$DIR"/hooked.mlruns/*/*/params >params
    grep -q '^optimizer' params
    [ "$(grep -c -e '^hooks' -e '^plugins' params)" = 0 ]
    [ "$(grep -rl t0ken "$DIR/hooked.mlruns" | wc -l)" = 0 ]
}
