#!/usr/bin/env bats
# tests/gpu/run and tests/gpu/pack: the archive runs in a clean folder and says
# that there is no GPU; on a machine that seems to have one, what is checked,
# skipped and failed, by stand-ins for the programs.
bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/.." || exit
    BUILD=$(dirname "${TESSERA_BIN:-$PWD/build/bin}")
    DIR=$BATS_TEST_TMPDIR
    TREE=$DIR/tree
}

# stand_in FILE: a program of the tree, its text on stdin
stand_in() {
    mkdir -p "$(dirname "$TREE/$1")"
    { echo '#!/bin/bash'; cat; } >"$TREE/$1"
    chmod +x "$TREE/$1"
}

# A machine with $GPUS GPUs (1) on which all is well. The ranks of the stand-in
# for training send by NCCL, unless they share a GPU or $STAGED is set; the one
# that is to be stopped waits, and rank 0 names it.
# shellcheck disable=SC2016 # what stand-ins expand
make_tree() {
    mkdir -p "$TREE/tests/gpu" "$TREE/jobs/conf" "$TREE/build/tiny-data/train" "$TREE/libs"
    cp tests/gpu/run tests/gpu/*.bash "$TREE/tests/gpu/"
    touch "$TREE/jobs/conf/tiny.cfg" "$TREE/build/tiny-data/train/index.json"
    touch "$TREE/libs/"lib{cublasLt.so.13,cudnn.so.9,nccl.so.2,nvrtc.so.13}
    echo 1234abc >"$TREE/commit"
    stand_in tests/mpirun <<'END'
n=$1
shift
for ((r = 0; r < n; r++)); do RANK=$r RANKS=$n "$@" & pids[r]=$!; done
wait "${pids[0]}"
code=$?
kill -9 "${pids[@]}" 2>/dev/null
exit $code
END
    stand_in bin/mpirun <<<'echo "mpirun (Open MPI) 4.1.4"'
    stand_in bin/nvidia-smi <<'END'
case "$*" in
    *=clocks_event_reasons.active*) [ -z "$OLD_DRIVER" ] || { echo "Field \"clocks_event_reasons.active\" is not a valid field"; exit 2; } ;;
    *=clocks_throttle_reasons.active*) [ -n "$OLD_DRIVER" ] || exit 2 ;;
    *-lms*)
        [[ $* == *,clocks_${OLD_DRIVER:-event}* ]] || exit 2
        echo "now, 0, 1755, 2619, 650, 70, 0x4" && echo "now, 0, 1980, 2619, 690, 71, 0x0" && exec sleep 60 ;;
    topo*) printf 'GPU0\t X \tNV18\n' ;;
    *) echo "Pretended, 580.1" ;;
esac
END
    stand_in bin/ldconfig <<<'echo "libcublasLt.so.13 (libc6,x86-64) => /here"'
    stand_in bin/compute-sanitizer <<<'while [[ $1 == -* ]]; do shift 2; done; exec "$@"'
    stand_in build/gpu/products <<'END'
: libcublasLt.so.13 libcudnn.so.9
if [ "$1" = --describe ]; then echo "GPUs ${GPUS:-1}"; echo "CUDA kernels, Pretended ${GPU_NAME:-H200}, cuBLASLt 130100, cuDNN 91900"; exit; fi
echo "ok - gemm 7b up NT: 8 algorithms"; echo "$*"
END
    stand_in build/gpu/predict <<<'echo "{\"peak_tflops\": 989.5, \"memory_gbps\": 4800, \"mfu\": {\"low\": 0.333, \"expected\": 0.391, \"high\": 0.461}}"'
    stand_in build/bin/tessera-health <<'END'
echo '{"checks":[{"id":"gpugemm","v":712.5,"unit":"TFLOP/s","limit":0.0,"st":"ok"},{"id":"hbm","v":4100.0,"unit":"GB/s","limit":0.0,"st":"bad","text":"HBM_SLOW"}]}'
END
    stand_in build/gpu/test_attention_cudnn <<<'echo "ok 1 - 4 x 2048"; echo 1..1; echo "$*"'
    stand_in build/gpu/test_nccl <<'END'
: libnccl.so.2
[ "${RANK:-0}" -eq 0 ] || exit 0
printf "ok 1 - auto: nccl 2.28.9\n# rate all-gather of 256 MiB by %d ranks: 350.0 GB/s\n1..1\n" "$RANKS"
END
    for name in activation bf16 dropout experts glu loss pack rope update attention_bf16 attention_chunk_bf16 gemm_bf16 grouped_gemm_bf16 norm fp8; do
        stand_in build/gpu/test_kernels_$name <<<'printf "ok 1 - a\nok 2 # SKIP lacks lion\n1..2\n"; echo "# $TESSERA_GPU_REPEAT times"'
    done
    stand_in build/bin/tessera-ckpt <<<'cat "$2/digest"'
    stand_in build/bin/tessera-data <<<'mkdir "$5"'
    stand_in build/bin/tessera-train <<'END'
if [ "$1" = --help ]; then echo "  hardware.backend x"; echo "  train.precision y"; exit; fi
fallback=auto steps=50 exchange=none
for word; do
    case $word in
        run.dir=*) dir=${word#*=} ;;
        hardware.backend=*) backend=${word#*=} ;;
        hardware.fallback=*) fallback=${word#*=} ;;
        train.max_duration=*) steps=${word#*=} && steps=${steps%ba} ;;
    esac
done
if [ "${RANK:-0}" -gt 0 ]; then
    [ "$steps" -lt 1000 ] || sleep 60
    exit 0
fi
if [ "${RANKS:-1}" -gt 1 ]; then
    exchange="nccl 2.28.9"
    if [ "${CUDA_VISIBLE_DEVICES//,/}" = "$CUDA_VISIBLE_DEVICES" ] && [ -z "$FAR" ]; then
        exchange=staged
        [ $fallback = warn ] || { echo "rank 1 shares GPU 0000:01:00.0 of here with rank 0: start fewer"; exit 64; }
    fi
    [ -z "$STAGED" ] || exchange=staged
fi
mkdir -p "$dir/checkpoints/step-50"
[ -e "$dir/choices" ] || echo "algorithms of ${dir##*/}" >"$dir/choices"
from=$(wc -l 2>/dev/null <"$dir/metrics.jsonl" || echo 0)
[ "$steps" -lt 1000 ] || last=10
for ((i = from + 1; i <= ${last:-$steps}; i++)); do
    echo "{\"step\": $i, \"lr\": 1, \"loss\": 2.${LOSS:-500}, \"step_ms\": 12.5, \"tokens_per_s\": 100, \"mfu\": 0.5, \"mfu_causal\": 0.4, \"peak_source\": \"known\", \"exchange\": \"$exchange\", \"attention\": \"cudnn\", \"products\": \"cublaslt\"}" >>"$dir/metrics.jsonl"
    [[ $dir != *resumed ]] || sleep 0.02
    [ "$backend" = cpu ] || LOSS=5001
done
if [ "$steps" -ge 1000 ]; then
    sleep 4 # on a busy machine, too, it is killed or a rank of it stopped before
    echo "error: NCCL: all-gather: not done within 10 s: rank 1 (here) did not come"
    exit 75
fi
echo "memory: planned 900 MiB, in use on the GPU ${MEMORY:-1800} MiB"
echo "bits of $(cat "$dir/choices")${BITS:+ and ${dir##*/}}" >"$dir/checkpoints/step-50/digest"
END
}

run_tree() {
    run env PATH="$TREE/bin:$PATH" LD_LIBRARY_PATH="$TREE/libs" "$TREE/tests/gpu/run" --out "$DIR/out" "$@"
    echo "$output"
}

@test "an archive of it runs in a clean folder: no GPU, status 77" {
    [ -x "$BUILD/gpu/products" ] || skip "this build has no CUDA kernels"
    "$BUILD/gpu/products" --describe && skip "there is a GPU: make gpu && tests/gpu/run"
    B=$BUILD run tests/gpu/pack "$DIR/gpu.tar.gz"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"gpu.tar.gz: "*" MiB, commit "* ]]
    tar -C "$DIR" -xzf "$DIR/gpu.tar.gz"
    cd "$DIR"
    run env -i PATH="$PATH" HOME="$DIR" TMPDIR="$DIR" tessera-gpu/tests/gpu/run --out out
    echo "$output"
    [ "$status" -eq 77 ]
    [[ "${lines[-1]}" == "no GPU: "* ]]
    [[ "${lines[-2]}" =~ ^gpu:\ [0-9]+\ checks,\ 0\ failed,\ [0-9]+\ skipped$ ]]
    [[ "$output" == *"test_kernels_bf16 "*"skipped  no GPU; it starts"* ]]
    LD_LIBRARY_PATH=$PWD/tessera-gpu/lib run tessera-gpu/build/bin/tessera-train --version
    [ "$status" -eq 0 ]
    run ls tessera-gpu/lib
    [[ "$output" != *libc.so* && "$output" == *libhdf5* ]]
}

@test "where all is well: every part, one table, status 0" {
    make_tree
    run_tree --full
    [ "$status" -eq 0 ]
    [[ "$output" == *"commit   1234abc"*"GPU      Pretended, 580.1"* ]]
    [[ "$output" == *"test_kernels_glu "*" ok       2 points, 1 skipped: lacks lion"* ]]
    [[ "$output" == *"loss-cuda-bf16 "*" ok       2.5001"*"2.5000"* ]]
    [[ "$output" == *"digest-op-by-op "*" ok "*"graphs "*" ok       CUDA refused none"* ]]
    [[ "$output" == *"loss-cuda-fp8 "*" ok       2.5001"*", in bf16 2.5001"* ]]
    [[ "$output" == *"digest-resumed "*" ok "*"digest-two-ranks "*" ok "* ]]
    [[ "$output" == *"library-cudnn "*" ok       libcudnn.so.9: $TREE/libs/libcudnn.so.9"* ]]
    [[ "$output" == *"products "*" ok       1 shapes by every algorithm"* ]]
    grep -q '# 20 times' "$DIR/out/test_kernels_norm.log"
    [[ "$output" == *"sanitizer-synccheck-grouped_gemm_bf16 "*" ok "* ]]
    [[ "$output" == *"digest-zero3-1-auto "*" ok       that of ddp-1-auto"* ]]
    [[ "$output" == *"chosen-ddp-1-off "*" ok       exchange none, attention cudnn"* ]]
    [[ "$output" == *"memory-zero2-1-auto "*" ok       1800 MiB in use, 900 planned"* ]]
    [[ "$output" == *"stopped-rank "*"skipped  it takes 2 GPUs, and 1 are visible"* ]]
    [[ "$output" == *"test_nccl "*"skipped  NCCL refuses two ranks on one GPU, and 1 are visible"* ]]
    [[ "$output" == *"shared-gpu-refused "*" ok "*"exchange-two-ranks "*" ok       staged"* ]]
    [[ "$output" == *"clocks   SM 1755 to 1980 MHz, at most 690 W, 71 C, throttled by power-cap, see clocks.csv"* ]]
    [[ "$output" == *"library-nccl"*"test_attention_cudnn"*"test_kernels_norm"*"sanitizer-"*"digest-"*"loss-"*"model-125m"* ]]
    [[ "$output" == *"sanitizer-racecheck-update "*" ok "* ]]
    [[ "$output" == *"model-125m "*" ok       12.5 ms a step, 100 tokens/s, MFU 0.5, causal 0.4 of known, predicted 0.333 to 0.461, 0.391 expected"* ]]
    [[ "$output" == *"attention-1b-fp8 "*" ok       cudnn"* ]]
    [[ "${lines[-1]}" =~ ^gpu:\ [0-9]+\ checks,\ 0\ failed,\ 3\ skipped$ ]]
    diff <(echo "$output") "$DIR/out/report.txt"
}

@test "a failure is told with what the test said, status 1" {
    make_tree
    stand_in build/gpu/test_kernels_glu <<<'printf "ok 1 - a\nnot ok 2 - cuda glu: bits\n1..2\n"; exit 1'
    stand_in build/gpu/test_kernels_rope <<<'printf "ok 1 - a\n"; kill -SEGV $$'
    BITS=1 LOSS=900 run_tree --check-only
    [ "$status" -eq 1 ]
    [[ "$output" == *"test_kernels_glu "*" FAILED   exit status 1, 1 of 2 points"*"not ok 2 - cuda glu: bits"* ]]
    [[ "$output" == *"test_kernels_rope "*" FAILED   exit status 139, 0 of 1 points"* ]]
    [[ "$output" == *"loss-cuda-bf16 "*" FAILED   2.500100, on the CPU 2.900000: more than 2e-2 apart"* ]]
    [[ "$output" == *"digest-resumed "*" FAILED   not that of cuda-bf16"* ]]
    [[ "$output" != *"model-125m"* ]]
    [[ "${lines[-1]}" =~ ^gpu:\ [0-9]+\ checks,\ [1-9][0-9]*\ failed ]]
}

@test "several GPUs: the same bits by NCCL, a rank that stops, rates" {
    make_tree
    rm "$TREE/bin/compute-sanitizer"
    GPUS=2 run_tree --check-only
    [ "$status" -eq 0 ]
    [[ "$output" == *"digest-zero3-2-auto "*" ok       that of ddp-1-auto"* ]]
    [[ "$output" == *"digest-shards-2 "*" ok       that of ddp-1-auto"* ]]
    [[ "$output" == *"digest-experts-2 "*" ok       that of experts-1"* ]]
    [[ "$output" == *"digest-sequences-2 "*" ok "*"digest-fp8-2 "*" ok       that of fp8-1"* ]]
    [[ "$output" == *"chosen-zero3-2-auto "*" ok       exchange nccl 2.28.9, attention cudnn"* ]]
    [[ "$output" == *"stopped-rank "*" ok       rank 1 (here) did not come"* ]]
    [[ "$output" == *"test_nccl "*" ok       1 points"*"rate all-gather of 256 MiB by 2 ranks: 350.0 GB/s"* ]]
    [[ "${lines[-1]}" == *", 0 failed, "* ]]
}

@test "a slower way, memory beyond the plan and missing libraries are failures" {
    make_tree
    rm "$TREE/bin/compute-sanitizer" "$TREE/build/gpu/test_nccl"
    sed -i 's/libcudnn.so.9/libcudnn.so.99/' "$TREE/build/gpu/products"
    stand_in build/gpu/predict <<<'echo "{\"peak_tflops\": 989.5, \"memory_gbps\": 4800, \"mfu\": {\"low\": 0.333, \"expected\": 0.391, \"high\": 0.461}}"'
    stand_in build/bin/tessera-health <<'END'
echo '{"checks":[{"id":"gpugemm","v":712.5,"unit":"TFLOP/s","limit":0.0,"st":"ok"},{"id":"hbm","v":4100.0,"unit":"GB/s","limit":0.0,"st":"bad","text":"HBM_SLOW"}]}'
END
    stand_in build/gpu/test_attention_cudnn <<<'echo "not ok 1 - 4 x 2048, 12 heads"; echo 1..1; exit 1'
    GPUS=2 STAGED=1 MEMORY=9000 run_tree --check-only
    [ "$status" -eq 1 ]
    [[ "$output" == *"library-cublasLt "*" ok       libcublasLt.so.13: the loader's"* ]]
    [[ "$output" == *"library-cudnn "*" FAILED   no libcudnn.so.99 in the toolkit's, the system's and Python's folders"* ]]
    [[ "$output" == *"library-nccl "*" FAILED   this build does not know it"* ]]
    [[ "$output" == *"test_attention_cudnn "*" FAILED "*"not ok 1 - 4 x 2048, 12 heads"* ]]
    [[ "$output" == *"chosen-ddp-2-auto "*" FAILED   tensors did not travel by NCCL but: staged"* ]]
    [[ "$output" == *"memory-ddp-1-auto "*" FAILED   9000 MiB in use, 900 planned"* ]]
    [[ "$output" == *"test_nccl "*" FAILED   this build has no test of NCCL"* ]]
}

@test "what is missing is skipped with the reason" {
    make_tree
    rm "$TREE/build/bin/tessera-train"
    [ -n "$(command -v compute-sanitizer)" ] || rm "$TREE/bin/compute-sanitizer"
    run_tree --check-only
    [ "$status" -eq 0 ]
    [[ "$output" == *"training "*"skipped  tessera-train and tessera-ckpt were not built"* ]]
    make_tree
    stand_in build/bin/tessera-train <<<'echo "  model.preset x"'
    run_tree --check-only
    [ "$status" -eq 0 ]
    [[ "$output" == *"training "*"skipped  tessera-train has no setting hardware.backend"* ]]
}

@test "only whole models; one that fails" {
    make_tree
    run_tree --bench-only
    [ "$status" -eq 0 ]
    [[ "$output" != *"test_kernels_glu"* ]]
    stand_in build/bin/tessera-train <<<'echo "train: CUDA error 700"; exit 1'
    run_tree --bench-only
    [ "$status" -eq 1 ]
    [[ "$output" == *"model-125m "*"FAILED   0 of 10 steps"*"CUDA error 700"* ]]
    [[ "${lines[-1]}" == "gpu: 16 checks, 11 failed, 0 skipped" ]]
}

@test "the first ten minutes: every line in its order, and ten to send" {
    make_tree
    mv "$TREE/build/bin/tessera-train" "$TREE/later" # what is built takes none of them
    printf 'gpu tiny-data:\nall:\n\tmv later build/bin/tessera-train\n' >"$TREE/Makefile"
    SECONDS=599 GPUS=4 run_tree
    echo "# rehearsed in $SECONDS s" >&3
    [ "$status" -eq 1 ]
    [[ "$output" == *"topology GPU0 X NV18"*"library-nccl"*"test_attention_cudnn "*"products "*"copy-rate "*"product-8192 "*"model-125m "*"model-1b "*"test_nccl "*"digest-zero3-1-auto "*"digest-zero1-4-auto "*"memory-zero3-4-auto "*"digest-shards-4 "*"digest-experts-4 "*"digest-sequences-4 "*"digest-fp8-4 "*"stopped-rank "*"---- send this ----"* ]]
    [[ "$output" == *"copy-rate "*" FAILED   "*"HBM_SLOW"* ]]
    [[ "$output" == *"product-8192 "*" ok       712.5 TFLOP/s, predicted 593 to 791, 712 expected"* ]]
    [[ "$output" != *"test_kernels_"* && "$output" != *"model-350m"* && "$output" != *skipped\ * ]]
    [ "$(grep -c -- --quick "$DIR/out/test_attention_cudnn.log" "$DIR/out/products.log" | grep -c ':1')" -eq 2 ]
    sent=("${lines[@]: -11}")
    for i in 1 2 3 4 5 6 7 8 9 10; do [[ "${sent[i - 1]}" == "$i "* ]]; done
    [[ "${sent[5]}" == *"MFU 0.5, causal 0.4 of known, predicted 0.333 to 0.461, 0.391 expected" ]]
    [[ "${sent[7]}" == *"all-gather of 256 MiB 350.0 GB/s; stopped rank: ok rank 1"* ]]
    [[ "${sent[8]}" == "9 digests: 7 the same, 0 not; memory: 11 within the plan, 0 beyond" ]]
    [[ "${sent[9]}" == *" 1 failed, 0 skipped; first copy-rate: "* ]]
}

@test "a check that the ten minutes end has not failed" {
    make_tree
    # they end 10 s after this check begins
    sed -i '/^quick_tests() {/a QUICK_S=$((SECONDS + 10))' "$TREE/tests/gpu/quick.bash"
    stand_in build/gpu/test_attention_cudnn <<<'echo "ok 1 - a"; sleep 60'
    run_tree
    [ "$status" -eq 0 ]
    [[ "$output" == *"test_attention_cudnn "*" skipped  the ten minutes ended"*"products "*" skipped  "*" s are over"*"10 "*" 0 failed, "* ]]
    stand_in build/gpu/test_attention_cudnn <<<'echo "not ok 1 - a"; sleep 60'
    run_tree
    [[ "$status" -eq 1 && "$output" == *"test_attention_cudnn "*" FAILED   exit status 124, 1 of 1 points"* ]]
    make_tree
    sed -i '/in_time models/i QUICK_S=$((SECONDS + 10))' "$TREE/tests/gpu/quick.bash"
    stand_in build/bin/tessera-train <<<'[ "$1" = --help ] || exec sleep 60'
    run_tree
    [[ "$output" == *"model-125m "*" skipped  the ten minutes ended"*"model-1b "*" skipped  the ten minutes ended"* ]]
}

@test "a run that takes no notice of SIGTERM is killed" {
    eval "$(sed -n '/^gone()/,/^}/p; /^end_run()/,/^}/p' tests/gpu/run)"
    bash -c 'trap "" TERM; echo >"$0"; while :; do sleep 1; done' "$DIR/began" 3>&- &
    victim=$!
    until [ -e "$DIR/began" ]; do sleep 0.1; done
    end_run $victim
    run ! kill -0 $victim
}

@test "another driver's names, a GPU that nobody predicted, two nodes of Slurm" {
    make_tree
    stand_in bin/srun <<'END'
while [[ $1 == --* ]]; do [[ $1 != --ntasks=* ]] || n=${1#*=}; shift; done
FAR=1 exec "$(dirname "$0")/../tests/mpirun" "$n" "$@"
END
    sed -i s/0x4/0x1/ "$TREE/bin/nvidia-smi"
    OLD_DRIVER=throttle GPU_NAME="H200 NVL" SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2 run_tree --srun
    [[ "$output" == *"MFU 0.5, causal 0.4 of known, without a prediction"* ]]
    [[ "$output" == *"throttled by idle, "* ]]
    [[ "$output" == *"digest-zero3-2-auto "*" ok "*"digest-experts-2 "*" ok "* ]]
    [[ "$output" == *"stopped-rank "*" ok       rank 1"* ]]
    [[ "$output" == *"1 GPUs on each of 2 nodes"* ]]
    SLURM_JOB_NUM_NODES=2 run_tree --srun
    [[ "$output" == *"ranks "*"skipped  --srun is for within a job of Slurm"* ]]
}

@test "make archs: a spill that is not listed is an error" {
    printf '%s\n' "Compiling entry function '_Z13cross_entropyIfEvlf6targetPT_PKibPf' for 'sm_120'" \
        '8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads' 'Used 40 registers, used 1 barriers' >"$DIR/a.120.txt"
    echo 'cross_entropy<float> 120 12' >"$DIR/list"
    run -0 tests/registers "$DIR/list" "$DIR/a.120.txt"
    [[ $output == *'| cross_entropy<float> | 40 (8/4) |'*'1 kernels, 0 wrong' ]]
    run -1 tests/registers /dev/null "$DIR/a.120.txt"
    [[ $output == 'spills, and /dev/null has nothing: cross_entropy<float> 120 12'* ]]
}

@test "a command line that makes no sense is refused" {
    run tests/gpu/run --fast
    [ "$status" -eq 64 ]
    run tests/gpu/run --check-only --bench-only
    [ "$status" -eq 64 ]
}
