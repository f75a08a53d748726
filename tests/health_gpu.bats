#!/usr/bin/env bats
# tessera-health on a machine whose GPUs are a library and files: what the
# program finds by itself, and what it says without any.
# shellcheck disable=SC2030,SC2031 # every test is a subshell

load health_helpers

setup() {
    FAKE=${HEALTH%/*}/../fake
    DIR=$BATS_TEST_TMPDIR
    mkdir -p "$DIR/root/tmp" "$DIR/root/dev/shm" \
        "$DIR/root/sys/bus/pci/devices"
    cp -r "$BATS_TEST_DIRNAME/machines/busy/proc" "$DIR/root/"
    echo "100000.00 1.00" >"$DIR/root/proc/uptime"
    : >"$DIR/root/dev/kmsg"
    thresholds 2
    unset TESSERA_INJECT SLURMD_NODENAME SLURM_JOB_ID SLURM_GPUS_ON_NODE \
        CUDA_VISIBLE_DEVICES
}

# thresholds COUNT: that many GPUs; other checks must not decide
thresholds() {
    cat >"$DIR/health.cfg" <<CFG
gpu: { count = $1; };
disable = "load,memory,blocked,zombies,shm,tmp,gemm,triad,$2";
CFG
}

check() {
    LD_LIBRARY_PATH=$FAKE "$HEALTH" "$@" --config "$DIR/health.cfg" \
        --root "$DIR/root" --allow-inject 2>"$DIR/errors"
}

@test "sound GPUs are ok in every phase of root" {
    for phase in quick prolog epilog; do
        gives 0 '' $phase
        [[ $output == *'"id":"gpu","v":2.0,"unit":"GPUs"'* ]]
        [[ $output == *'"id":"xid"'* ]]
    done
    [[ $output == *'"id":"gpumem"'* ]]
}

@test "a fault that the library tells drains, another one warns" {
    NVML_FAKE=ecc=3 SLURM_JOB_ID=77 gives 2 GPU_ECC prolog
    [ "$(field action)" = drain ]
    [ "$(field reason)" = "tessera: GPU_ECC gpu job=77 (GPU 1 0000:10:00.0: 3 uncorrectable memory errors)" ]
    NVML_FAKE=width=8 gives 1 GPU_PCIE_WIDTH quick
    [ "$(field action)" = none ]
    NVML_FAKE=count=1 run check epilog
    [ "$status" -eq 2 ]
    [[ $output == *"GPU_MISSING gpu 1GPUs/2"* ]]
    TESSERA_INJECT="gpu:*:lost" run check quick --json
    [ "$(field code)" = GPU_MISSING ]
}

@test "an Xid in the kernel's log drains" {
    echo "4,9,99000000000,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus." \
        >"$DIR/root/dev/kmsg"
    gives 2 XID quick
    [[ $(field reason) == *"Xid 79 of the GPU at 0000:10:00"* ]]
}

@test "a driver that is not loaded is bad, no library at all is unknown" {
    thresholds 2 xid
    NVML_FAKE=init=9 gives 2 GPU_DRIVER quick
    ldconfig -p | grep -q libnvidia-ml.so.1 && skip "NVML is here"
    FAKE=$DIR gives 3 NVML_MISSING quick
}

@test "a library that hangs is bad within its phase, where that has time to tell" {
    for phase in quick prolog epilog; do
        TESSERA_INJECT=hang:gpu gives 2 HANG_GPU $phase
        TESSERA_INJECT=hang:gpu gives 2 HANG_GPU $phase --only gpu
    done
    # which other checks do not wait for as well
    TESSERA_INJECT=hang:gpu gives 2 HANG_GPU epilog
    [[ $output == *'"id":"xid"'*'"st":"ok"'*'"id":"gpumem"'*'"code":"NOT_ASKED"'* ]]
    TESSERA_INJECT=hang:gpu gives 76 BUDGET epilog --budget 1
    gives 64 '' prolog --only gpu,fan
}

@test "without GPUs nothing is said of them" {
    echo 'disable = "shm,tmp,gemm,triad";' >"$DIR/health.cfg"
    for phase in quick prolog epilog job; do
        gives 0 '' $phase
        [[ $output == *'"id":"load"'* ]]
        [[ ${output,,} != *gpu* && $output != *xid* && $output != *hbm* ]]
    done
}

@test "NVIDIA's devices on the bus are expected where the build uses them" {
    device=$DIR/root/sys/bus/pci/devices/0000:0f:00.0
    mkdir -p "$device"
    echo 0x10de >"$device/vendor"
    echo 0x030200 >"$device/class"
    echo 'disable = "shm,tmp,gemm";' >"$DIR/health.cfg"
    NVML_FAKE=count=0 run check quick --json
    if [ "$status" -eq 0 ]; then
        [[ ${output,,} != *gpu* ]]
        skip "built without CUDA"
    fi
    [ "$(field code)" = GPU_MISSING ]
    # probes on a machine without GPUs: what is not known is not ok
    thresholds 0 xid,gpu,gpumem,hbm,pcie,peer,allreduce
    run check job --json
    ls /dev/nvidia0 2>/dev/null && skip "a GPU is here"
    [ "$status" -eq 3 ]
    [[ $output == *'"id":"gpugemm"'*'"code":"CHECK_FAILED"'* ]]
}
