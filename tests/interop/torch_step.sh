#!/bin/bash
# The optimizer step side by side with PyTorch on this CPU, fp32: the same model,
# weights, batch (4 x 64 tokens) and two threads; forward, backward, the gradient's
# norm and AdamW (fused); PyTorch eager and by torch.compile. Three processes take
# turns step by step. PyTorch comes from the Python package index (venv.bash);
# without it the test is skipped. MODELS (125m 10m), ROUNDS (20), THREADS (2);
# 125m wants 8 GB of memory.
#
# All spin for a moment and then sleep, as our programs do by themselves:
# PyTorch's default, threads that spin, takes twice as long where others use the
# machine.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
STEP=$BIN/../interop/step
ROUNDS=${ROUNDS:-20}
THREADS=${THREADS:-2}
WARMING=3 # rounds that are not counted: first touch, compilation
KINDS="ours eager compiled"
PIDS=()
declare -A ASK ANSWER

bail_out() {
    echo "Bail out! $1"
    tail -n 5 "$WORK/errors" | sed 's/^/# /'
    exit 1
}

# start KIND COMMAND...: a process that makes a step for every line it reads
start() {
    local kind=$1 ask answer
    shift
    rm -f "$WORK/$kind.ask" "$WORK/$kind.answer"
    mkfifo "$WORK/$kind.ask" "$WORK/$kind.answer"
    "$@" <"$WORK/$kind.ask" >"$WORK/$kind.answer" 2>>"$WORK/errors" &
    PIDS+=($!)
    exec {ask}>"$WORK/$kind.ask" {answer}<"$WORK/$kind.answer"
    ASK[$kind]=$ask
    ANSWER[$kind]=$answer
}

# stop: end of input ends them
stop() {
    local kind ask answer
    for kind in "${!ASK[@]}"; do
        ask=${ASK[$kind]} answer=${ANSWER[$kind]}
        exec {ask}>&- {answer}<&-
    done
    [ ${#PIDS[@]} = 0 ] || wait "${PIDS[@]}"
    PIDS=()
    ASK=()
}

# turn KIND: one step; "SECONDS LOSS" goes to its file
turn() {
    local line=
    echo >&"${ASK[$1]}"
    read -r -t 1800 line <&"${ANSWER[$1]}"
    [[ $line =~ ^[0-9.]+\ [0-9.]+$ ]] || bail_out "$1: '$line'"
    echo "$line" >>"$WORK/$MODEL.$1"
}

# seconds KIND: their median
seconds() {
    tail -n +$((WARMING + 1)) "$WORK/$MODEL.$1" | sort -n | awk '{ v[NR] = $1 }
        END { low = int((NR + 1) / 2); high = int(NR / 2) + 1
            printf "%.4f", (v[low] + v[high]) / 2 }'
}

# same_losses KIND: in the first steps, before rounding has grown
same_losses() {
    paste -d ' ' "$WORK/$MODEL.ours" "$WORK/$MODEL.$1" | head -n 5 |
        awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2) bad = 1 }
            END { exit bad }'
}

measure() {
    local kind
    "$STEP" write "$MODEL" "$WORK" || bail_out "step write $MODEL"
    start ours "$STEP" times "$MODEL" "$THREADS"
    for kind in eager compiled; do
        start "$kind" "$VENV/bin/python" "$HERE/torch_step.py" "$WORK" "$kind" \
            "$THREADS"
    done
    for _ in $(seq $((WARMING + ROUNDS))); do
        for kind in $KINDS; do
            turn "$kind"
        done
    done
    stop
}

# report KIND: ratio of its median to ours
report() {
    local ratio
    ratio=$(awk -v a="$(seconds "$1")" -v b="$(seconds ours)" \
        'BEGIN { printf "%.2f", a / b }')
    echo "# $MODEL: $1 $(seconds "$1") s, ours $(seconds ours) s, ratio $ratio"
    check "$MODEL: the losses of $1" same_losses "$1"
    check "$MODEL: ours is faster than $1" \
        awk -v ratio="$ratio" 'BEGIN { exit !(ratio > 1) }'
}

[ -x "$STEP" ] || skip "$STEP was not built: make interop-step"
venv_torch || skip "$VENV_MISSING"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-torch.XXXXXX")
trap 'kill "${PIDS[@]}" 2>/dev/null; rm -rf "$WORK"' EXIT
trap '' PIPE
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=2000 TORCHINDUCTOR_CACHE_DIR=$WORK/cache
echo "# PyTorch $("$VENV/bin/python" -c 'import torch; print(torch.__version__)')"
for MODEL in ${MODELS:-125m 10m}; do
    measure
    report eager
    report compiled
done

finish_points
