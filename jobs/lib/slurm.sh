# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# What the launch script asks of Slurm. Needs $job.

# job_field NAME: a field of `scontrol show job`, tried again for some seconds
# when the controller does not answer.
job_field()
{
    local text tries
    for tries in 1 2 3 4 5; do
        text=$(scontrol -o show job "$job" 2>/dev/null) && break
        [ "$tries" -lt 5 ] && sleep "$tries"
    done
    sed -n "s/^\(.* \)\{0,1\}$1=\([^ ]*\).*/\2/p" <<<"$text"
}

# Only a running job may be requeued: what is cancelled, at its end or requeued
# by Slurm itself is not ours to decide on.
job_state()
{
    job_field JobState
}

# Prints the nodes that the job has now, one a line. The environment keeps the
# list of the beginning; Slurm takes dead nodes off its own.
job_nodes()
{
    local list
    list=$(job_field NodeList)
    if [ -n "$list" ] && [ "$list" != "(null)" ]; then
        scontrol show hostnames "$list"
    fi
}

# node_states NODE...: prints "NODE STATE" a line, with all flags of the state.
# One that does not answer for a moment (*) is not dead yet.
node_states()
{
    scontrol -o show node "$(join "$@")" 2>/dev/null |
        sed -n 's/^NodeName=\([^ ]*\) .* State=\([^ ]*\) .*/\1 \2/p'
}

join()
{
    local IFS=,
    echo "$*"
}

# nodes_lost NODE...: prints those which are dead for certain.
nodes_lost()
{
    node_states "$@" | awk '$2 ~ /DOWN|FAIL|ERROR|NOT_FOUND/ { print $1 }'
}

# nodes_usable NODE...: prints those on which something may be started; not one
# that does not answer, which would only delay the others.
nodes_usable()
{
    node_states "$@" | awk '$2 !~ /DOWN|FAIL|ERROR|DRAIN|NOT_FOUND|\*/ {
        print $1 }'
}

# step_id NAME: the number of our step of that name, if Slurm has it.
step_id()
{
    squeue -h -s -j "$job" -o '%i %j' 2>/dev/null |
        awk -v name="$1" '$2 == name { print $1 }'
}

# shrink NODE...: give all other nodes back. Root's epilog runs on them at once,
# while the job goes on here.
shrink()
{
    local folder rc=0
    folder=$(mktemp -d "${TMPDIR:-/tmp}/tessera-shrink.XXXXXX") || return 1
    # scontrol leaves scripts here with the job's new environment.
    (cd "$folder" && scontrol update jobid="$job" NodeList="$(join "$@")" \
        >/dev/null) || rc=1
    if [ -f "$folder/slurm_job_${job}_resize.sh" ]; then
        # shellcheck source=/dev/null
        . "$folder/slurm_job_${job}_resize.sh"
    fi
    rm -rf "$folder"
    return "$rc"
}
