# shellcheck shell=bash disable=SC2154 # variables of tests/gpu/run
# Training on the GPU beside the CPU's, for tests/gpu/run: a function a subject,
# each skipped with the reason where something is missing.

STEPS=50
DATA=$BUILD/tiny-data
CONF=$ROOT/jobs/conf/tiny.cfg

# train_command DIR [key=value ...]: sets the array `command`
train_command() {
    local dir=$1
    shift
    command=("$BIN/tessera-train" "$CONF" "run.dir=$dir" "data.train=$DATA/train"
        "data.eval=$DATA/eval" "train.max_duration=${STEPS}ba" "eval.interval=${STEPS}ba"
        log.level=warn "$@")
}

# train NAME [key=value ...]: into $WORK/NAME
train() {
    local command name=$1
    shift
    train_command "$WORK/$name" "$@"
    check "train-$name" 400 "${command[@]}"
}

# last_losses NAME: the mean of the last ten steps' losses
last_losses() {
    sed -nE 's/.*"step": ([0-9]+),.*"loss": ([^,}]+).*/\1 \2/p' "$WORK/$1/metrics.jsonl" |
        sort -n | tail -n 10 | awk '{ sum += $2 } END { if (NR == 10) printf "%.6f\n", sum / NR }'
}

# close_losses NAME REFERENCE LIMIT [WHERE]
close_losses() {
    local got want where=${4:-on the CPU}
    got=$(last_losses "$1")
    want=$(last_losses "$2")
    if [ -z "$got" ] || [ -z "$want" ]; then
        verdict "loss-$1" FAILED "no losses of ten steps"
    elif awk -v a="$got" -v b="$want" -v limit="$3" 'BEGIN { d = (a - b) / b; exit !(d <= limit && -d <= limit) }'; then
        verdict "loss-$1" ok "$got, $where $want, limit $3"
    else
        verdict "loss-$1" FAILED "$got, $where $want: more than $3 apart"
    fi
}

# digest_of NAME: of its newest checkpoint
digest_of() {
    local newest
    newest=$(printf '%s\n' "$WORK/$1"/checkpoints/step-* | tail -n 1)
    LD_LIBRARY_PATH=$LIBRARIES "$BIN/tessera-ckpt" digest "$newest" 2>&1
}

# same_digest NAME REFERENCE
same_digest() {
    local got want
    got=$(digest_of "$1")
    want=$(digest_of "$2")
    if [ -n "$got" ] && [ "$got" = "$want" ]; then
        verdict "digest-$1" ok "that of $2"
    else
        verdict "digest-$1" FAILED "not that of $2: ${got:0:80} and ${want:0:80}"
    fi
}

# A run that is killed half-way and started again ends in the same bits.
resume_test() {
    local command pid end=$((SECONDS + 300)) lines=0
    same_choices resumed cuda-bf16
    train_command "$WORK/resumed" hardware.backend=cuda train.precision=bf16 checkpoint.interval=10ba
    LD_LIBRARY_PATH=$LIBRARIES "${command[@]}" >"$OUT/train-killed.log" 2>&1 </dev/null &
    pid=$!
    while [ "$lines" -lt $((STEPS / 2)) ] && [ $SECONDS -lt $end ] && kill -0 $pid 2>/dev/null; do
        sleep 0.05
        lines=$(wc -l 2>/dev/null <"$WORK/resumed/metrics.jsonl" || echo 0)
    done
    if kill -9 $pid 2>/dev/null; then
        wait $pid 2>/dev/null
        verdict train-killed ok "after $lines of $STEPS steps"
    else
        verdict train-killed FAILED "it ended by itself, see train-killed.log: $(tail -n 1 "$OUT/train-killed.log" | cut -c 1-200)"
    fi
    train resumed hardware.backend=cuda train.precision=bf16 checkpoint.interval=10ba && same_digest resumed cuda-bf16
}

# same_choices NAME REFERENCE: the algorithms that REFERENCE measured, which bits
# follow from
same_choices() {
    mkdir -p "$WORK/$1"
    [ ! -e "$WORK/$2/choices" ] || cp "$WORK/$2/choices" "$WORK/$1/"
}

# Microbatches as graphs, beside the same op by op.
graphs_test() {
    same_choices op-by-op cuda-bf16
    train op-by-op hardware.backend=cuda train.precision=bf16 hardware.graphs=off && same_digest op-by-op cuda-bf16
    if grep -q 'not as graphs' "$OUT/train-cuda-bf16.log"; then
        verdict graphs FAILED "$(grep 'not as graphs' "$OUT/train-cuda-bf16.log" | head -n 1 | cut -c 1-200)"
    else
        verdict graphs ok "CUDA refused none"
    fi
}

# why_no_training: the reason, or nothing
why_no_training() {
    local key help
    if [ ! -x "$BIN/tessera-train" ] || [ ! -x "$BIN/tessera-ckpt" ]; then
        echo "tessera-train and tessera-ckpt were not built"
        return
    fi
    help=$(LD_LIBRARY_PATH=$LIBRARIES "$BIN/tessera-train" --help 2>&1)
    for key in hardware.backend train.precision; do
        if [[ $help != *" $key "* ]]; then
            echo "tessera-train has no setting $key"
            return
        fi
    done
    [ -e "$DATA/train/index.json" ] || echo "there is no $DATA (make tiny-data)"
}

training_tests() {
    local reason
    reason=$(why_no_training)
    if [ -n "$reason" ]; then
        verdict training skipped "$reason"
    else
        train cpu-fp32 hardware.backend=cpu train.precision=fp32
        train cuda-fp32 hardware.backend=cuda train.precision=fp32 && close_losses cuda-fp32 cpu-fp32 1e-3
        if train cuda-bf16 hardware.backend=cuda train.precision=bf16; then
            close_losses cuda-bf16 cpu-fp32 2e-2
            graphs_test
            train cuda-fp8 hardware.backend=cuda train.precision=fp8 && close_losses cuda-fp8 cuda-bf16 3e-2 "in bf16"
            resume_test
            if has_mpirun; then
                shared_gpu_test
            else
                verdict shared-gpu skipped "there is no mpirun of Open MPI 4"
            fi
        fi
    fi
}

# Whole models, one GPU: name, then settings; elastic unless they say otherwise.
# Of 7b as many layers as fit with their optimizer state. "ops": without graphs,
# whose gain is largest with small microbatches.
models() {
    cat <<'END'
125m model.preset=mpt-125m data.seq_len=2048 train.microbatch=32 train.global_batch=64 parallel.slots=1
125m-fast model.preset=mpt-125m data.seq_len=2048 train.microbatch=32 train.global_batch=64 parallel.slots=1 parallel.determinism=fast
125m-ops model.preset=mpt-125m data.seq_len=2048 train.microbatch=32 train.global_batch=64 parallel.slots=1 hardware.graphs=off
125m-small model.preset=mpt-125m data.seq_len=512 train.microbatch=1 train.global_batch=64 parallel.slots=1
125m-small-ops model.preset=mpt-125m data.seq_len=512 train.microbatch=1 train.global_batch=64 parallel.slots=1 hardware.graphs=off
350m model.preset=mpt-350m data.seq_len=2048 train.microbatch=32 train.global_batch=64 parallel.slots=1
760m model.preset=mpt-760m data.seq_len=2048 train.microbatch=16 train.global_batch=32 parallel.slots=1
1b model.preset=mpt-1b data.seq_len=2048 train.microbatch=16 train.global_batch=32 parallel.slots=1
7b-layers model.preset=mpt-7b model.n_layers=20 data.seq_len=2048 train.microbatch=8 train.global_batch=16 parallel.slots=1
1b-fp8 model.preset=mpt-1b data.seq_len=2048 train.microbatch=16 train.global_batch=32 parallel.slots=1 train.precision=fp8
7b-layers-fp8 model.preset=mpt-7b model.n_layers=20 data.seq_len=2048 train.microbatch=8 train.global_batch=16 parallel.slots=1 train.precision=fp8
END
}

# Their steps beside the ceiling of this GPU.
bench_mfu() {
    local help name settings
    help=$(LD_LIBRARY_PATH=$LIBRARIES "$BIN/tessera-bench" --help 2>&1)
    if [[ $help != *mfu* ]]; then
        verdict bench-mfu skipped "tessera-bench has no mfu"
        return
    fi
    while read -r name settings; do
        # shellcheck disable=SC2086 # settings are words
        check "bench-mfu-$name" 300 "$BIN/tessera-bench" mfu --seconds 15 --json hardware.backend=cuda $settings || continue
        say "    $(grep '^{' "$OUT/bench-mfu-$name.log" | tail -n 1)"
        # a figure of our own attention would say little about the rest
        if grep -qE 'attention cuDNN [0-9]+ for [1-9][0-9]* of [0-9]+ shapes"' "$OUT/bench-mfu-$name.log"; then
            verdict "attention-$name" ok "$(grep -m 1 -oE 'attention cuDNN [^"]*' "$OUT/bench-mfu-$name.log")"
        else
            verdict "attention-$name" FAILED "not cuDNN's: $(grep -m 1 -oE '"algorithms": "[^"]*' "$OUT/bench-mfu-$name.log")"
        fi
    done < <(models)
}
