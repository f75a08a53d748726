#!/bin/bash
# Trackers' own packages read what runs have sent: TensorBoard, MLflow from a file
# store and from a server of its own that is started here, Prometheus' parser. All
# of it comes from the Python package index into TESSERA_INTEROP_DIR (default
# build/peers) and stays there; without it the test is skipped.
# shellcheck disable=SC2317 # functions that check calls
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
export MLFLOW_ALLOW_FILE_STORE=true GIT_PYTHON_REFRESH=quiet OMP_NUM_THREADS=1

read_by() {
    "$VENV/bin/python" "$HERE/track.py" "$@"
}

command_of() { # RUN SETTING...
    local run=$1
    shift
    command=("$BIN/tessera-train" "$HERE/../../jobs/conf/tiny.cfg"
        "run.dir=$WORK/$run" "data.train=$WORK/set/train" "data.eval=$WORK/set/eval"
        data.seq_len=64 train.global_batch=8 train.max_duration=24ba
        checkpoint.interval=5ba scheduler.warmup=3ba eval.interval=6ba
        eval.samples=8 "generate.prompts=$WORK/prompts" generate.max_tokens=8
        generate.interval=12ba "tracking.experiment=a first try" log.level=warn
        "$@")
}

train() { # RUN SETTING...
    local command
    command_of "$@"
    "${command[@]}"
}

# logged RUN STEPS: waits until there are so many lines
logged() {
    for _ in $(seq 600); do
        [ "$(grep -cs . "$WORK/$1/metrics.jsonl")" -ge "$2" ] 2>/dev/null && return
        sleep 0.05
    done
    return 1
}

killed_and_resumed() { # RUN SETTING...
    local command pid
    command_of "$@"
    "${command[@]}" &
    pid=$!
    logged "$1" 13
    sleep "${KILL_AFTER:-0}"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    train "$@"
}

venv_track || skip "$VENV_MISSING"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-track.XXXXXX")
SERVER=
finish() {
    [ -z "$SERVER" ] || kill -- "-$SERVER" 2>/dev/null
    rm -rf "$WORK"
}
trap finish EXIT

"$HERE/../english-text" 300000 >"$WORK/text"
printf 'the king\nonce\n' >"$WORK/prompts"
"$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.05 --out "$WORK/set" \
    "$WORK/text" >"$WORK/log" 2>&1 || exit 1

for run in whole killed; do
    how=train
    [ $run = whole ] || how=killed_and_resumed
    check "a run, $run" $how $run tracking.tensorboard=true \
        "tracking.prometheus=$WORK/$run.prom" "tracking.mlflow=$WORK/$run.mlruns"
    check "$run: TensorBoard reads it" read_by tensorboard "$WORK/$run"
    check "$run: Prometheus' parser does" read_by prometheus "$WORK/$run.prom"
    check "$run: MLflow reads the folder" \
        read_by mlflow "file://$WORK/$run.mlruns" "$WORK/$run" FINISHED
done

# --- a server -------------------------------------------------------------------
start_server() {
    setsid "$VENV/bin/python" -m mlflow server --host 127.0.0.1 --port "$PORT" --workers 1 \
        --backend-store-uri "sqlite:///$WORK/mlflow.db" \
        --artifacts-destination "$WORK/artifacts" >>"$WORK/server.log" 2>&1 &
    SERVER=$!
    for _ in $(seq 600); do
        "$VENV/bin/python" - "$PORT" <<'PYTHON' 2>/dev/null && return
import sys, urllib.request
urllib.request.urlopen("http://127.0.0.1:%s/health" % sys.argv[1], timeout=2)
PYTHON
        kill -0 "$SERVER" 2>/dev/null || break
        sleep 0.2
    done
    cat "$WORK/server.log"
    return 1
}

PORT=$("$VENV/bin/python" -c '
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
URI=http://127.0.0.1:$PORT
check "an MLflow server starts" start_server
REGISTER=("tracking.mlflow=$URI" "tracking.mlflow_register=my model"
    checkpoint.keep_best=true checkpoint.interval=6ba)
check "a run to the server" train rest "${REGISTER[@]}"
check "the server has it" read_by mlflow "$URI" "$WORK/rest" FINISHED
check "its registry has the best checkpoint" read_by registry "$URI" "$WORK/rest" 1
check "the finished run again" train rest "${REGISTER[@]}"
check "which registers nothing new" read_by registry "$URI" "$WORK/rest" 1
check "a longer one" train rest "${REGISTER[@]}" train.max_duration=30ba
check "is another version" read_by registry "$URI" "$WORK/rest" 2
# one that is killed when the server has its first steps
KILL_AFTER=1.5 check "a run that is killed and goes on" killed_and_resumed rest-killed \
    "tracking.mlflow=$URI" train.max_duration=200ba
check "is one run, each step once" read_by mlflow "$URI" "$WORK/rest-killed" FINISHED killed

finish_points
