#!/usr/bin/env bats
# What prolog and epilog decide as root on one node, where Slurm is a stand-in:
# no user's doing drains a node, no race and no slip of the administrator drains
# too many, and nothing that is not ok passes in silence.
# shellcheck disable=SC2016 # commands that run elsewhere
# shellcheck disable=SC2030,SC2031 # every test is a subshell

load admin_helpers

setup() {
    [ "$(id -u)" -eq 0 ] || skip "prolog and epilog are root's"
    node_install
}

teardown() {
    [ -n "${NODE:-}" ] || return 0
    cat "$LOG"
    rm -rf "$NODE"
}

# --- the breaker --------------------------------------------------------------

@test "twenty epilogs at once drain no more than the limit" {
    configure TESSERA_DRAIN_PERCENT=10
    bad_with SHM_FULL
    for node in n{1..20}; do
        as_slurmd epilog "$node" &
    done
    wait
    # on a busy machine some find no answer or no time, and leave their node
    drained
    [ "$(drained)" -ge 1 ] && [ "$(drained)" -le 2 ]
    # what became of each is in the log in any case
    [ "$(grep -c ' drained: ' "$LOG")" -ge "$(drained)" ]
    [ "$(grep -Ec ' (not drained|drained): |not drained: ' "$LOG")" -eq 20 ]
    grep ' not drained: .*the limit is 2' "$LOG"
    # who was refused tells the others, so not each of them lists all nodes
    wc -l "$NODE/sinfo.calls"
    [ "$(wc -l <"$NODE/sinfo.calls")" -le 6 ]
}

@test "who waits for the lock asks slurmctld little" {
    bad_with SHM_FULL
    TZ=UTC date +%FT%T >"$NODE/cluster/res.tessera-drain"
    (sleep 5.5 && rm "$NODE/cluster/res.tessera-drain") &
    as_slurmd epilog n1
    wait
    [ "$(drained)" -eq 1 ]
    [ "$(wc -l <"$NODE/sinfo.calls")" -eq 1 ]
}

@test "whatever is out of service counts, whoever took it out" {
    configure TESSERA_DRAIN_PERCENT=40
    for node in n{2..6}; do
        echo "IDLE+DRAIN|2026-11-22T10:00:00|Kill task failed" \
            >"$NODE/cluster/$node"
    done
    echo "DOWN*|2026-11-22T10:00:00|Not responding" >"$NODE/cluster/n7"
    echo "IDLE+FAIL|2026-11-22T10:00:00|fan is loud" >"$NODE/cluster/n8"
    echo "IDLE+DRAIN|2026-11-22T10:00:00|Epilog error" >"$NODE/cluster/n9"
    bad_with SHM_FULL
    as_slurmd epilog n1
    [ "$(drained)" -eq 6 ]
    grep 'not drained: 8 of 20 nodes are out of service, the limit is 8' "$LOG"
}

@test "a partition has a floor of its own" {
    configure TESSERA_DRAIN_PERCENT=30
    sed -i 's/^    echo "$node|$state|all.*/&\n case $node in n[1-4]) echo "$node|$state|small$reason" ;; esac/' \
        "$NODE/slurm/sinfo"
    bad_with SHM_FULL
    for node in n1 n2 n3 n4; do
        as_slurmd epilog "$node"
    done
    [ "$(drained)" -eq 1 ]
    grep 'n2 .* not drained: 1 of 4 nodes of small are out of service, the limit is 1' "$LOG"
    grep 'n3 .* not drained: as many nodes as may be are out of service in small' "$LOG"
}

@test "a setting that is wrong drains nothing, and is said" {
    bad_with SHM_FULL
    for setting in TESSERA_DRAIN_PERCENT=10% TESSERA_DRAIN_PERCENT= \
        TESSERA_DRAIN_PERCNT=20 'TESSERA_ENFORCE=$UNSET' 'exit 1' 'if ('; do
        cp "$NODE/etc/tessera.conf" "$NODE/good.conf"
        configure "$setting"
        : >"$LOG"
        prolog_is 0
        [ "$(drained)" -eq 0 ]
        grep 'nothing is drained until that is right' "$LOG"
        grep 'not drained, because of wrong settings: .*SHM_FULL' "$LOG"
        grep -F "${setting%%=*}" "$LOG"
        cp "$NODE/good.conf" "$NODE/etc/tessera.conf"
    done
    prolog_is 1
}

@test "many drains of one kind latch it until an administrator says so" {
    configure TESSERA_DRAIN_PERCENT=100
    echo "IDLE+DRAIN|2020-11-22T10:00:00|tessera: SHM_FULL long ago" \
        >"$NODE/cluster/n9"
    TZ=UTC date +%FT%T >"$NODE/cluster/res.tessera-drained.1000000000.SHM_FULL.n9"
    bad_with SHM_FULL
    for node in n{1..8}; do
        run as_slurmd prolog $node
        echo "IDLE|Unknown|none" >"$NODE/cluster/$node" # somebody undrains it
    done
    [ "$status" -eq 0 ]
    [ "$(grep -c ' drained: tessera: SHM_FULL' "$LOG")" -eq 5 ]
    grep 'n6 .*5 nodes were drained for the same within 600 s' "$LOG"
    [ "$(grep -c 'until an administrator deletes the reservation tessera-latched.SHM_FULL' "$LOG")" -eq 2 ]
    # what is older than the window is not kept
    [ ! -e "$NODE/cluster/res.tessera-drained.1000000000.SHM_FULL.n9" ]
    bad_with GPU_ECC
    run as_slurmd prolog n9
    run as_slurmd prolog n10
    [ "$status" -eq 1 ]
    rm "$NODE"/cluster/res.tessera-{latched.SHM_FULL,drained.*}
    bad_with SHM_FULL
    run as_slurmd prolog n11
    [ "$status" -eq 1 ]
}

@test "a node that saves power is in service, one that fails is not" {
    bad_with SHM_FULL
    for state in IDLE+POWER_DOWN IDLE+POWERING_DOWN MIXED+POWERED_DOWN; do
        echo "$state|Unknown|none" >"$NODE/cluster/n1"
        prolog_is 1
        [ "$(drained)" -eq 1 ]
    done
    for state in 'DOWN*' IDLE+FAIL MIXED+DRAIN+POWER_DOWN; do
        : >"$LOG"
        echo "$state|Unknown|none" >"$NODE/cluster/n1"
        prolog_is 1
        grep -E 'is (down|fail|drained) already' "$LOG"
    done
}

@test "Slurm that answers nothing or cannot lock drains nothing" {
    bad_with SHM_FULL
    for program in sinfo scontrol; do
        mv "$NODE/slurm/$program" "$NODE/slurm/$program.real"
        printf '#!/bin/bash\necho "Unable to contact slurm controller" >&2\nexit 1\n' \
            >"$NODE/slurm/$program"
        chmod 755 "$NODE/slurm/$program"
        prolog_is 0
        mv "$NODE/slurm/$program.real" "$NODE/slurm/$program"
    done
    sed -i 's/\[ -e "res.$1" \] ||.*/false/; s/Duplicate.*name/Access denied/' \
        "$NODE/slurm/scontrol"
    prolog_is 0
    [ "$(drained)" -eq 0 ]
    [ "$(grep -c 'not drained.*Unable to contact' "$LOG")" -eq 2 ]
    grep 'not drained: no lock: .*Access denied' "$LOG"
}

@test "a dry run refuses no job, whoever drained the node" {
    configure TESSERA_ENFORCE=0
    bad_with SHM_FULL
    echo "IDLE+DRAIN|2026-11-22T10:00:00|fan is loud" >"$NODE/cluster/n1"
    prolog_is 0
    prolog_is 0 n2
    [ "$(drained)" -eq 1 ]
    grep 'dry run, would drain: tessera: SHM_FULL' "$LOG"
}

# --- what is said -------------------------------------------------------------

@test "whatever is not ok is said, with the words of the program" {
    while IFS='|' read -r code json words says; do
        check_says "$code" "$json" "$words"
        : >"$LOG"
        prolog_is 0
        grep -- "$says" "$LOG"
        [ "$(drained)" -eq 0 ]
    done <<'END'
0|{"verdict":"ok"}|health.cfg: not read|ok, but says: .*not read
1|{"verdict":"warn","code":"GPU_USED","reason":"tessera: GPU_USED"}||warning: tessera: GPU_USED
3|{"verdict":"unknown","reason":"tessera: CHECK_FAILED"}||not known: tessera: CHECK_FAILED
76|{"verdict":"unknown","reason":"tessera: BUDGET"}||not known: tessera: BUDGET
64||health.cfg:3: unknown setting|settings are wrong: .*health.cfg:3
127||libmpi.so.40: cannot open shared object|does not start: .*libmpi
2||nonsense|ended with code 2: nonsense
139|||ended with code 139
END
    # what has crashed, or is not there, refuses no job either
    printf '#!/bin/bash\nkill -ABRT $$\n' >"$NODE/libexec/tessera/node-health"
    prolog_is 0
    rm "$NODE/libexec/tessera/node-health"
    prolog_is 0
    run env -i SLURMD_NODENAME=n1 "$NODE/libexec/tessera/epilog"
    [ "$status" -eq 0 ]
    [[ $output == *"node-health ended with code 127, nothing is checked"* ]]
}

@test "a misspelt threshold is said, not taken for health" {
    echo 'gem: { min_gflops = 1.0; };' >"$NODE/etc/health.cfg"
    prolog_is 0
    grep "settings are wrong: .*health.cfg:1: unknown setting 'gem" "$LOG"
}

@test "thresholds that others can write are not obeyed, and that is said" {
    echo 'shm: { free_min_mib = 1e9; };' >"$NODE/etc/health.cfg"
    chmod 666 "$NODE/etc/health.cfg"
    prolog_is 0
    grep 'health.cfg: not read: it must belong to root' "$LOG"
    chmod 644 "$NODE/etc/health.cfg"
    prolog_is 1
}

@test "a bad node that is well at the second look stays" {
    cat >"$NODE/check" <<END
#!/bin/bash
[ ! -e "$NODE/again" ] || { echo 'verdict - ok - - -'; exit 0; }
touch "$NODE/again"
echo 'verdict - bad HANG_TMP HANG_TMP tessera: HANG_TMP'
exit 2
END
    install_check "$NODE/check"
    prolog_is 0
    [ "$(drained)" -eq 0 ]
    grep 'bad at first, but not at a second look' "$LOG"
}

@test "a driver that hangs is drained, also where Slurm is slow" {
    cat >"$NODE/check" <<'END'
#!/bin/bash
TESSERA_INJECT=hang:gpu exec "${0%/*}/node-health.real" "$@" --allow-inject --gpus 8
END
    install_check "$NODE/check"
    sed -i 's/^sleep 0.02/sleep 0.8/' "$NODE"/slurm/s*
    for phase in prolog epilog; do
        : >"$LOG"
        SECONDS=0
        as_slurmd $phase n1 || true
        [ "$SECONDS" -lt 60 ] # slurmd's own limit
        grep ' drained: tessera: HANG_GPU' "$LOG"
        echo "IDLE|Unknown|none" >"$NODE/cluster/n1"
    done
}

@test "nothing takes all processors where another job has some of them" {
    printf '#!/bin/bash\necho "$*" >>"%s/called"\necho "verdict - ok - - -"\n' "$NODE" \
        >"$NODE/check"
    install_check "$NODE/check"
    declare -f as_slurmd >"$NODE/functions"
    # where no jobs of other tests are seen
    NODE=$NODE unshare --pid --fork --mount-proc bash -c '. "$NODE/functions"
        step() { # JOB: its manager
            (exec -a "slurmstepd: [$1.batch]" "$NODE/slurmstepd" 60 3>&-) &
            until [ "$(cat "/proc/$!/comm")" = slurmstepd ]; do sleep 0.05; done
        }
        cp /bin/sleep "$NODE/slurmstepd"
        step 4711
        as_slurmd prolog n1
        step 4712
        as_slurmd epilog n1'
    cat "$NODE/called"
    [ "$(cat "$NODE/called")" = "prolog --words --budget 8
epilog --words --budget 20 --shared" ]
    run "$BIN/tessera-health" prolog --shared
    [[ $output != *gemm* ]]
}

@test "processes of users who have no job are told, those of a step are not" {
    : >"$NODE/etc/health.cfg"
    declare -f as_slurmd >"$NODE/functions"
    NODE=$NODE unshare --pid --fork --mount-proc bash -c '. "$NODE/functions"
        as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
        as 60011 sleep 60 3>&- &
        as 60012 sleep 60 3>&- &
        # a manager is who has the name and is root; its child is the user'"'"'s
        perl -e '"'"'$0 = "slurmstepd"; unless (fork) { $> = $< = 60013; exec "sleep", 60 }
            sleep 60'"'"' 3>&- &
        until [ "$(pgrep -cx sleep)" -eq 3 ]; do sleep 0.05; done
        as_slurmd prolog n1
        as_slurmd epilog n2'
    grep 'n1 .*warning: tessera: LEFTOVER leftover job=4711 (user 60012: 1 (sleep))' "$LOG"
    grep 'n2 .*warning: tessera: LEFTOVER .*(user 6001[12]: 1 (sleep), user 6001[12]: 1 (sleep))' "$LOG"
    grep 'n2 .*user 60011: 1 (sleep)' "$LOG" | grep 'user 60012: 1 (sleep)'
    [ "$(drained)" -eq 0 ]
}

# --- the job's probes, again ----------------------------------------------------

# probes_here: the program that jobs run, where $NODE/inject says what it finds
probes_here() {
    local program
    program=$(readlink -f "$BIN/tessera-health")
    configure "TESSERA_PROBES=$NODE/probes"
    configure "TESSERA_SPOOL=$NODE/spool"
    mkdir -m 1777 "$NODE/spool"
    check_says 0 '{"verdict":"ok"}'
    : >"$NODE/inject"
    cat >"$NODE/probes" <<END
#!/bin/bash
echo "\$*" >>"$NODE/probed"
TESSERA_INJECT=\$(cat "$NODE/inject") exec "$program" "\$@" --allow-inject
END
    chmod 755 "$NODE/probes"
}

# job_finds CHECK CODE: what the job's own check left for the epilog
job_finds() {
    echo '{"host":"n1","verdict":"bad","code":"'"$2"'","checks":[{"id":"load","v":1.0,"st":"ok","code":""},{"id":"'"$1"'","v":0,"unit":"GFLOP/s","st":"bad","code":"'"$2"'","text":"{x}"}]}' \
        >"$NODE/spool/verdict.4711.n1"
    chown 60011 "$NODE/spool/verdict.4711.n1"
    : >"$NODE/probed"
    as_slurmd epilog n1
}

@test "what a job's probe finds bad the epilog probes again, and drains" {
    probes_here
    job_finds gemm GEMM_WRONG
    grep "job's verdict GEMM_WRONG is not confirmed here (ok)" "$LOG"
    [ "$(drained)" -eq 0 ]
    echo 'gemm:n1:wrong' >"$NODE/inject"
    job_finds gemm GEMM_WRONG
    [[ $(cat "$NODE/probed") == "job --words --budget "*" --only gemm" ]]
    grep ' drained: tessera: GEMM_WRONG gemm job=4711 (.* elements differ' "$LOG"
    [ "$(drained)" -eq 1 ]
}

@test "the same of a GPU, whose products are wrong in a bit" {
    probes_here
    # the emulated device: its second GPU is ill in the way of that number
    program=$(readlink -f "$BIN/../tests/test_health_probe_emu")
    [ -x "$program" ] || skip "no C++ compiler, so no emulated GPU"
    cat >"$NODE/probes" <<END
#!/bin/bash
echo "\$*" >>"$NODE/probed"
ILL=\$(cat "$NODE/inject") exec "$program" "\$@"
END
    for check in gpugemm hbm allreduce; do
        echo 0 >"$NODE/inject"
        job_finds $check GPUGEMM_WRONG
        grep "job's verdict GPUGEMM_WRONG is not confirmed here (ok)" "$LOG"
    done
    echo 2 >"$NODE/inject"
    job_finds gpugemm GPUGEMM_WRONG
    [[ $(cat "$NODE/probed") == *"--only gpugemm" ]]
    grep ' drained: tessera: GPUGEMM_WRONG gpugemm job=4711 (GPU 1 0000:10:00.0' "$LOG"
    [ "$(drained)" -eq 1 ]
}

@test "what only a program of the user's says is not probed" {
    probes_here
    echo 'gemm:n1:wrong' >"$NODE/inject"
    for found in "shm SHM_FULL" "pair PAIR_SLOW" 'gemm;touch\u0020/x GEMM_WRONG'; do
        # shellcheck disable=SC2086 # two words
        job_finds $found
        [ ! -s "$NODE/probed" ]
    done
    [ "$(drained)" -eq 0 ]
}

@test "a probe that cannot judge the node leaves it, and that is said" {
    probes_here
    echo 'gemm:n1:wrong' >"$NODE/inject"
    printf '4711 60011\n4712 60013\n' >"$NODE/jobs"
    job_finds gemm GEMM_WRONG
    grep 'not probed for gemm: other jobs are on the node' "$LOG"
    printf '4711 60011\nslurm_load_jobs\n' >"$NODE/jobs"
    job_finds gemm GEMM_WRONG
    grep 'not probed for gemm: whose jobs are here is not known' "$LOG"
    rm "$NODE/jobs"
    chmod 775 "$NODE/probes"
    job_finds gemm GEMM_WRONG
    grep 'not probed for gemm, see TESSERA_PROBES: .*/probes must belong to root' "$LOG"
    rm "$NODE/probes"
    job_finds gemm GEMM_WRONG
    grep 'not probed for gemm, see TESSERA_PROBES: .*No such file' "$LOG"
    [ ! -s "$NODE/probed" ]
    printf '#!/bin/bash\necho libmpi.so.40: no such file >&2\nexit 127\n' >"$NODE/probes"
    chmod 755 "$NODE/probes"
    job_finds gemm GEMM_WRONG
    grep 'the check does not start: libmpi.so.40' "$LOG"
    printf '#!/bin/bash\nexec sleep 100\n' >"$NODE/probes"
    SECONDS=0
    job_finds gemm GEMM_WRONG
    [ "$SECONDS" -lt 60 ] # slurmd's own limit
    grep 'the check does not answer' "$LOG"
    [ "$(grep -c "GEMM_WRONG is not confirmed here (unknown)" "$LOG")" -eq 6 ]
    [ "$(drained)" -eq 0 ]
}

@test "a prolog that stresses the node refuses a job that would get wrong products" {
    probes_here
    echo 'gemm:n1:wrong' >"$NODE/inject"
    prolog_is 0
    [ ! -e "$NODE/probed" ]
    configure TESSERA_STRESS=1
    configure TESSERA_STRESS_S=8
    prolog_is 0 n2
    prolog_is 1
    grep 'n1 .* drained: tessera: GEMM_WRONG gemm' "$LOG"
    # all, and what was bad once more
    [ "$(cut -d ' ' -f 6 "$NODE/probed" | xargs)" = \
        "gemm,gpugemm,hbm,allreduce gemm,gpugemm,hbm,allreduce gemm" ]
}

@test "the log is kept short" {
    head -c 1100000 /dev/zero | tr '\0' x >"$LOG"
    check_says 1 '{"verdict":"warn","reason":"tessera: GPU_USED"}'
    as_slurmd prolog n1
    [ "$(stat -c %s "$LOG")" -lt 1000 ]
    [ "$(stat -c %s "$LOG.old")" -eq 1100000 ]
}

@test "the log keeps what others need to see, however much is written" {
    check_says 1 '{"verdict":"warn","reason":"tessera: GPU_USED"}'
    echo "drained: evidence" >"$LOG.old"
    head -c 1100000 /dev/zero | tr '\0' x >"$LOG"
    as_slurmd prolog n1
    grep evidence "$LOG.old"
    grep GPU_USED "$LOG"
    # but not more than 16 MiB, nor for more than a day
    touch -d '2 days ago' "$LOG.old"
    as_slurmd prolog n1
    [ "$(stat -c %s "$LOG.old")" -gt 1100000 ]
    truncate -s 17M "$LOG"
    as_slurmd prolog n1
    [ "$(stat -c %s "$LOG")" -lt 1000 ]
}

@test "a hundred forged verdicts are short in the log" {
    configure "TESSERA_SPOOL=$NODE/spool"
    mkdir -m 1777 "$NODE/spool"
    check_says 0 '{"verdict":"ok"}'
    long=$(head -c 60000 /dev/zero | tr '\0' A)
    for job in {1..10}; do
        printf '{"host":"n1","verdict":"bad","code":"%s"}\n' "$long" \
            >"$NODE/spool/verdict.$job.n1"
        chown 60011 "$NODE/spool/verdict.$job.n1"
        as_slurmd epilog n1
    done
    cat "$LOG" | cut -c 1-300
    [ "$(grep -c "verdict AAA*A is not confirmed" "$LOG")" -eq 10 ]
    [ "$(stat -c %s "$LOG")" -lt 5000 ]
}

@test "programs that others can write are said" {
    chown 60011 "$NODE/libexec/tessera/epilog"
    chmod 775 "$NODE/libexec/tessera/node-health"
    as_slurmd prolog n1
    grep 'warning: .*/epilog belongs to 60011 .*/node-health belongs to 0 (mode 775), who' "$LOG"
}

@test "without Slurm's programs that is said, also where all is well" {
    configure TESSERA_SLURM_BIN=
    PATH=/usr/bin:/bin
    command -v scontrol && skip "Slurm is installed here"
    as_slurmd prolog n1
    grep 'no scontrol in .*: no node can be drained' "$LOG"
}

# --- what may hang ------------------------------------------------------------

# with_hang FOLDER PROGRAM: runs PROGRAM with a file system on FOLDER whose every
# access waits, and cannot be killed: FUSE whose server takes requests and never
# answers. It ends when the server closes its file. SCRIPT runs before, where that
# and all its mounts are seen by nobody else; it may change $3, the folder.
with_hang() { # FOLDER PROGRAM [SCRIPT]
    python3 -c 'import ctypes' 2>/dev/null || skip "no python3"
    [ -c /dev/fuse ] || skip "no /dev/fuse"
    cat >"$NODE/hang.py" <<'END'
import ctypes, os, struct, subprocess, sys, threading
node, folder, program = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/dev/fuse", os.O_RDWR)
data = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fd
if libc.mount(b"hangs", folder.encode(), b"fuse", 0, data.encode()):
    sys.exit(77)
def serve():
    unique = struct.unpack_from("<IIQ", os.read(fd, 1 << 17))[2]
    os.write(fd, struct.pack("<IiQIIIIHHIIHH8I", 80, 0, unique, 7, 31, 0, 0, 0, 0,
                             4096, 1, 0, 0, *[0] * 8))
    while os.read(fd, 1 << 17):
        pass
threading.Thread(target=serve, daemon=True).start()
env = dict(SLURMD_NODENAME="n1", SLURM_JOB_ID="4711", SLURM_JOB_UID="60011",
           SLURM_JOB_GID="60011")
# slurmd waits for the last writer of its pipe
ended = subprocess.run([node + "/libexec/tessera/" + program], env=env, timeout=30,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
print(ended.stdout.decode())
for pid in os.listdir("/proc"):
    try:
        with open("/proc/%s/stat" % pid) as file:
            text = file.read()
        if ") D " in text:
            print("left behind:", text)
    except OSError:
        pass
libc.umount2(folder.encode(), 1) # MNT_FORCE answers all
sys.stdout.flush()
os._exit(ended.returncode)
END
    mkdir -p "$1"
    SECONDS=0
    run timeout 60 unshare -m --propagation private bash -c "${3:-}"'
        exec python3 "$@"' _ "$NODE/hang.py" "$NODE" "$1" "$2"
    [ "$status" -ne 77 ] || skip "cannot mount FUSE here"
}

@test "a spool that hangs costs seconds and a line, not the node" {
    configure "TESSERA_SPOOL=$NODE/spool"
    check_says 0 '{"verdict":"ok"}'
    with_hang "$NODE/spool" epilog
    [ "$status" -eq 0 ]
    [ "$SECONDS" -lt 60 ] # slurmd's own limit
    [[ $output == *"left behind:"* ]]
    grep 'TESSERA_SPOOL .* does not answer' "$LOG"
}

@test "a log that hangs is waited for once" {
    configure "TESSERA_LOG=$NODE/hang/log"
    configure TESSERA_ENFORCE=0
    bad_with SHM_FULL
    with_hang "$NODE/hang" prolog
    [ "$status" -eq 0 ]
    [ "$SECONDS" -lt 60 ]
    [[ $output == *"$NODE/hang/log does not answer"* ]]
    [[ $output == *"dry run, would drain: tessera: SHM_FULL"* ]]
}

@test "a file system of the site's that hangs is named, and hides no other" {
    echo "mounts: { paths = \"/proc:proc, $NODE/hang, /nowhere:nfs4\"; missing_bad = true; };" \
        >"$NODE/etc/health.cfg"
    with_hang "$NODE/hang" prolog
    [ "$status" -eq 1 ]
    [ "$SECONDS" -lt 60 ]
    grep "bad: tessera: MOUNT_MISSING mounts job=4711 ($NODE/hang does not answer, /nowhere is not" "$LOG"
    [ "$(drained)" -eq 1 ]
    # by itself it is never bad
    rm "$NODE/cluster/"n*
    for node in n{1..20}; do
        echo "IDLE|Unknown|none" >"$NODE/cluster/$node"
    done
    echo "mounts: { paths = \"$NODE/hang\"; missing_bad = true; };" >"$NODE/etc/health.cfg"
    with_hang "$NODE/hang" epilog
    [ "$status" -eq 0 ]
    [ "$(drained)" -eq 0 ]
    grep "warning: tessera: MOUNT_HANGS mounts job=4711 ($NODE/hang does not answer)" "$LOG"
}

# --- between jobs ---------------------------------------------------------------

# quick_looks COMMAND: with a /run of its own
quick_looks() {
    unshare -m true 2>/dev/null || skip "mounting needs root"
    {
        declare -f as_slurmd check_says install_check check_stands_in
        echo "NODE=$NODE BIN=$BIN"
    } >"$NODE/in_run"
    unshare -m --propagation private bash -euc \
        'mount -t tmpfs tmpfs /run && . "$1" && eval "$2"' _ "$NODE/in_run" "$1"
}

@test "the quick look says and drains as the prolog does, and changes nothing of others" {
    configure TESSERA_DRAIN_PERCENT=20
    quick_looks 'as_slurmd quick n1'
    [ "$(grep -vc 'warning\|not known' "$LOG")" -eq 0 ]
    check_says 1 '{"verdict":"warn","reason":"tessera: MOUNT_HANGS"}'
    quick_looks 'as_slurmd quick n1'
    grep ' quick n1 .*warning: tessera: MOUNT_HANGS' "$LOG"
    bad_with SHM_FULL
    echo "IDLE+DRAIN|2026-11-22T10:00:00|fan is loud" >"$NODE/cluster/n1"
    echo "DOWN*|2026-11-22T10:00:00|Not responding" >"$NODE/cluster/n2"
    for node in n1 n2; do
        cp "$NODE/cluster/$node" "$NODE/before"
        quick_looks "as_slurmd quick $node"
        cmp "$NODE/before" "$NODE/cluster/$node"
    done
    # with what slurmd gives it
    quick_looks 'env -i SLURMD_NODENAME=n3 "$NODE/libexec/tessera/quick"'
    grep 'DRAIN.*SHM_FULL' "$NODE/cluster/n3"
    configure TESSERA_ENFORCE=0
    quick_looks 'as_slurmd quick n4'
    grep ' quick n4 .*dry run, would drain: tessera: SHM_FULL' "$LOG"
    [ "$(drained)" -eq 2 ]
}

@test "a second copy of the quick look ends at once, also where the first left a child" {
    printf '#!/bin/bash\necho "$$" >"%s/child"\nexec sleep 600\n' "$NODE" >"$NODE/check"
    install_check "$NODE/check"
    configure TESSERA_PROLOG_S=40
    quick_looks '
        as_slurmd quick n1 3>&- &
        until [ -s "$NODE/child" ]; do kill -0 $! && sleep 0.05; done
        first=$(ps -o ppid= "$(cat "$NODE/child")")
        printf "#!/bin/bash\ntouch %s/second\necho verdict - ok - - -\n" "$NODE" >"$NODE/check"
        install_check "$NODE/check"
        as_slurmd quick n1
        [ ! -e "$NODE/second" ]
        kill -0 $first
        as_slurmd quick n2 # another node of this machine
        [ -e "$NODE/second" ]
        rm "$NODE/second"
        kill -KILL $first
        wait
        kill -0 "$(cat "$NODE/child")"
        as_slurmd quick n1
        [ -e "$NODE/second" ]'
    kill "$(cat "$NODE/child")"
}

# --- what users do ------------------------------------------------------------

# in_shm COMMAND: on a node with a /dev/shm of 48 MiB, $NODE/node in there. Users
# 60011 (whose job this is), 60012 (no job) and 60013 (a job) have files.
in_shm() {
    unshare -m true 2>/dev/null || skip "mounting needs root"
    mkdir -p -m 777 "$NODE/verdicts"
    {
        declare -f as_slurmd node_check
        echo "NODE=$NODE"
        echo 'fill() { setpriv --reuid "$1" --regid "$1" --clear-groups \
            bash -c "cd /dev/shm && $2" 2>/dev/null; sleep 0.02; }'
    } >"$NODE/in_shm"
    printf '%s 60011\n4712 60013\n' "${job:-4711}" >"$NODE/jobs"
    unshare -m --propagation private bash -c 'mount -t tmpfs -o size=48m,mode=1777 \
        tmpfs /dev/shm && . "$1" && eval "$2"' _ "$NODE/in_shm" "$1"
}

@test "what a user without a job has left in /dev/shm is removed, and no more" {
    in_shm '
        fill 60013 "mkdir keep13; echo 13 >keep13/file"
        echo root >/dev/shm/keep0; mkdir /dev/shm/of-root
        fill 60012 "mkdir -p a/b; chmod 500 a; ln -s /dev/shm/keep0 link; \
            ln -s /dev/shm/keep13 a/b/dir; head -c 60M /dev/zero >a/b/full; \
            head -c 60M /dev/zero >full"
        as_slurmd epilog n1
        ls -R /dev/shm >"$NODE/list"'
    cat "$NODE/list"
    [ "$(drained)" -eq 0 ]
    grep 'removed what user 60012 has left in /dev/shm' "$LOG"
    [ "$(grep -c full "$NODE/list")" -eq 0 ]
    configure TESSERA_ENFORCE=0
    in_shm 'fill 60012 "head -c 60M /dev/zero >full"; as_slurmd epilog n1
        ls /dev/shm >"$NODE/list.dry"'
    grep full "$NODE/list.dry"
    grep 'dry run, would remove what users without a job left' "$LOG"
    grep keep0 "$NODE/list"
    grep keep13 "$NODE/list"
    grep file "$NODE/list"
}

@test "a login that is another user's number changes nobody's files" {
    printf '60012:x:60013:60013::/:/bin/sh\n60011:x:60013:60013::/:/bin/sh\n' \
        >"$NODE/passwd"
    in_shm '
        fill 60013 "echo 13 >keep13"
        fill 60011 "mkdir tessera.4711; touch tessera.4711/file"
        fill 60012 "head -c 60M /dev/zero >full"
        mount --bind "$NODE/passwd" /etc/passwd
        as_slurmd epilog n1
        ls -R /dev/shm >"$NODE/list"'
    cat "$NODE/list"
    grep keep13 "$NODE/list"
    [ "$(grep -c 'full\|tessera' "$NODE/list")" -eq 0 ]
    grep 'removed what user 60012 has left in /dev/shm: 1 files' "$LOG"
}

@test "a user's mount that hangs in a full /dev/shm is no hang of the node" {
    configure TESSERA_CLEAN=
    configure TESSERA_PROLOG_S=6
    with_hang "$NODE/unused" prolog 'mount -t tmpfs -o size=48m,mode=1777 tmpfs /dev/shm &&
        mkdir /dev/shm/mount && chown 60012 /dev/shm/mount &&
        head -c 60M /dev/zero 2>/dev/null |
            setpriv --reuid 60012 --clear-groups tee /dev/shm/full >/dev/null 2>&1
        set -- "$1" "$2" /dev/shm/mount "$4"'
    [ "$status" -eq 0 ]
    [ "$(drained)" -eq 0 ]
    [ "$(grep -c HANG "$LOG")" -eq 0 ]
    grep 'warning: tessera: SHM_USED' "$LOG"
}

@test "nothing is called removed that is still there" {
    in_shm 'fill 60012 "head -c 40M /dev/zero >full; echo \$\$ >&3; exec sleep 600" \
            3>"$NODE/holder" &
        until [ -s "$NODE/holder" ]; do sleep 0.1; done
        fill 60014 "mkdir x; chmod 1777 x"
        fill 60013 "head -c 60M /dev/zero >x/full13"
        as_slurmd epilog n1
        kill "$(cat "$NODE/holder")"
        wait
        ls -R /dev/shm >"$NODE/list"'
    cat "$NODE/list"
    grep x "$NODE/list"
    [ "$(grep -c 'removed' "$LOG")" -eq 0 ]
}

@test "a user's full /dev/shm warns, root's drains" {
    in_shm 'fill 60013 "head -c 60M /dev/zero >full"; as_slurmd prolog n1'
    [ "$(drained)" -eq 0 ]
    grep 'warning: tessera: SHM_USED .*full of users' "$LOG"
    grep '/dev/shm stays full: user 60013 has 48 MiB there' "$LOG"
    : >"$LOG"
    in_shm 'mount -t tmpfs tmpfs /run; fill 60013 "head -c 60M /dev/zero >full"
        as_slurmd quick n1'
    [ "$(drained)" -eq 0 ]
    grep 'quick n1 .*warning: tessera: SHM_USED .*full of users' "$LOG"
    # with an open file that has no name any more
    in_shm 'fill 60013 "head -c 60M /dev/zero >full; exec 5<full; rm full; sleep 30 &"
        as_slurmd prolog n1'
    [ "$(drained)" -eq 0 ]
    run in_shm 'head -c 60M /dev/zero >/dev/shm/full 2>/dev/null
        fill 60013 "mkdir x"; as_slurmd prolog n2'
    [ "$status" -eq 1 ]
    [ "$(drained)" -eq 1 ]
    grep 'n2 .*drained: tessera: SHM_FULL' "$LOG"
}

@test "the epilog removes a tree of the job's that resists" {
    in_shm '
        fill 60011 "mkdir -p tessera.4711/a/b; touch tessera.4711/a/b/c; \
            chmod 000 tessera.4711/a; mkdir -m 1700 tessera-ckpt.4711.60011.0f"
        fill 60012 "mkdir tessera-ckpt.4711; touch tessera-ckpt.4711/x"
        as_slurmd epilog n1
        ls -R /dev/shm >"$NODE/list"'
    [ "$(grep -cE 'tessera\.|0f$' "$NODE/list")" -eq 0 ]
    grep x "$NODE/list"
}

# node_check FOLDER: of user 60011's job 4711, which has FOLDER for MPI
node_check() {
    SLURM_JOB_ID=4711 SLURMD_NODENAME=n1 \
        OMPI_MCA_btl_vader_backing_directory=$1 setpriv --reuid 60011 \
        --regid 60011 --clear-groups bash "$NODE/node_check.sh" "$NODE/bin" \
        "$NODE/verdicts" quick 10
}

@test "a folder of a stranger is not given to MPI" {
    run in_shm 'fill 60012 "mkdir -m 777 tessera.4711.w"
        node_check /dev/shm/tessera.4711.w
        code=$?; ls /dev/shm/tessera.4711.w; stat -c %u /dev/shm/tessera.4711.w
        exit $code'
    [ "$status" -eq 3 ]
    [ "${lines[-1]}" = 60012 ]
    grep '"host":"n1".*"verdict":"unknown","code":"SHM_TAKEN","reason":"tessera: SHM_TAKEN /dev/shm/tessera.4711.w belongs to' \
        "$NODE/verdicts/n1.json"
}

@test "the job's folder for MPI is new, and strangers cannot deny it" {
    run in_shm 'fill 60011 "mkdir tessera.4711.w tessera.4711.old
            touch tessera.4711.w/old"
        fill 60012 "mkdir -m 700 tessera.4711 tessera.4711.other"
        node_check /dev/shm/tessera.4711.w
        ls /dev/shm/tessera.4711.w; stat -c "%u %a" /dev/shm/tessera.4711.w
        ls /dev/shm | xargs
        as_slurmd epilog n1
        ls /dev/shm | xargs'
    grep '"verdict":"ok"' "$NODE/verdicts/n1.json"
    [ "${lines[-3]}" = "60011 700" ]
    [ "${lines[-2]}" = "tessera.4711 tessera.4711.other tessera.4711.w" ]
    [ "${lines[-1]}" = "tessera.4711 tessera.4711.other" ]
    [ "$(grep -c 'still there' "$LOG")" -eq 0 ]
}

@test "the check ends what is left of its own job, not what that submitted" {
    left() { # JOB: a process of the attempt's, or what one submitted
        setpriv --reuid 60011 --regid 60011 --clear-groups env TESSERA_ATTEMPT_OF=4711 \
            SLURM_JOB_ID="$1" sleep 600 3>&- &
    }
    left 4711
    own=$!
    left 4712
    other=$!
    # both are what they will be
    until [ "$(cat /proc/$own/comm)$(cat /proc/$other/comm)" = sleepsleep ]; do
        sleep 0.05
    done
    in_shm 'node_check /dev/shm/tessera.4711.w'
    status=0
    wait "$own" || status=$?
    [ "$status" -eq 137 ]
    kill "$other"
}

# --- GPUs ---------------------------------------------------------------------

@test "a GPU that the node had and Slurm has is missing, not what Gres invents" {
    unshare -m true 2>/dev/null || skip "mounting needs root"
    cat >"$NODE/check" <<'END'
#!/bin/bash
echo "verdict - warn - - tessera: called with $*"
exit 1
END
    install_check "$NODE/check"
    declare -f as_slurmd >"$NODE/functions"
    while IFS='|' read -r gres before now says warns; do
        echo "$gres" >"$NODE/gres"
        NODE=$NODE unshare --pid --fork --mount-proc bash -c '
            gpus() {
                rm -rf /proc/driver/nvidia /run/tessera
                [ "$1" != - ] || return 0
                mkdir -p /proc/driver/nvidia
                for ((i = 0; i < $1; i++)); do
                    mkdir -p "/proc/driver/nvidia/gpus/0000:0$i:00.0"
                    echo "GPU Excluded:  No" \
                        >"/proc/driver/nvidia/gpus/0000:0$i:00.0/information"
                done
            }
            mount -t tmpfs tmpfs /proc/driver && mount -t tmpfs tmpfs /run &&
            mount -t tmpfs tmpfs /var/lib && . "$NODE/functions" &&
            gpus "$1" && as_slurmd prolog n1 && gpus "$2" &&
            : >"$NODE/log" && as_slurmd prolog n1 &&
            : >"$NODE/gres" && as_slurmd prolog n1' _ "$before" "$now"
        [ "$(grep -c -- "--budget 8${says:+ $says}\$" "$LOG")" -eq 2 ]
        [ "$(grep -c "warning: GPU_GRES .*Gres has $warns" "$LOG")" -eq \
            "$((${#warns} > 0))" ]
    done <<'END'
gpu:8|8|8|--gpus 8
gpu:8|8|7|--gpus 8
gpu:7|8|7|--gpus 7
gpu:h100:4(S:0-1),gpu:a100:2(S:2),shard:80|6|5|--gpus 6
gpu:a100_1g.5gb:7(S:0)|1|1|
gpu:14|2|2|--gpus 2|14 GPUs, and 2 is the most
gpu:mig20gb:14|2|1|--gpus 2|14 GPUs, and 2 is the most
gpu:8|0|0||8 GPUs, and 0 is the most
gpu:8|8|-|--gpus 8
gpu:8|-|-||8 GPUs, and 0 is the most
(null)|1|1|
END
}

# --- what is installed --------------------------------------------------------

# with the features that were built
stage() {
    local build
    build=$(dirname "$BIN")
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory \
        -C "$BATS_TEST_DIRNAME/.." install-node "B=$build" \
        "DESTDIR=$NODE/stage" PREFIX=/opt/node \
        $(grep -oE '(MPI|CUDA)=[01]' "$build/features") >/dev/null
}

@test "a link that flaps drains, at a second look that sees no more of it, until it is repaired" {
    unshare -m true 2>/dev/null || skip "mounting needs root"
    echo 'disable = "gemm,shm,tmp";' >"$NODE/etc/health.cfg"
    declare -f as_slurmd >"$NODE/functions"
    NODE=$NODE run unshare -m --propagation private bash -ec '
        mount -t tmpfs tmpfs /sys/class
        mount -t tmpfs tmpfs /var/lib
        . "$NODE/functions"
        port=/sys/class/infiniband/mlx5_0/ports/1
        mkdir -p $port/counters
        echo "4: ACTIVE" >$port/state
        echo 3 >$port/counters/link_downed
        as_slurmd prolog n1
        echo 9 >$port/counters/link_downed
        ! as_slurmd prolog n1
        cp "$NODE/cluster/n1" "$NODE/drained"
        echo "IDLE|Unknown|none" >"$NODE/cluster/n1"
        ! as_slurmd prolog n1
        "$NODE/bin/tessera-health" --repaired
        echo "IDLE|Unknown|none" >"$NODE/cluster/n1"
        as_slurmd prolog n1'
    [ "$status" -eq 0 ]
    grep 'DRAIN.*tessera: PORT_FLAPS ports .*mlx5_0/1 was down 6 times' "$NODE/drained"
    [ "$(grep -c ' drained: tessera: PORT_FLAPS' "$LOG")" -eq 2 ]
}

@test "make install-node is all that root needs" {
    stage
    [ "$(cd "$NODE/stage/opt/node" && find . -type f | sort | xargs)" = \
        "./etc/tessera.conf ./libexec/tessera/epilog ./libexec/tessera/node-health ./libexec/tessera/prolog ./libexec/tessera/quick" ]
    sed -i "s|^TESSERA_SLURM_BIN=|&$NODE/slurm|" \
        "$NODE/stage/opt/node/etc/tessera.conf"
    run env -i SLURMD_NODENAME=n1 SLURM_JOB_ID=1 SLURM_JOB_UID=60011 \
        "$NODE/stage/opt/node/libexec/tessera/prolog"
    [ "$status" -eq 0 ]
    # Only the test machine itself can be worth a word.
    run grep -v 'warning\|not known' <<<"$output"
    [ -z "$output" ]
}

@test "who installs over programs in use takes none away" {
    stage
    cp -r "$NODE/stage/opt/node/libexec/tessera" "$NODE/whole"
    (
        cd "$NODE/stage/opt/node/libexec/tessera"
        until [ -e "$NODE/installed" ]; do
            for file in prolog epilog node-health; do
                cmp -s "$file" "$NODE/whole/$file" || echo "$file"
            done
        done
    ) >"$NODE/torn" 3>&- &
    for time in 1 2 3; do
        stage
    done
    touch "$NODE/installed"
    wait
    cat "$NODE/torn"
    [ ! -s "$NODE/torn" ]
}
