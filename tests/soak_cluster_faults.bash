# shellcheck shell=bash disable=SC2154 # variables of soak_cluster
# The faults of tests/soak_cluster.
# Each is given a node that trains or "", one that is free and a length in seconds, fails
# where there is nothing to be harmed, and gives what must come later to `later`.

# later NODE SECONDS COMMAND...: beside the run; the node is busy until then
later() {
    local node=$1 wait_s=$2
    : >"$DIR/busy/$node"
    shift 2
    { sleep "$wait_s" && "$@"; rm -f "$DIR/busy/$node"; } >>"$DIR/later.log" 2>&1 3>&- &
    laters+=($!)
}

signal_rank() { on "$2" kill "-$1" "$(rank_on "$2")"; }

expect() { echo "$1 $2" >>"$DIR/expect"; } # NODE REASON: it may be drained so

resume() { # NODE, which we have had drained: when it is
    within 90 node_state_is "$1" '*DRAIN*' || echo "$1 was not drained ($2)" >>"$DIR/missed"
    root scontrol update nodename="$1" state=resume
}

fault_rank() { [ -n "$1" ] && signal_rank KILL "$1"; }

fault_stop() {
    local i
    [ -n "$1" ] || return
    for i in 1 2 3; do
        signal_rank STOP "$1" && sleep "$((1 + ($3 + i) % 3))" && signal_rank CONT "$1"
    done
    return 0
}

fault_slurmd() {
    # shellcheck disable=SC2016 # the node's shell
    away "$2" && on "$2" kill -KILL "$(on "$2" pgrep -x slurmd)" && later "$2" "$3" on "$2" \
        bash -c 'setsid slurmd -D -N "$0" </dev/null >/dev/null 2>&1 &' "$2"
}

# away NODE: Slurm drains one that comes back while the same job begins there ("Duplicate
# jobid"), and nobody else: its administrator is here.
away() { expect "$1" 'by Slurm'; }

back() {
    root sinfo -h -N -p all -o '%N %E' | sed -n 's/ Duplicate jobid.*//p' |
        xargs -r -I{} "$CLUSTER" exec --root scontrol update nodename={} state=resume
}

# One that has begun a job's script seconds ago and is back before Slurm has missed it: the job
# stays RUNNING, with nothing that runs, until its time is over. The next of the chain goes on.
fault_node() {
    away "$2" || return
    [ "$2" != "$(job_field soak BatchHost)" ] || echo "$job" >>"$DIR/hosts"
    "$CLUSTER" kill "$2" && later "$2" "$3" "$CLUSTER" revive "$2"
}

fault_host() {
    local node
    read -r node _ < <(launch) && [ ! -e "$DIR/busy/$node" ] && fault_node - "$node" "$3"
}

fault_launch() {
    local node pid
    [ "$(wc -l <"$DIR/launched")" -lt $((CHAIN - 1)) ] && read -r node pid < <(launch) &&
        on "$node" kill -KILL "$pid" && echo "$job" >>"$DIR/launched"
}

# One that dies while it begins a job forgets the script, which then runs nowhere; a node on
# which something of a job is or ends may be drained, as it says so otherwise than Slurm
# remembers. Of one that is idle both know that nothing is there.
fault_controller() {
    local node
    launch || return
    for node in $(root sinfo -h -N -p all -o '%N %t' | awk '$2 !~ /^idle/ { print $1 }'); do
        away "$node"
    done
    root kill -KILL "$(cat "$TESSERA_CLUSTER_DIR/slurmctld.pid")" || return
    sleep "$(($3 / 3))"
    "$CLUSTER" controller start
}

fault_cut() { away "$2" && "$CLUSTER" cut "$2" && later "$2" "$3" "$CLUSTER" cut "$2" undo; }

fault_slow() { "$CLUSTER" rate "$2" 20mbit && later "$2" "$3" "$CLUSTER" rate "$2" undo; }

fault_full() {
    dd if=/dev/zero of="$STORE/full" bs=1M status=none 2>/dev/null
    sleep "$3"
    rm "$STORE/full"
}

fault_frozen() {
    fsfreeze -f "$STORE" && sleep "$3"
    fsfreeze -u "$STORE"
}

# Whoever asks is in state D: whom Slurm wants dead meanwhile stays.
fault_hanging() {
    [ "$JOBS" != "$RUN" ] && kill -USR1 "$hanging_pid" && sleep "$3"
    kill -USR2 "$hanging_pid"
}

# Not the only one: what no other copy is of is lost.
fault_damage() {
    local file
    [ "$(find "$RUN"/checkpoints -name 'step-*' 2>/dev/null | wc -l)" -ge 2 ] || return
    file=$(find "$RUN"/checkpoints/step-* -name '*.h5' 2>/dev/null | sort | tail -n 1)
    [ -n "$1" ] && [ -n "$file" ] && [ "$(last soak step)" -lt $((STEPS - 20)) ] || return
    dd if=/dev/urandom of="$file" bs=1 count=64 conv=notrunc status=none \
        seek=$(($(stat -c %s "$file") / 2)) && fault_rank "$1"
}

fault_requeue() { [ "$state" = RUNNING ] && root scontrol requeue "$job"; }

fault_prolog() {
    : >"$FAILS/$2"
    fault_requeue || { rm "$FAILS/$2"; return 1; }
    expect "$2" 'by Slurm'
    later "$2" 0 failed_prolog "$2"
}

# It may not be of the nodes that the job begins with.
failed_prolog() {
    within 60 test ! -e "$FAILS/$1"
    rm "$FAILS/$1" 2>/dev/null || resume "$1" prolog
}

fault_sick() {
    [ "$state" = RUNNING ] && hosts soak | grep -qx "$2" && "$CLUSTER" full "$2" || return
    expect "$2" 'tessera: SHM_FULL'
    fault_requeue
    later "$2" 0 mend "$2"
}

mend() {
    within 90 node_state_is "$1" '*DRAIN*'
    "$CLUSTER" full "$1" undo
    resume "$1" sick
}

fault_preempt() {
    [ "$state" = RUNNING ] || return
    user sbatch --parsable --partition=urgent --nodes=3 --exclusive \
        --output=/dev/null --wrap=true >"$DIR/urgent.job" &&
        later urgent 60 user scancel "$(cat "$DIR/urgent.job")"
}

fault_suspend() {
    [ "$state" = RUNNING ] && root scontrol suspend "$job" || return
    sleep "$3"
    within 60 root scontrol resume "$job" || looks
}

# A minute is Slurm's grain; the signal is asked for 60 s before, and may come earlier.
fault_limit() {
    local ran
    [ "$state" = RUNNING ] || return
    ran=$(job_field soak RunTime | awk -F: '{ print int($1 * 60 + $2 + ($3 > 0)) }')
    root scontrol update jobid="$job" timelimit=$((ran + 1)) &&
        later limit 0 within 180 longer "$job" "$(job_field soak Restarts)"
}

longer() { # JOB RESTARTS: when it has begun anew
    ! root scontrol -o show job "$1" | grep -q "Restarts=$2 " &&
        root scontrol update jobid="$1" timelimit=60
}

# shellcheck disable=SC2016 # the node's shell
fault_forged() {
    local checks text="{\"host\":\"$1\",\"verdict\":\"bad\",\"code\":\"GEMM_WRONG\",\"reason\":\"tessera: GEMM_WRONG x\"}"
    [ "$state" = RUNNING ] && [ -n "$1" ] || return
    # of the check that is to come
    checks=$(find "$RUN"/health -mindepth 1 -maxdepth 1 -name "$job.*" -printf '%f\n' | sort -V | tail -n 1)
    "$CLUSTER" exec --node "$1" bash -c 'for file; do mkdir -p "${file%/*}"; echo "$0" >"$file"; done' \
        "$text" "/var/spool/tessera/verdict.$job.$1" "$JOBS/health/${checks%.*}.$((${checks##*.} + 1))/$1.json"
    "$CLUSTER" exec --node "$1" bash -c 'mkdir -p "$0" && echo "$1" >"$0/$2"' "$JOBS"/reasons \
        "75 comm $1: task 0 was ended by signal 9 (KILL)" \
        "attempt-$(printf %04d $(($(events soak start | wc -l) + 1))).rank-0000"
}

fault_squat() {
    # shellcheck disable=SC2016 # the stranger's shell
    on "$2" setpriv --reuid 60012 --regid 60012 --clear-groups bash -c '
        mkdir -m 777 "/dev/shm/tessera-ckpt.$0" "/tmp/tessera-cache-60011"
        ln -s /home/researcher "/dev/shm/tessera.$0.x"
        touch "/dev/shm/vader_segment.$HOSTNAME.60011.1.0"' "$job"
    later "$2" "$3" on "$2" find /dev/shm /tmp -user 60012 -delete
}

fault_drain() {
    expect "$2" 'soak: by hand'
    root scontrol update nodename="$2" state=drain reason='soak: by hand' &&
        later "$2" "$3" resume "$2" drain
}
