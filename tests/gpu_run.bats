#!/usr/bin/env bats
# tests/gpu/run and tests/gpu/pack: the archive runs in a clean folder and says
# that there is no GPU; on a machine that seems to have one, what is checked,
# skipped and failed, by stand-ins for the programs.
bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/.." || exit
    BUILD=$(dirname "${TESSERA_BIN:-$PWD/build/bin}")
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-gpu-test.XXXXXX")
    TREE=$DIR/tree
}

teardown() {
    rm -rf "$DIR"
}

# stand_in FILE: a program of the tree, its text on stdin
stand_in() {
    mkdir -p "$(dirname "$TREE/$1")"
    { echo '#!/bin/bash'; cat; } >"$TREE/$1"
    chmod +x "$TREE/$1"
}

# A machine with a GPU on which all is well.
# shellcheck disable=SC2016 # what stand-ins expand
make_tree() {
    mkdir -p "$TREE/tests/gpu" "$TREE/jobs/conf" "$TREE/build/tiny-data/train"
    cp tests/gpu/run tests/gpu/training.bash "$TREE/tests/gpu/"
    touch "$TREE/jobs/conf/tiny.cfg" "$TREE/build/tiny-data/train/index.json"
    echo 1234abc >"$TREE/commit"
    stand_in tests/mpirun <<<'shift; exec "$@"'
    stand_in bin/mpirun <<<'echo "mpirun (Open MPI) 4.1.4"'
    stand_in bin/nvidia-smi <<<'[ "$1" = -L ] && echo "GPU 0: Pretended" || echo "Pretended, 580.1"'
    stand_in bin/compute-sanitizer <<<'exec "${@:5}"'
    stand_in build/gpu/bench_kernels <<'END'
: libcublasLt.so.13
if [ "$1" = --describe ]; then echo "CUDA kernels, Pretended"; exit; fi
echo '{"op": "copy", "shape": "ceiling", "us": 500.00, "rate": 4294.97, "unit": "GB/s", "share": 1.0000, "goal": 0.00, "ok": true}'
echo '{"op": "norm_forward", "shape": "16384x768", "us": 20.00, "rate": 2500.00, "unit": "GB/s", "share": 0.5821, "goal": 0.85, "ok": false}'
echo '{"op": "lion", "shape": "1x1", "skipped": "the table has no lion yet"}'
echo "# bench: 2 rows, 1 short, 0 failed, 1 skipped" >&2
END
    for name in activation bf16 dropout experts glu loss pack rope update; do
        stand_in build/gpu/test_kernels_$name <<<'printf "ok 1 - a\nok 2 # SKIP lacks lion\n1..2\n"'
    done
    stand_in build/bin/tessera-ckpt <<<'cat "$2/digest"'
    stand_in build/bin/tessera-bench <<<'echo "tessera-bench step"'
    stand_in build/bin/tessera-train <<'END'
if [ "$1" = --help ]; then echo "  hardware.backend x"; echo "  train.precision y"; exit; fi
for word; do case $word in run.dir=*) dir=${word#*=} ;; hardware.backend=*) backend=${word#*=} ;; esac; done
mkdir -p "$dir/checkpoints/step-50"
from=$(wc -l 2>/dev/null <"$dir/metrics.jsonl" || echo 0)
for ((i = from + 1; i <= 50; i++)); do
    echo "{\"step\": $i, \"lr\": 1, \"loss\": 2.${LOSS:-500}}" >>"$dir/metrics.jsonl"
    [[ $dir != *resumed ]] || sleep 0.02
    [ "$backend" = cpu ] || LOSS=5001
done
echo "bits${BITS:+ of ${dir##*/}}" >"$dir/checkpoints/step-50/digest"
END
}

run_tree() {
    run env PATH="$TREE/bin:$PATH" "$TREE/tests/gpu/run" --out "$DIR/out" "$@"
    echo "$output"
}

@test "an archive of it runs in a clean folder: no GPU, status 77" {
    [ -x "$BUILD/gpu/bench_kernels" ] || skip "this build has no CUDA kernels"
    "$BUILD/gpu/bench_kernels" --describe && skip "there is a GPU: make gpu && tests/gpu/run"
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
    [ -e tessera-gpu/lib/libopenblas.so.0 ]
    LD_LIBRARY_PATH=$PWD/tessera-gpu/lib run tessera-gpu/build/bin/tessera-train --version
    [ "$status" -eq 0 ]
    run ls tessera-gpu/lib
    [[ "$output" != *libc.so* && "$output" == *libhdf5* ]]
}

@test "where all is well: every part, one table, status 0" {
    make_tree
    run_tree
    [ "$status" -eq 0 ]
    [[ "$output" == *"commit   1234abc"*"GPU      Pretended, 580.1"* ]]
    [[ "$output" == *"test_kernels_glu "*" ok       2 points, 1 skipped: lacks lion"* ]]
    [[ "$output" == *"loss-cuda-bf16 "*" ok       2.5001"*"2.5000"* ]]
    [[ "$output" == *"digest-op-by-op "*" ok "*"graphs "*" ok       CUDA refused none"* ]]
    [[ "$output" == *"loss-cuda-fp8 "*" ok       2.5001"*", in bf16 2.5001"* ]]
    [[ "$output" == *"digest-resumed "*" ok "*"digest-two-ranks "*" ok "* ]]
    [[ "$output" == *"nccl "*"skipped  NCCL refuses two ranks on one GPU, and 1 are visible"* ]]
    [[ "$output" == *"sanitizer-racecheck-update "*" ok "* ]]
    [[ "$output" == *"norm_forward "*"16384x768"*"2500.0 GB/s     0.58  0.85 short"* ]]
    [[ "$output" == *"lion "*"skipped: the table has no lion yet"* ]]
    [[ "$output" == *"bench-mfu "*"skipped  tessera-bench has no mfu"* ]]
    [[ "${lines[-1]}" =~ ^gpu:\ [0-9]+\ checks,\ 0\ failed,\ 2\ skipped$ ]]
    diff <(echo "$output") "$DIR/out/report.txt"
    [ "$(wc -l <"$DIR/out/bench.json")" -eq 3 ]
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
    [[ "$output" != *"norm_forward"* ]]
    [[ "${lines[-1]}" =~ ^gpu:\ [0-9]+\ checks,\ [1-9][0-9]*\ failed ]]
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

@test "only the benchmark; a benchmark that fails" {
    make_tree
    run_tree --bench-only
    [ "$status" -eq 0 ]
    [[ "$output" != *"test_kernels_glu"* ]]
    stand_in build/gpu/bench_kernels <<'END'
: libcublasLt.so.13
[ "$1" = --describe ] && echo here && exit
echo "bench: CUDA error 700" >&2
exit 1
END
    run_tree --bench-only
    [ "$status" -eq 1 ]
    [[ "$output" == *"bench_kernels "*"FAILED   exit status 1"*"CUDA error 700"* ]]
    [[ "${lines[-1]}" == "gpu: 2 checks, 1 failed, 1 skipped" ]]
}

@test "a command line that makes no sense is refused" {
    run tests/gpu/run --fast
    [ "$status" -eq 64 ]
    run tests/gpu/run --check-only --bench-only
    [ "$status" -eq 64 ]
}
