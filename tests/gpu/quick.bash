# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # variables of tests/gpu/run
# The first ten minutes on a machine, for tests/gpu/run: a line as soon as it is
# known, what is worth most first, and at the end ten lines to send. After
# QUICK_S no check begins, and none lasts longer.

QUICK_S=540
QUICK_MODELS="125m 1b"
declare -A TOLD=() # name of a check: "STATE detail"

# quick_left: seconds that a check may still take
quick_left() {
    local left=$((QUICK_S - SECONDS))
    echo $((left > 0 ? left : 0))
}

# in_time NAME FUNCTION [ARG ...]: unless the time is over
in_time() {
    local name=$1
    shift
    if [ "$(quick_left)" -lt 5 ]; then
        verdict "$name" skipped "$QUICK_S s are over: tests/gpu/run --full"
    else
        "$@"
    fi
}

# plan_gpu_name: the GPU as tessera-plan calls it; empty where it does not know it,
# as of a part of one (MIG) and of those that are slower (NVL) or elsewhere (GH200)
plan_gpu_name() {
    case $device in
        *\ H100\ PCIe,*) echo h100-pcie ;;
        *\ H100\ 80GB\ HBM3,*) echo h100-sxm ;;
        *\ H200,*) echo h200 ;;
        *\ B200,*) echo b200 ;;
        *\ A100-SXM*-40GB,*) echo a100-40 ;;
        *\ A100-SXM*-80GB,*) echo a100-80 ;;
    esac
}

# prediction [key=value ...]: the line of JSON of predict; empty where there is none
prediction() {
    local gpu
    gpu=$(plan_gpu_name)
    [ -z "$gpu" ] || LD_LIBRARY_PATH=$LIBRARIES timeout -k 1 30 "$PROGRAMS/predict" --json --gpu "$gpu" "$@" 2>/dev/null
}

# predicted [key=value ...]: MFU in words
predicted() {
    local line
    line=$(prediction "$@" | sed -nE 's/.*"mfu": \{"low": ([0-9.]+), "expected": ([0-9.]+), "high": ([0-9.]+)\}.*/predicted \1 to \3, \2 expected/p')
    echo "${line:-without a prediction}"
}

# ceiling NAME CODE CHECK UNIT PEAK LOW EXPECTED HIGH: what tessera-health measured on
# the slowest GPU, beside shares of a sheet's figure
ceiling() {
    local got
    got=$(sed -nE "s/.*\"id\":\"$3\",\"v\":([0-9.]+),[^}]*\"st\":\"(ok|warn)\".*/\1/p" "$OUT/ceilings.log")
    if [ -n "$got" ]; then
        verdict "$1" ok "$got $4, $(awk -v peak="${5:-0}" -v low="$6" -v expected="$7" -v high="$8" 'BEGIN {
            if (peak > 0) printf "predicted %d to %d, %d expected", low * peak, high * peak, expected * peak
            else print "without a prediction" }')"
    else
        failed "$1" "$2" "$(grep -oE "\"id\":\"$3\"[^}]*" "$OUT/ceilings.log" | grep -oE '"text":"[^"]*"' | cut -c 1-150), see ceilings.log"
    fi
}

# Bytes that a copy reads and writes, and products of side 8192, on all GPUs at once.
ceilings() {
    local sheet code=0
    if [ ! -x "$BIN/tessera-health" ]; then
        verdict copy-rate skipped "tessera-health was not built"
        return
    fi
    sheet=$(prediction mpt-125m)
    # 20 s beyond its budget, in which it tells what it has
    run_logged ceilings 80 "$BIN/tessera-health" job --only gpugemm,hbm --gpus "$GPUS" --json --budget 60 || code=$?
    ceiling copy-rate $code hbm GB/s "$(sed -nE 's/.*"memory_gbps": ([0-9.]+).*/\1/p' <<<"$sheet")" .75 .85 .93
    ceiling product-8192 $code gpugemm TFLOP/s "$(sed -nE 's/.*"peak_tflops": ([0-9.]+).*/\1/p' <<<"$sheet")" .6 .72 .8
}

# The same bits on one GPU and on all by the two ends of the strategies, then in
# groups, which are the exchanges between pairs.
quick_digests() {
    local n all
    FIRST=
    all=$(all_ranks)
    for n in $(printf '%s\n' 1 "$all" | sort -nu); do
        in_time "train-zero1-$n" strategy_test zero1 "$n" auto
        in_time "train-zero3-$n" strategy_test zero3 "$n" auto
    done
    group_tests "$all"
}

quick_tests() {
    in_time test_attention_cudnn attention_test 90 --quick
    in_time products products_test 90 --quick
    in_time copy-rate ceilings
    in_time models models_tests "$QUICK_MODELS"
    local reason
    reason=$(why_no_ranks)
    if [ -n "$reason" ]; then
        verdict ranks skipped "$reason"
        return
    fi
    in_time test_nccl nccl_tests
    quick_digests
    in_time stopped-rank stopped_rank_test
}

# count_of PATTERN STATE: of checks whose names begin so
count_of() {
    local name count=0
    for name in "${!TOLD[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ $name == $1 && ${TOLD[$name]} == "$2 "* ]] && count=$((count + 1))
    done
    echo "$count"
}

told() {
    echo "${TOLD[$1]:-not run}"
}

# Ten lines for whoever asks how it went.
send_this() {
    local name first=
    for name in "${ORDER[@]}"; do
        [[ ${TOLD[$name]} != FAILED* ]] || first=${first:-$name: ${TOLD[$name]#FAILED }}
    done
    say ""
    say "---- send this ----"
    say "1 $(date -u +%Y-%m-%d) commit $COMMIT, $SECONDS s, $GPUS GPUs${NODES:+ on each of $NODES nodes}"
    say "2 ${device:0:200}"
    say "3 $(clocks_told)"
    say "4 attention: $(told test_attention_cudnn); products: $(told products)"
    say "5 copy: $(told copy-rate); 8192^3: $(told product-8192)"
    say "6 125m: $(told model-125m)"
    say "7 1b: $(told model-1b)"
    say "8 NCCL: $(told test_nccl)$(sed -n 's/^# rate \(all-[a-z-]* of 256 MiB\).*ranks: /; \1 /p' "$OUT/test_nccl.log" 2>/dev/null | tr -d '\n'); stopped rank: $(told stopped-rank)"
    say "9 digests: $(count_of 'digest-*' ok) the same, $(count_of 'digest-*' FAILED) not; memory: $(count_of 'memory-*' ok) within the plan, $(count_of 'memory-*' FAILED) beyond"
    say "10 $CHECKS checks, $FAILED failed, $SKIPPED skipped${first:+; first ${first:0:150}}"
}
