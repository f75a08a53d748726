#!/bin/bash
# guard.sh RUN_DIR BIN LOCAL_DIR SCAVENGE_S MPI CONTROLLER_S: runs on two nodes
# beside the one of the launch script. With --no-kill Slurm keeps a job when the node of its batch
# script dies, as an allocation in which nothing happens any more; this saves
# what the other nodes have and requeues it then.
set -u
export LC_ALL=C
here=$(dirname "$(readlink -f "$0")")
run_dir=$1 bin=$2 local_dir=$3 scavenge_s=$4 mpi=$5 controller_s=$6
job=$SLURM_JOB_ID
stop_signal=

say()
{
    printf '%s tessera-guard: %s\n' "$(date +%FT%T)" "$*" >&2
}

# shellcheck source=jobs/lib/ledger.sh
. "$here/ledger.sh"
# shellcheck source=jobs/lib/slurm.sh
. "$here/slurm.sh"
# shellcheck source=jobs/lib/nodes.sh
. "$here/nodes.sh"
# shellcheck source=jobs/lib/scavenge.sh
. "$here/scavenge.sh"
# shellcheck source=jobs/lib/next.sh
. "$here/next.sh"

# Slurm takes dead nodes off a job's list, and the launch script never gives its
# own node back. A controller that was killed may have forgotten this step, and then
# nobody ends it with its job, or when that begins anew.
batch_host_lost()
{
    local text host nodes
    text=$(ask scontrol -o show job "$slurm_id")
    [ $? -ne 1 ] || exit 0
    [[ $(field JobState "$text") =~ ^(RUNNING|SUSPENDED|)$ ]] || exit 0
    [[ $(field Restarts "$text") =~ ^(${SLURM_RESTART_COUNT:-0}|)$ ]] || exit 0
    host=$(field BatchHost "$text")
    nodes=$(hostnames "$(field NodeList "$text")")
    [ -n "$host" ] && [ -n "$nodes" ] && [ -n "$(but "$nodes" "$host")" ]
}

# While the launch script touches its file nobody needs to be asked. It does not
# while it checks nodes, or storage stands still: then Slurm is asked, ever less
# often.
silent_s=0 pause_s=5 beat_seen=
while :; do
    sleep "$pause_s"
    beat=$(stat -c %.Y "$run_dir/health/beat.$job" 2>/dev/null)
    if [ "$beat" != "$beat_seen" ]; then
        beat_seen=$beat
        silent_s=0 pause_s=5
        continue
    fi
    silent_s=$((silent_s + pause_s))
    [ "$silent_s" -ge 15 ] || continue
    ! batch_host_lost || break
    pause_s=$((silent_s / 8))
    pause_s=$((pause_s < 5 ? 5 : pause_s > 60 ? 60 : pause_s))
done
# The second guard is there for the case that the first has died, too; it must
# not begin while the first still saves.
sleep $((SLURM_PROCID * (10 + (${#local_dir} > 0 ? scavenge_s + 10 : 0))))
[ "$(job_state)" = RUNNING ] || exit 0
mapfile -t allocated < <(job_nodes)
mapfile -t good < <(nodes_usable "${allocated[@]}")
attempt=$(ledger_word attempts) step_rc=75 futile=0 may_requeue=1 accepted=no
# An answer that got lost may have been a yes. Only a no leaves the job there, as
# an allocation in which nothing happens any more.
ask_requeue()
{
    ask scontrol requeue "$slurm_id"
    [ $? -eq 1 ] || accepted=yes
    [ "$accepted" = yes ]
}
leave()
{
    [ "$accepted" = no ] && [ "$(job_state)" = RUNNING ] && scancel "$slurm_id"
}
trap leave EXIT
follow host detail="$(job_field BatchHost)"
