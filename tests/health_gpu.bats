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

@test "an alert while a job trains: told once, and where a GPU is not fit, the attempt ends" {
    mkdir "$DIR/bin" "$DIR/run"
    # the checks' settings and files are not the machine's
    printf '#!/bin/sh\nexec "%s" "$@" --config "%s" --root "%s"\n' \
        "$HEALTH" "$DIR/health.cfg" "$DIR/root" >"$DIR/bin/tessera-health"
    printf '#!/bin/sh\necho "$*" >"%s"\n' "$DIR/cancelled" >"$DIR/bin/scancel"
    printf '#!/bin/sh\nuntil [ -e "%s" ]; do sleep 0.1; done\n' "$DIR/cancelled" >"$DIR/bin/train"
    chmod +x "$DIR/bin/"*
    printf '#!/bin/bash\nprintf "[%%s]" "$@" >>"%s"\n' "$DIR/notified" >"$DIR/bin/tell"
    chmod +x "$DIR/bin/tell"
    export TESSERA_NOTIFY=$DIR/bin/tell
    printf 'persistence=0\nthrottle=8\n' >"$DIR/gpus" # so it was at the first look
    export SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=4 SLURM_LOCALID=0 SLURMD_NODENAME=n2 \
        NVML_FAKE=@$DIR/gpus LD_LIBRARY_PATH=$FAKE TESSERA_ALERTS_S=0.2
    PATH=$DIR/bin:$PATH timeout 400 bash "$BATS_TEST_DIRNAME/../jobs/lib/rank.sh" \
        "$DIR/run" 2 "$DIR/bin/train" 3>&- &
    until grep -q GPU_SLOWED "$DIR/run/ledger.jsonl" 2>/dev/null; do sleep 0.1; done
    sleep 1
    [ ! -e "$DIR/cancelled" ]
    echo "throttle=8,ecc=3" >"$DIR/gpus"
    wait $!
    cat "$DIR/run/ledger.jsonl"
    [ "$(cat "$DIR/cancelled")" = "--signal=KILL 7.3" ]
    [ "$(cat "$DIR/run/reasons/attempt-0002.rank-0004.task")" = \
        "75 gpu n2: GPU_ECC GPU 1 0000:10:00.0: 3 uncorrectable memory errors" ]
    [ "$(cat "$DIR/notified")" = \
        "[gpu-alert][$DIR/run][7][n2: GPU_SLOWED GPU 1 0000:10:00.0: slowed by its hardware, reasons 0x8, 40 C]" ]
    [ "$(grep -c gpu-alert "$DIR/run/ledger.jsonl")" -eq 2 ]
    grep '"gpu-alert".*"GPU_SLOWED".*"fatal": false' "$DIR/run/ledger.jsonl"
    grep '"gpu-alert".*"GPU_ECC".*"fatal": true' "$DIR/run/ledger.jsonl"
    ! pgrep -f "watch --run $DIR/run"
}

# told LOOK[|LOOK...]: what a watch tells of cards that are at each look as said, then not
# fit to go on: "CODE CARD FATAL,..."
told() {
    rm -rf "$DIR/run"
    mkdir "$DIR/run"
    tr '|' '\n' <<<"$1|recovery=1" >"$DIR/gpus"
    NVML_FAKE=@$DIR/gpus LD_LIBRARY_PATH=$FAKE timeout 60 "$HEALTH" watch --run "$DIR/run" \
        --attempt 1 --every 0.1 --config "$DIR/health.cfg" --root "$DIR/root" \
        >"$DIR/said" 2>"$DIR/errors" || true
    jq -r '"\(.code) \(.reason | split(" ")[1]) \(.fatal)"' "$DIR/run/ledger.jsonl" | paste -sd,
}

@test "alerts are of a card and a code, each once, and fatal when they stay" {
    local looks expected failed=0
    while IFS=: read -r looks expected; do
        [ "$(told "$looks")" = "$expected" ] && continue
        failed=1
        echo "$looks: expected $expected, got:"
        cat "$DIR/run/ledger.jsonl" "$DIR/errors"
    done <<'END'
throttle=8|throttle=8|throttle=8:GPU_RECOVERY 1 true
past=3|past=3,throttle=8:GPU_SLOWED 1 false,GPU_RECOVERY 1 true
width=8|width=8,throttle=8:GPU_SLOWED 1 false,GPU_RECOVERY 1 true
persistence.0=0|persistence.0=0,throttle=8:GPU_SLOWED 1 false,GPU_RECOVERY 1 true
throttle.0=8|throttle.0=8,throttle=8:GPU_SLOWED 1 false,GPU_RECOVERY 1 true
count=2|throttle.0=8|throttle.0=8,throttle=8:GPU_SLOWED 0 false,GPU_SLOWED 1 false,GPU_RECOVERY 1 true
count=2|throttle=8,width=8:GPU_PCIE_WIDTH 1 false,GPU_SLOWED 1 false,GPU_RECOVERY 1 true
count=2|throttle=8|count=2|throttle=8:GPU_SLOWED 1 false,GPU_RECOVERY 1 true
count=2|ecc=3|count=2|count=2|ecc=3|ecc=4:GPU_ECC 1 false,GPU_ECC 1 true
count=2|ecc=3|count=2|ecc=3|count=2|count=2:GPU_ECC 1 false,GPU_RECOVERY 1 true
ecc=3|count=2|ecc=3|ecc=3:GPU_ECC 1 true
ecc=3|ecc=3|ecc=3,ecc.0=1|ecc=3,ecc.0=1:GPU_ECC 0 true
ecc=3|ecc=3|ecc=3|ecc=9|ecc=9,recovery.0=1|recovery.0=1:GPU_RECOVERY 0 true
count=2|count=1|count=1:GPU_MISSING driver true
END
    [ $failed = 0 ]
}

@test "what only several looks tell is told where the node keeps nothing of them" {
    ln -sf /proc/uptime "$DIR/root/proc/uptime"
    : >"$DIR/root/var" # no folder can be made there
    echo 'gpu: { count = 2; slowed_minutes = 0.02; };' >"$DIR/health.cfg"
    [ "$(told "count=2$(printf '|throttle=8%.0s' {1..30})")" = \
        "GPU_SLOWED 1 false,GPU_SLOWED_LONG 1 false,GPU_RECOVERY 1 true" ]
    [ "$(told "count=2$(printf '|throttle=8|count=2%.0s' {1..15})")" = \
        "GPU_SLOWED 1 false,GPU_RECOVERY 1 true" ]
    [ "$(told "count=2|corrected=5000")" = "GPU_ECC_RATE 1 false,GPU_RECOVERY 1 true" ]
}

@test "a kernel's log that only root may read is no fault of the node, and a watch says so once" {
    local as=() watch
    OPEN=$(mktemp -d "${TMPDIR:-/tmp}/tessera-kmsg.XXXXXX")
    cp -r "$DIR/root" "$DIR/health.cfg" "$OPEN"
    mkdir "$OPEN/run"
    chmod -R a+rX "$OPEN"
    chmod 777 "$OPEN/run"
    DIR=$OPEN
    chmod 600 "$DIR/root/dev/kmsg"
    [ "$(id -u)" != 0 ] || as=(setpriv --reuid 65534 --clear-groups)
    "${as[@]}" test -x "$HEALTH" || skip "another user cannot see the build"
    [ "$(id -u)" = 0 ] || chmod 0 "$DIR/root/dev/kmsg"
    export LD_LIBRARY_PATH=$FAKE
    for _ in denied missing; do
        for check in xid mce; do
            run "${as[@]}" "$HEALTH" quick --only gpu,$check --json --config "$DIR/health.cfg" \
                --root "$DIR/root"
            echo "$output"
            [ "$status" -eq 0 ]
            [[ $output == *'"id":"'$check'"'*'"st":"ok","code":""'*'kmsg: open'* ]]
        done
        for node in 0 1; do
            echo 'count=2' >"$DIR/gpus"
            SLURM_NODEID=$node NVML_FAKE=@$DIR/gpus timeout 60 "${as[@]}" "$HEALTH" watch --every 0.1 \
                --run "$DIR/run" --attempt 1 --config "$DIR/health.cfg" --root "$DIR/root" \
                >"$DIR/said" 2>"$DIR/errors" 3>&- &
            watch=$!
            sleep 2
            kill $watch
            wait $watch || true
            [ "$(grep -c 'Xids are not seen: .*dmesg_restrict' "$DIR/errors")" -eq $((1 - node)) ]
        done
        rm -f "$DIR/root/dev/kmsg"
    done
    [ "$(id -u)" = 0 ] || return 0
    # who drains nodes has to see it
    for phase in quick prolog epilog; do
        gives 3 CHECK_FAILED $phase --only xid
    done
}

teardown() {
    rm -rf "${OPEN:-}"
}

@test "a watcher that a signal ends is started again, a few times; what asks to stop ends none" {
    mkdir "$DIR/bin" "$DIR/run"
    printf '#!/bin/bash\necho $BASHPID >>"%s"; exec sleep 60\n' "$DIR/watchers" \
        >"$DIR/bin/tessera-health"
    printf '#!/bin/bash\nuntil [ -e "%s" ]; do sleep 0.1; done\n' "$DIR/over" >"$DIR/bin/train"
    chmod +x "$DIR/bin/"*
    : >"$DIR/watchers"
    SLURM_LOCALID=0 SLURMD_NODENAME=n2 bash "$BATS_TEST_DIRNAME/../jobs/lib/rank.sh" \
        "$DIR/run" 2 "$DIR/bin/train" 2>"$DIR/errors" 3>&- &
    for starts in {1..5}; do
        for ((i = 0; i < 300 && $(wc -l <"$DIR/watchers") < starts; i++)); do sleep 0.1; done
        [ "$(wc -l <"$DIR/watchers")" -eq "$starts" ]
        sleep 0.3
        kill -USR1 "$(tail -n 1 "$DIR/watchers")"
        sleep 0.3
        kill -KILL "$(tail -n 1 "$DIR/watchers")"
    done
    sleep 2
    [ "$(wc -l <"$DIR/watchers")" -eq 5 ]
    : >"$DIR/over"
    wait $!
    [ "$(grep -c 'has died' "$DIR/errors")" -eq 5 ]
}

@test "the kernel's log counts only where all GPUs of the node are the job's" {
    for ours in 1 2; do
        mkdir "$DIR/run$ours"
        : >"$DIR/root/dev/kmsg"
        echo "throttle=0" >"$DIR/gpus"
        SLURM_GPUS_ON_NODE=$ours NVML_FAKE=@$DIR/gpus check watch --run "$DIR/run$ours" \
            --attempt 1 --every 0.2 >"$DIR/said" 3>&- &
        sleep 4
        echo "4,9,99000000000,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus." \
            >"$DIR/root/dev/kmsg"
        if [ $ours = 2 ]; then
            wait $! || true
            [ "$(cut -d' ' -f1,2 "$DIR/said")" = "fatal XID" ]
            ! grep 'not seen' "$DIR/errors"
        else
            echo "throttle=8" >"$DIR/gpus"
            until grep -q GPU_SLOWED "$DIR/run1/ledger.jsonl"; do sleep 0.1; done
            kill $!
            grep 'Xids are not seen: 1 of the 2 GPUs of .* are not the job' "$DIR/errors"
        fi
    done
    ! grep XID "$DIR/run1/ledger.jsonl"
}

@test "watch without GPUs, or whose parent has gone, ends" {
    thresholds 0
    run check watch --run "$DIR" --attempt 1
    [ "$status" -eq 0 ]
    thresholds 2
    LD_LIBRARY_PATH=$FAKE bash -c '"$@" 3>&- & echo $! >"$0"; sleep 1' "$DIR/pid" "$HEALTH" watch \
        --config "$DIR/health.cfg" --root "$DIR/root" --run "$DIR" --attempt 1 --every 0.1
    for ((i = 0; i < 600; i++)); do
        kill -0 "$(cat "$DIR/pid")" 2>/dev/null || break
        sleep 0.1
    done
    ! kill -0 "$(cat "$DIR/pid")"
    run check watch
    [ "$status" -eq 64 ]
    run check quick --run "$DIR"
    [ "$status" -eq 64 ]
}
