#!/usr/bin/env bats
# tessera-health from the command line: verdicts, exit codes, injected faults,
# and a node whose /dev/shm is really full.
# shellcheck disable=SC2030,SC2031,SC2016 # every test is a subshell

load health_helpers

setup() {
    MPIRUN=$BATS_TEST_DIRNAME/mpirun
    DIR=$BATS_TEST_TMPDIR
    # Local file systems of the test machine must not decide these tests.
    cat >"$DIR/health.cfg" <<'CFG'
shm: { free_min_mib = 0; inodes_min = 0; };
tmp: { free_min_mib = 0; inodes_min = 0; };
disable = "leftover";
CFG
    unset TESSERA_INJECT SLURMD_NODENAME SLURM_JOB_ID
}

check() {
    "$HEALTH" "$@" --config "$DIR/health.cfg" --allow-inject 2>"$DIR/errors"
}

@test "every phase of a sound node is ok" {
    for phase in quick prolog epilog job; do
        gives 0 '' "$phase"
        [ "${#lines[@]}" -eq 1 ]
        [ "$(field schema)" = tessera-health/1 ]
        [ "$(field phase)" = "$phase" ]
        [ "$(field verdict)" = ok ]
        [ "$(field action)" = none ]
        [ "$(field boot_id)" = "$(cat /proc/sys/kernel/random/boot_id)" ]
    done
    [[ $output == *'"id":"triad"'* ]]
}

@test "the table names the checks and the node" {
    run env SLURMD_NODENAME=n42 "$HEALTH" quick --config "$DIR/health.cfg"
    [ "$status" -eq 0 ]
    [[ ${lines[0]} == check*state*value*limit* ]]
    [[ $output == *"n42: ok in "* ]]
}

@test "injected faults are bad, named, and on their host only" {
    export SLURMD_NODENAME=n2 SLURM_JOB_ID=77
    for fault in gemm:n2:wrong/GEMM_WRONG shm:n2:full/SHM_FULL \
        tmp:n2:full/TMP_FULL; do
        # a floor, so that "no free space" is too little
        printf 'shm: { free_min_mib = 0.001; };\ntmp: { free_min_mib = 0.001; };
disable = "leftover";\n' \
            >"$DIR/health.cfg"
        TESSERA_INJECT=${fault%/*} gives 2 "${fault#*/}" prolog
        [ "$(field verdict)" = bad ]
        [ "$(field action)" = drain ]
        [[ $(field reason) == "tessera: ${fault#*/} "*"job=77"* ]]
        [ "$(field reason | wc -c)" -le 151 ]
        SLURMD_NODENAME=n3 TESSERA_INJECT=${fault%/*} gives 0 '' prolog
    done
}

@test "a check that hangs is bad, and the others still run" {
    TESSERA_INJECT=hang:tmp gives 2 HANG_TMP prolog --budget 60
    [[ $output == *'"id":"gemm"'*'"st":"ok"'* ]]
}

@test "a budget that is too short is 76, unless something is bad" {
    TESSERA_INJECT=hang:fs gives 76 BUDGET quick --budget 0.5
    [ "$(field verdict)" = unknown ]
    [[ $output == *'"cut":true'* ]]
    echo 'shm: { free_min_mib = 0.001; };' >"$DIR/health.cfg"
    TESSERA_INJECT='hang:tmp,shm:*:full' gives 2 SHM_FULL quick --budget 1.9
    [[ $output == *'"cut":true'* ]]
}

@test "nobody waits for a hung check through a pipe" {
    export TESSERA_INJECT=hang:tmp
    run timeout 60 bash -c "'$HEALTH' quick --json --allow-inject | cat"
    [ "$status" -eq 0 ]
    [[ $output == *HANG_TMP* ]]
}

@test "root does not obey injected faults unless told to" {
    [ "$(id -u)" -eq 0 ] || skip "not root"
    TESSERA_INJECT='hang:fs,gemm:*:wrong' run "$HEALTH" prolog --json \
        --config "$DIR/health.cfg"
    [ "$status" -eq 0 ]
    [[ $output == *ignored* ]]
}

@test "the verdict is written to a file and into a folder" {
    export SLURMD_NODENAME=n5
    mkdir "$DIR/verdicts"
    run check quick --out "$DIR/verdicts"
    [ "$status" -eq 0 ]
    run cat "$DIR/verdicts/n5.json"
    [ "$(field host)" = n5 ]
    echo old >"$DIR/one"
    run check quick --json --out "$DIR/one"
    [ "$(cat "$DIR/one")" = "$output" ]
    [ "$(ls "$DIR/verdicts")" = n5.json ]
    run check quick --json --out "$DIR/none/one"
    [ "$status" -eq 3 ]
    [ "$(field verdict)" = ok ]
    grep -q none/one "$DIR/errors"
}

@test "thresholds: a floor for speed, a misspelt name, a disabled check" {
    echo 'gemm: { min_gflops = 1e8; };' >>"$DIR/health.cfg"
    gives 2 GEMM_SLOW prolog
    [[ $output == *'"tries":2'* ]]
    sed -i 's/leftover/&,gemm/' "$DIR/health.cfg"
    gives 0 '' prolog
    [[ $output != *'"gemm"'* ]]
    echo 'gem: { min_gflops = 1; };' >"$DIR/health.cfg"
    run check prolog
    [ "$status" -eq 64 ]
    grep -q 'health.cfg:1' "$DIR/errors"
}

@test "products are compared with the peak, and far below it is a warning" {
    # other tests have the cores as well, now more, now less
    echo 'gemm: { peak_ratio_min = 0.05; };' >>"$DIR/health.cfg"
    run check prolog
    [ "$status" -eq 0 ]
    [[ $output =~ gemm\ +ok\ .*[0-9]\.[0-9][0-9]\ of\ the\ peak ]]
    sed -i 's/peak_ratio_min = 0.05/peak_ratio_min = 1/' "$DIR/health.cfg"
    # a peak that others have cut short can be passed, so again
    for try in {1..5}; do
        run check prolog --json
        [ "$status" -eq 0 ] || break
    done
    [ "$status" -eq 1 ]
    [ "$(field code)" = GEMM_BELOW_PEAK ]
    [ "$(field action)" = none ]
    [[ $output =~ \"peak_ratio\":0\.[0-9] ]]
}

@test "a recorded machine is looked at instead of this one" {
    mkdir -p "$DIR/root/tmp" "$DIR/root/dev/shm"
    cp -r "$BATS_TEST_DIRNAME/machines/busy/proc" "$DIR/root/"
    gives 0 '' quick --root "$DIR/root"
    [[ $output == *'"id":"load","v":97.5'* ]]
    [[ $output == *'"id":"blocked","v":2.0'* ]]
    [ "$(field boot_id)" = 2f0c6f6e-91c1-4f6e-9d6a-0d6f5f0f7a11 ]
    rm -r "$DIR/root/dev"
    gives 2 SHM_MISSING quick --root "$DIR/root"
    run check quick --json --root "$DIR/nowhere"
    [ "$status" -eq 2 ]
}

@test "usage errors are 64 and say what is accepted" {
    for arguments in "" "fast" "quick job" "quick --budget 0" \
        "quick --budget x" "quick --wrong" "quick --out"; do
        # shellcheck disable=SC2086
        run "$HEALTH" $arguments
        [ "$status" -eq 64 ]
        [[ $output == *"usage: tessera-health"* ]]
    done
    run "$HEALTH" --help
    [ "$status" -eq 0 ]
}

@test "a really full /dev/shm is found, and crashes nothing" {
    unshare -m true 2>/dev/null || skip "mounting needs root"
    run unshare -m bash -c '
        mount -t tmpfs -o size=1m tmpfs /dev/shm &&
            head -c 2M /dev/zero >/dev/shm/full 2>/dev/null
        exec "$0" prolog --json' "$HEALTH"
    [ "$status" -eq 2 ]
    [ "$(field code)" = SHM_FULL ]
}

@test "pairs of ranks: a verdict per host, and the wrong one is named" {
    ldd "$HEALTH" | grep -q libmpi || skip "built without MPI"
    # Speeds of a busy machine do not count here.
    echo 'pair: { ratio_min = 0.0; };' >"$DIR/health.cfg"
    run "$MPIRUN" 4 "$HEALTH" job --pairs --json --config "$DIR/health.cfg"
    [ "$status" -eq 0 ]
    [ "$(field phase)" = pairs ]
    [ "$(field verdict)" = ok ]
    [ "$(grep -c '"verdict"' <<<"$output")" -eq 1 ]
    TESSERA_INJECT=pair:rank1:wrong run "$MPIRUN" 4 "$HEALTH" --pairs \
        --allow-inject --config "$DIR/health.cfg" --out "$DIR/pairs"
    [ "$status" -eq 2 ]
    [[ $output == *"(rank 1): bad: tessera: PAIR_WRONG "* ]]
    [[ $output != *"(rank 0): bad"* ]]
    output=$(cat "$DIR/pairs")
    [ "$(field code)" = PAIR_WRONG ]
}

# pairs_of N ARGUMENT...: N nodes that are this machine under several names, each with
# the recorded files below root.RANK
pairs_of() {
    unshare -u true 2>/dev/null || skip "host names need root"
    run "$MPIRUN" "$1" unshare -u bash -c 'hostname "n$OMPI_COMM_WORLD_RANK"
        exec "$@" --root "$0.$OMPI_COMM_WORLD_RANK"' "$DIR/root" \
        "$HEALTH" --pairs --allow-inject --config "$DIR/health.cfg" "${@:2}"
}

# root_of RANK KERNEL DRIVER MEMORY-KIB
root_of() {
    mkdir -p "$DIR/root.$1/proc/sys/kernel" "$DIR/root.$1/proc/driver/nvidia" \
        "$DIR/root.$1/sys/class/infiniband/mlx5_"{0,1}
    echo "$2" >"$DIR/root.$1/proc/sys/kernel/osrelease"
    echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $3  Tue Jan 7 22:09:13 UTC" \
        >"$DIR/root.$1/proc/driver/nvidia/version"
    echo "MemTotal:  $4 kB" >"$DIR/root.$1/proc/meminfo"
    echo 28.39.1002 | tee "$DIR/root.$1/sys/class/infiniband/mlx5_"{0,1}/fw_ver >/dev/null
}

@test "pairs: what is not the same on all nodes, and who has it" {
    echo 'pair: { ratio_min = 0; };' >>"$DIR/health.cfg"
    for rank in 0 1 2 3 4; do # 503.5 GiB, give or take what a kernel keeps
        root_of $rank 6.1.0-17 535.104.05 $((527956000 + rank * 4000))
    done
    pairs_of 5
    [ "$status" -eq 0 ]
    root_of 3 6.1.0-18 535.104.05 527956000
    pairs_of 5
    [ "$status" -eq 1 ]
    [[ $output == *"n3: warn: DIFFERS kernel 6.1.0-18 on n3, 6.1.0-17 on 4"* ]]
    [ "$(grep -c DIFFERS <<<"$output")" -eq 1 ]
    root_of 1 6.1.0-17 535.104.05 395956000
    rm "$DIR/root.3/proc/driver/nvidia/version"
    pairs_of 5 --json
    [ "$status" -eq 1 ]
    [ "$(grep -c '"verdict":"ok","code":"","reason":""' <<<"$output")" -eq 3 ]
    [[ $output == *'"host":"n1"'*'"verdict":"warn","code":"DIFFERS","reason":"tessera: DIFFERS memory 378 GiB on n1, 50'[34]' GiB on 4","action":"none"'* ]]
    [[ $output == *'"host":"n3"'*'"reason":"tessera: DIFFERS kernel 6.1.0-18 on n3, 6.1.0-17 on 4, driver none on n3, 535.104.05 on 4"'* ]]
    # nobody is the minority of two
    pairs_of 2
    [[ $output == *"n0: warn: DIFFERS memory 50"*"n1: warn: DIFFERS memory 378"* ]]
    echo 'disable = "versions";' >"$DIR/health.cfg"
    pairs_of 2
    [ "$status" -eq 0 ]
}

@test "pairs: clocks that are off from the median" {
    echo 'pair: { ratio_min = 0; };' >>"$DIR/health.cfg"
    for rank in 0 1 2 3; do
        root_of $rank 6.1.0-17 535.104.05 527956000
    done
    TESSERA_INJECT=clock:n2:ahead pairs_of 4 --json
    [ "$status" -eq 1 ]
    [[ $output == *'"host":"n2"'*'"code":"CLOCK_SKEW","reason":"tessera: CLOCK_SKEW clock '*'ms/50 ahead of the median of 4'* ]]
    [ "$(grep -c CLOCK_SKEW <<<"$output")" -eq 1 ]
    echo 'clock: { skew_max_ms = 20000; };' >>"$DIR/health.cfg"
    TESSERA_INJECT=clock:n2:ahead pairs_of 4
    [ "$status" -eq 0 ]
}

@test "pairs need a second rank" {
    run check --pairs
    [ "$status" -eq 3 ]
    grep -q 'one rank' "$DIR/errors"
}
