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

# kill_after STEPS NAME COMMAND ...: a run into $WORK/NAME that is killed as soon as
# so many are in its metrics; sets `lines` to how many those are, and fails if it
# ended by itself, with ENDED if the ten minutes ended. Its output goes to train-killed-NAME.log
kill_after() {
    local want=$1 name=$2 pid limit end
    shift 2
    limit=$(limit_of 300)
    end=$((SECONDS + limit))
    lines=0
    LD_LIBRARY_PATH=$LIBRARIES "$@" >"$OUT/train-killed-$name.log" 2>&1 </dev/null &
    pid=$!
    while [ "$lines" -lt "$want" ] && [ $SECONDS -lt $end ] && kill -0 $pid 2>/dev/null; do
        sleep 0.05
        lines=$(wc -l 2>/dev/null <"$WORK/$name/metrics.jsonl" || echo 0)
    done
    kill -0 $pid 2>/dev/null || return 1
    disown $pid 2>/dev/null
    kill -9 $pid
    gone $pid 10 || say "    process $pid does not end after kill -9"
    [ "$lines" -lt "$want" ] || return 0
    [ "$limit" -eq 300 ] || return $ENDED
    return 1
}

# A run that is killed half-way and started again ends in the same bits.
resume_test() {
    local command lines
    same_choices resumed cuda-bf16
    train_command "$WORK/resumed" hardware.backend=cuda train.precision=bf16 checkpoint.interval=10ba
    if kill_after $((STEPS / 2)) resumed "${command[@]}"; then
        verdict train-killed ok "after $lines of $STEPS steps"
    else
        verdict train-killed FAILED "it ended by itself or took too long, see train-killed-resumed.log: $(tail -n 1 "$OUT/train-killed-resumed.log" | cut -c 1-200)"
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

# text_of SEQ_LEN: the folder of a data set whose samples have so many tokens
text_of() {
    local folder=$WORK/text-$1
    if [ ! -d "$folder" ]; then
        head -c 6000000 /dev/urandom | base64 >"$WORK/text"
        run_logged "text-$1" 100 "$BIN/tessera-data" tokenize --seq-len "$1" --out "$folder" "$WORK/text" || return $?
    fi
    echo "$folder"
}

# median NAME KEY: of the last seven steps
median() {
    sed -nE "s/.*\"$2\": ([^,}]*).*/\1/p" "$WORK/$1/metrics.jsonl" | tail -n 7 | sort -g | sed -n 4p
}

# Ten steps of each, ended before a checkpoint: tokens in a second, MFU, and who
# computes attention, since a figure of our own would say little about the rest.
# models_tests [NAMES]: all, or these
models_tests() {
    local name settings seq text lines attention code names=${1:-}
    if [ ! -x "$BIN/tessera-train" ] || [ ! -x "$BIN/tessera-data" ]; then
        verdict models skipped "tessera-train and tessera-data were not built"
        return
    fi
    : >"$WORK/model.cfg"
    while read -r name settings; do
        [[ -z $names || " $names " == *" $name "* ]] || continue
        seq=$(sed -E 's/.*data\.seq_len=([0-9]+).*/\1/' <<<"$settings")
        text=$(text_of "$seq")
        code=$?
        if [ $code -ne 0 ]; then
            failed "model-$name" $code "no text, see text-$seq.log: $(tail -n 1 "$OUT/text-$seq.log" | cut -c 1-200)"
            continue
        fi
        # shellcheck disable=SC2046,SC2086 # settings are words
        if kill_after 10 "model-$name" "$BIN/tessera-train" "$WORK/model.cfg" "run.dir=$WORK/model-$name" "data.train=$text" \
            hardware.backend=cuda train.max_duration=1000000ba checkpoint.interval=0ba $settings; then
            verdict "model-$name" ok "$(median "model-$name" step_ms) ms a step, $(median "model-$name" tokens_per_s) tokens/s, MFU $(median "model-$name" mfu), causal $(median "model-$name" mfu_causal) of $(metric "model-$name" peak_source), $(predicted $settings)"
        else
            failed "model-$name" $? "$lines of 10 steps, see train-killed-model-$name.log: $(tail -n 1 "$OUT/train-killed-model-$name.log" | cut -c 1-200)"
            continue
        fi
        attention=$(metric "model-$name" attention)
        if [[ $attention == cudnn* ]]; then
            verdict "attention-$name" ok "$attention"
        else
            verdict "attention-$name" FAILED "not cuDNN's but: ${attention:-unknown}"
        fi
        rm -rf "${WORK:?}/model-$name"
    done < <(models)
}
