#!/bin/bash
# guard.sh RUN_DIR BIN LOCAL_DIR SCAVENGE_S: runs on two nodes beside the one of
# the launch script. With --no-kill Slurm keeps a job when the node of its batch
# script dies, as an allocation in which nothing happens any more; this saves
# what the other nodes have and requeues it then.
set -u
export LC_ALL=C
here=$(dirname "$(readlink -f "$0")")
run_dir=$1 bin=$2 local_dir=$3 scavenge_s=$4
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

# Slurm takes dead nodes off a job's list, and the launch script never gives its
# own node back.
batch_host_lost()
{
    local nodes host
    host=$(job_field BatchHost)
    nodes=$(job_nodes)
    [ -n "$host" ] && [ -n "$nodes" ] && ! grep -qx "$host" <<<"$nodes"
}

until batch_host_lost; do
    sleep 5
done
# The second guard is there for the case that the first has died, too; it must
# not begin while the first still saves.
sleep $((SLURM_PROCID * (10 + (${#local_dir} > 0 ? scavenge_s + 10 : 0))))
[ "$(job_state)" = RUNNING ] || exit 0
mapfile -t nodes < <(job_nodes)
mapfile -t good < <(nodes_usable "${nodes[@]}")
scavenge "${good[@]}"
ledger requeue "$(ledger_attempts)" code=75 progress=null \
    reason="lost $(job_field BatchHost), the node of the launch script"
scontrol requeue "$job" || scancel "$job"
