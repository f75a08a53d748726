# shellcheck shell=bash disable=SC2153,SC2154 # variables of tests/gpu/run
# Ranks on the GPUs of this machine, for tests/gpu/run: NCCL, the same bits on
# any number of GPUs, a rank that stops, memory and the plan, a GPU that two
# ranks would share.

BEYOND_PLAN=1536 # MiB beyond the plan: the driver's and the libraries' own

# gpu_counts: 1, 2, 4 and 8, as far as there are GPUs
gpu_counts() {
    local n
    for n in 1 2 4 8; do
        [ "$n" -gt "$GPUS" ] || echo "$n"
    done
}

# visible N: the first N GPUs as CUDA_VISIBLE_DEVICES, so that none is idle
visible() {
    if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
        cut -d , -f "1-$1" <<<"$CUDA_VISIBLE_DEVICES"
    else
        seq -s , 0 $(($1 - 1))
    fi
}

# all_ranks: the most that there are GPUs for, on all nodes
all_ranks() {
    local n
    n=$(gpu_counts | tail -n 1)
    echo $((n * ${NODES:-1}))
}

# launch N: sets `launcher` and CUDA_VISIBLE_DEVICES for N ranks with a GPU each
launch() {
    launcher=()
    CUDA_VISIBLE_DEVICES=$(visible $(($1 < GPUS ? $1 : GPUS)))
    if [ -n "$SRUN" ] && [ "$1" -gt 1 ]; then
        CUDA_VISIBLE_DEVICES=$(visible $(($1 / NODES)))
        launcher=(srun --mpi=pmix --kill-on-bad-exit=1 --ntasks="$1" --ntasks-per-node=$(($1 / NODES)))
    elif [ "$1" -gt 1 ]; then
        launcher=("$ROOT/tests/mpirun" "$1")
    fi
    export CUDA_VISIBLE_DEVICES
}

# on_ranks NAME SECONDS N COMMAND ...: a check on N ranks with a GPU each
on_ranks() {
    local name=$1 limit=$2 launcher CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-}
    launch "$3"
    shift 3
    check "$name" "$limit" "${launcher[@]}" "$@"
}

# metric NAME KEY: the text of a key in the last line of NAME's metrics
metric() {
    sed -nE "s/.*\"$2\": \"?([^\",}]*).*/\\1/p" "$WORK/$1/metrics.jsonl" 2>/dev/null | tail -n 1
}

# chosen NAME N REFERENCE: what computed and sent in a run on N GPUs
chosen() {
    local exchange attention want
    exchange=$(metric "$1" exchange)
    attention=$(metric "$1" attention)
    want=$(metric "$3" attention)
    if [ "$2" -gt 1 ] && [[ $exchange != "nccl "* ]]; then
        verdict "chosen-$1" FAILED "tensors did not travel by NCCL but: ${exchange:-unknown}"
    elif [ -z "$attention" ] || [ "$attention" != "$want" ]; then
        verdict "chosen-$1" FAILED "attention is ${attention:-unknown}, of $3 ${want:-unknown}"
    elif grep -q 'a slower kernel of our own does it' "$OUT/train-$1.log"; then
        verdict "chosen-$1" FAILED "$(grep -m 1 'a slower kernel of our own does it' "$OUT/train-$1.log" | cut -c 1-200)"
    else
        verdict "chosen-$1" ok "exchange $exchange, attention $attention, products $(metric "$1" products), $(metric "$1" step_ms) ms a step"
    fi
}

# memory_of NAME: what the GPU had in use beside the plan
memory_of() {
    local planned used
    read -r planned used < <(sed -nE 's/.*memory: planned ([0-9]+) MiB, in use on the GPU ([0-9]+) MiB.*/\1 \2/p' "$OUT/train-$1.log" | tail -n 1)
    if [ -z "${used:-}" ]; then
        verdict "memory-$1" FAILED "the run does not tell its memory, see train-$1.log"
    elif [ "$used" -gt $((planned + BEYOND_PLAN)) ]; then
        verdict "memory-$1" FAILED "$used MiB in use, $planned planned: more than $BEYOND_PLAN MiB beyond"
    else
        verdict "memory-$1" ok "$used MiB in use, $planned planned"
    fi
}

# five_steps NAME N [key=value ...]: with the algorithms that the first run chose
five_steps() {
    local command name=$1 n=$2 slots
    shift 2
    slots=$(all_ranks)
    slots=$((slots > 8 ? slots : 8))
    [ -z "$FIRST" ] || same_choices "$name" "$FIRST"
    train_command "$WORK/$name" hardware.backend=cuda train.precision=bf16 model.attn_uses_sequence_id=false \
        train.max_duration=5ba eval.interval=5ba train.global_batch=$((4 * slots)) parallel.slots=$slots log.level=info "$@"
    on_ranks "train-$name" 300 "$n" "${command[@]}"
}

# strategy_test STRATEGY N GRAPHS [NAME key=value ...]: five steps, beside FIRST
strategy_test() {
    local strategy=$1 n=$2 graphs=$3 name=${4:-$1-$2-$3}
    shift $(($# < 4 ? 3 : 4))
    five_steps "$name" "$n" "parallel.strategy=$strategy" "hardware.graphs=$graphs" "$@" || return
    FIRST=${FIRST:-$name}
    [ "$FIRST" = "$name" ] || same_digest "$name" "$FIRST"
    chosen "$name" "$n" "$FIRST"
    [ "$graphs" = off ] || memory_of "$name"
}

# group_tests N: groups of half of the ranks (of both of two), a power of two and at most
# the 8 experts, whose exchanges are between pairs: shards, experts, sequences in two chunks a rank; then fp8. Each
# has the bits of one rank with the same settings.
group_tests() {
    local n=$1 degree=$(($1 & -$1)) whole=$FIRST
    if [ "$n" -lt 2 ]; then
        verdict groups skipped "it takes 2 GPUs, and $GPUS are visible"
        return
    fi
    [ "$degree" -lt "$n" ] || [ "$n" -eq 2 ] || degree=$((degree / 2))
    degree=$((degree < 8 ? degree : 8))
    in_time "train-shards-$n" strategy_test zero3 "$n" auto "shards-$n" "parallel.shard_degree=$degree"
    group_pair experts "$n" zero3 "parallel.expert_degree=$degree" model.preset=moe-tiny
    group_pair sequences "$n" zero2 "parallel.sequence_degree=$degree" "parallel.sequence_chunks=$((2 * degree))"
    group_pair fp8 "$n" zero3 parallel.prefetch=1 train.precision=fp8
    FIRST=$whole
}

# group_pair NAME N STRATEGY SETTING [key=value ...]: on one rank, then on N, which
# alone have SETTING
group_pair() {
    local name=$1 n=$2 strategy=$3 setting=$4
    shift 4
    FIRST=
    in_time "train-$name-1" strategy_test "$strategy" 1 auto "$name-1" "$@"
    [ -z "$FIRST" ] || in_time "train-$name-$n" strategy_test "$strategy" "$n" auto "$name-$n" "$setting" "$@"
}

# Five steps with every strategy on 1, 2, 4 and 8 GPUs, microbatches as graphs
# and op by op: the same bits, by NCCL, with the same attention.
digest_tests() {
    local n strategy graphs
    FIRST=
    for n in $({ [ -z "$SRUN" ] && gpu_counts || echo 1; all_ranks; } | sort -nu); do
        for strategy in ddp zero1 zero2 zero3; do
            for graphs in auto off; do
                [[ $graphs = auto || $strategy = ddp || $strategy = zero1 ]] || continue
                strategy_test "$strategy" "$n" "$graphs"
            done
        done
    done
    group_tests "$(all_ranks)"
}

# ranks_of PID DIR: the processes of a run on this node, in the order of their numbers
ranks_of() {
    local pid
    if [ -z "$SRUN" ]; then
        pgrep -P "$1" -f tessera-train
        return
    fi
    for pid in $(pgrep -x tessera-train); do
        ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "run.dir=$2" || echo "$pid"
    done
}

# A rank that is stopped in the middle of a step is named by the other one, and
# the run ends.
stopped_rank_test() {
    local command pid victim lines=0 end limit code=0 launcher CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-}
    if [ "$(all_ranks)" -lt 2 ]; then
        verdict stopped-rank skipped "it takes 2 GPUs, and $GPUS are visible"
        return
    fi
    launch $((${NODES:-0} > 2 ? NODES : 2))
    train_command "$WORK/stopped" hardware.backend=cuda train.precision=bf16 train.max_duration=1000000ba \
        eval.interval=1000000ba checkpoint.interval=1000000ba train.global_batch=32 parallel.slots=8 parallel.timeout_s=10
    LD_LIBRARY_PATH=$LIBRARIES "${launcher[@]}" "${command[@]}" >"$OUT/stopped-rank.log" 2>&1 </dev/null &
    pid=$!
    limit=$(limit_of 120)
    end=$((SECONDS + limit))
    while [ "$lines" -lt 3 ] && [ $SECONDS -lt $end ] && kill -0 $pid 2>/dev/null; do
        sleep 0.1
        lines=$(wc -l 2>/dev/null <"$WORK/stopped/metrics.jsonl" || echo 0)
    done
    victim=$(ranks_of $pid "$WORK/stopped" | tail -n 1)
    if [ -z "$victim" ] || ! kill -STOP "$victim"; then
        [[ $limit -eq 120 || $SECONDS -lt $end || $lines -ge 3 ]] || code=$ENDED
        failed stopped-rank $code "there was no rank to stop after $lines steps, see stopped-rank.log: $(tail -n 1 "$OUT/stopped-rank.log" | cut -c 1-200)"
        end_run $pid
        return
    fi
    end=$((SECONDS + 60))
    while [ $SECONDS -lt $end ] && kill -0 $pid 2>/dev/null; do
        sleep 0.1
    done
    kill -CONT "$victim" 2>/dev/null
    if kill -0 $pid 2>/dev/null; then
        # shellcheck disable=SC2046 # numbers are words
        end_run $pid $(ranks_of $pid "$WORK/stopped")
        verdict stopped-rank FAILED "the others still waited after 60 s with a deadline of 10 s"
        return
    fi
    wait $pid || code=$?
    if [ $code -ne 0 ] && grep -qE 'rank [01] \(' "$OUT/stopped-rank.log"; then
        verdict stopped-rank ok "$(grep -m 1 -oE 'rank [01] \(.*' "$OUT/stopped-rank.log" | cut -c 1-150)"
    else
        verdict stopped-rank FAILED "exit status $code, nobody was named, see stopped-rank.log"
    fi
}

# The real NCCL on all GPUs, and what it moves.
nccl_tests() {
    local n launcher CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-}
    n=$(all_ranks)
    if [ ! -x "$PROGRAMS/test_nccl" ]; then
        verdict test_nccl FAILED "this build has no test of NCCL"
    elif [ "$n" -lt 2 ]; then
        verdict test_nccl skipped "NCCL refuses two ranks on one GPU, and $GPUS are visible"
    else
        launch "$n"
        tap test_nccl 300 "${launcher[@]}" "$PROGRAMS/test_nccl"
        sed -n 's/^# rate/    rate/p' "$OUT/test_nccl.log" | while read -r line; do say "    $line"; done
    fi
}

# Two ranks with one GPU are refused, or exchange through the host where that is
# allowed, with the bits of one rank.
shared_gpu_test() {
    local command refused
    train_command "$WORK/refused" hardware.backend=cuda train.precision=bf16
    CUDA_VISIBLE_DEVICES=$(visible 1) run_logged train-refused 120 "$ROOT/tests/mpirun" 2 "${command[@]}"
    refused=$?
    if [ $refused -ne 0 ] && grep -q 'shares GPU' "$OUT/train-refused.log"; then
        verdict shared-gpu-refused ok "$(grep -m 1 -oE 'rank [0-9]+ shares GPU .* with rank [0-9]+' "$OUT/train-refused.log")"
    else
        verdict shared-gpu-refused FAILED "exit status $refused, see train-refused.log: $(tail -n 1 "$OUT/train-refused.log" | cut -c 1-200)"
    fi
    same_choices two-ranks cuda-bf16
    train_command "$WORK/two-ranks" hardware.backend=cuda train.precision=bf16 hardware.fallback=warn
    CUDA_VISIBLE_DEVICES=$(visible 1) check train-two-ranks 400 "$ROOT/tests/mpirun" 2 "${command[@]}" || return
    same_digest two-ranks cuda-bf16
    if [ "$(metric two-ranks exchange)" = staged ]; then
        verdict exchange-two-ranks ok staged
    else
        verdict exchange-two-ranks FAILED "tensors went by $(metric two-ranks exchange)"
    fi
}

has_mpirun() {
    mpirun --version 2>/dev/null | grep -q '^mpirun (Open MPI) 4\.'
}

# why_no_ranks: the reason, or nothing
why_no_ranks() {
    local reason
    reason=$(why_no_training)
    if [ -z "$reason" ] && [ -n "$SRUN" ] && [ -z "${SLURM_JOB_ID:-}" ]; then
        reason="--srun is for within a job of Slurm (salloc, sbatch)"
    elif [ -z "$reason" ] && [ -z "$SRUN" ] && ! has_mpirun; then
        reason="there is no mpirun of Open MPI 4"
    fi
    echo "$reason"
}

ranks_tests() {
    local reason
    reason=$(why_no_ranks)
    if [ -n "$reason" ]; then
        verdict ranks skipped "$reason"
        return
    fi
    digest_tests
    stopped_rank_test
    nccl_tests
}
