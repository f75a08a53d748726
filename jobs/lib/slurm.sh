# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# What the launch script and its guards ask of Slurm. Needs $job, and
# $controller_s: for how long a controller that does not answer is waited for.
# Every question costs the one controller of the whole cluster something, so
# only the job itself is asked for, and while all goes well hardly ever.

# What of the environment of whoever submitted would make Slurm's commands answer
# of another cluster or of other jobs, in another form, or start steps elsewhere
# or with other output than is asked for here. Options of srun that are given here
# need no mention; src/job/slurm_run.c does the same. And TMOUT, which sites export for
# idle terminals: every `read` here would give up after so many seconds.
unset TMOUT SLURM_CLUSTERS SLURM_TIME_FORMAT SLURM_BITSTR_LEN SLURM_JSON SLURM_YAML \
    "${!SQUEUE_@}" "${!SCONTROL_@}" "${!SCANCEL_@}" "${!SINFO_@}" "${!SACCT_@}" \
    "${!SRUN_@}" SLURM_EXPORT_ENV SLURM_HOSTFILE SLURM_MULTI_PROG \
    SLURM_EXCLUSIVE SLURM_IMMEDIATE SLURM_TIMELIMIT SLURM_WORKING_DIR \
    SLURM_LABELIO SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STDERRMODE \
    SLURM_TEST_EXEC SLURM_THREADS SLURM_RESERVATION SLURM_DEPENDENCY

# The job's name for Slurm's commands. One task of an array has the number of
# the whole array as its own, and would be told about all of them.
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    slurm_id=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID:-}
else
    slurm_id=${SLURM_JOB_ID:-}
fi

# unanswered TEXT: does the error of a Slurm command leave the question open?
# What is not known to be an answer is taken for a fault on the way to it.
unanswered()
{
    local answers='invalid (job|node)|disabled|denied|complet|no longer'
    answers+='|pending|node [^ ]+ not found'
    ! [[ ${1,,} =~ $answers ]]
}

# ask COMMAND...: prints what the Slurm command does. Returns 1 if it says no,
# 2 if there was no answer within $controller_s. The pauses between two trials
# grow from 2 s to a minute. A command that a signal has ended returns more than
# 128: that is the end of this job.
ask()
{
    local text code pause=2 end=$((SECONDS + controller_s))
    while :; do
        text=$(timeout --foreground 60 "$@" 2>&1)
        code=$?
        if [ "$code" -eq 0 ] || [ "$code" -gt 128 ]; then
            printf '%s\n' "$text"
            return "$code"
        fi
        # 126 and 127: the command could not be started, for want of the file
        # system that it is on.
        if [ "$code" -lt 126 ] && ! unanswered "$text"; then
            say "$*: ${text##*$'\n'}"
            return 1
        fi
        if [ "$SECONDS" -ge "$end" ]; then
            say "Slurm has not answered for $controller_s s: ${text##*$'\n'}"
            return 2
        fi
        [ "$pause" -gt 2 ] || say "Slurm does not answer" \
            "(${text##*$'\n'}): waiting, at most $controller_s s"
        sleep "$((pause < 60 ? pause : 60))"
        pause=$((pause * 2))
    done
}

# field NAME TEXT: of what `scontrol -o show job` prints.
field()
{
    ! [[ " $2" =~ .*[[:space:]]$1=([^[:space:]]*) ]] ||
        echo "${BASH_REMATCH[1]}"
}

# job_field NAME: of this job, now.
job_field()
{
    field "$1" "$(ask scontrol -o show job "$slurm_id")"
}

# Only a running job may be requeued: what is cancelled, at its end or requeued
# by Slurm itself is not ours to decide on. "unknown": Slurm has no such job;
# "unanswered": nobody could say.
job_state()
{
    local text
    text=$(ask scontrol -o show job "$slurm_id")
    case $? in
    1) echo unknown ;;
    2) echo unanswered ;;
    *) field JobState "$text" ;;
    esac
}

# hostnames LIST: one a line. Asks nobody.
hostnames()
{
    [ -z "$1" ] || [ "$1" = "(null)" ] || scontrol show hostnames "$1"
}

# Prints the nodes that the job has now, one a line. The environment keeps the
# list of the beginning; Slurm takes dead nodes off its own.
job_nodes()
{
    hostnames "$(job_field NodeList)"
}

# Of thousands of nodes as ranges: an argument of a program has 128 KB.
join()
{
    local IFS=, list=
    list="$*"
    if [ ${#list} -lt 100000 ]; then
        echo "$list"
    else
        printf '%s\n' "$@" | scontrol show hostlist /dev/stdin
    fi
}

# node_states NODE...: prints "NODE STATE" a line, with all flags of the state.
node_states()
{
    local line
    while read -r line; do
        [[ ! $line =~ ^NodeName=([^ ]*)\ .*\ State=([^ ]*) ]] ||
            echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"
    done < <(ask scontrol -o show node "$(join "$@")")
}

# usable_states: of lines "NODE STATE+FLAG+...", prints the nodes on which
# something may be started. Not one that does not answer ("*" or a flag, by
# Slurm's version), which would only delay the others, nor one that is to be
# used no further. A node that is to be powered down when it is free is ours.
usable_states()
{
    local node state out='DOWN|ERROR|FAIL|FAILING|DRAIN|DRAINED|DRAINING|FUTURE'
    out+='|NOT_RESPONDING|POWERED_DOWN'
    while read -r node state; do
        [[ +$state+ =~ [*]|[+]($out)[^A-Z_] ]] || echo "$node"
    done
}

# nodes_usable NODE...: one query for all.
nodes_usable()
{
    [ $# -eq 0 ] || node_states "$@" | usable_states
}

# Addresses of nodes as Slurm finds them; and what came from there when it was asked first:
# one that was silent then may not be reached from here, and is not judged.
declare -gA address_of=() answers=()
silent=()
ask_network=yes

# learn_addresses NODE...
learn_addresses()
{
    local line
    [ $# -gt 0 ] || return 0
    while read -r line; do
        [[ ! $line =~ ^NodeName=([^ ]*)\ .*\ NodeAddr=([^ ]*) ]] ||
            address_of[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
    done < <(ask scontrol -o show node "$(join "$@")")
}

# ask_answers NODE...: sets silent=() to those from which something has come in this job and
# nothing does now: cut off, or without power, which Slurm finds minutes later.
ask_answers()
{
    local node text answer
    silent=()
    [ "$ask_network" = yes ] || return 0
    text=$(for node in "$@"; do
        [ -z "${address_of[$node]-}" ] || [ "${answers[$node]-}" = silent ] ||
            echo "$node ${address_of[$node]}"
    done | timeout --foreground 10 "$bin/tessera-ckpt" reach 2>/dev/null)
    case $? in
    0) ;;
    124)
        ask_network=no
        say "the nodes' addresses do not answer in 10 s: not asked any more"
        return 0
        ;;
    *) return 0 ;;
    esac
    while read -r node answer; do
        if [ "$answer" = silent ] && [ "${answers[$node]-}" = here ]; then
            silent+=("$node")
        else
            answers[$node]=$answer
        fi
    done < <([ -z "$text" ] || echo "$text")
}

# but LIST NODE...: prints those that are not in LIST, one a line as they are.
but()
{
    local node
    local -A listed=()
    while read -r node; do
        [ -z "$node" ] || listed[$node]=yes
    done <<<"$1"
    for node in "${@:2}"; do
        [ -n "${listed[$node]-}" ] || echo "$node"
    done
}

# job_lacks NODE...: prints those that Slurm has taken off the running job: dead
# ones, and only those. A node that is to be drained or marked as failing when
# the job is over, or is late to answer, stays. Fails where nothing is known.
job_lacks()
{
    local text
    text=$(timeout --foreground 20 scontrol -o show job "$slurm_id" 2>&1) ||
        return
    [ "$(field JobState "$text")" = RUNNING ] || return
    text=$(hostnames "$(field NodeList "$text")")
    [ -n "$text" ] || return
    but "$text" "$@"
}

# step_id NAME: the number of our step of that name, if Slurm has it.
step_id()
{
    local id name
    while read -r id name; do
        [ "$name" != "$1" ] || echo "$id"
    done < <(timeout --foreground 20 squeue -h -s -j "$slurm_id" -o '%i %j' 2>/dev/null)
}

# shrink NODE...: give all other nodes back. Root's epilog runs on them at once,
# while the job goes on here.
shrink()
{
    local folder file rc=0
    folder=$(mktemp -d "${TMPDIR:-/tmp}/tessera-shrink.XXXXXX") || return 1
    # scontrol leaves scripts here with the job's new environment.
    (cd "$folder" && scontrol update jobid="$slurm_id" \
        NodeList="$(join "$@")" >/dev/null) || rc=1
    for file in "$folder"/slurm_job_*_resize.sh; do
        # shellcheck source=/dev/null
        [ -f "$file" ] && . "$file"
    done
    rm -rf "$folder"
    return "$rc"
}
