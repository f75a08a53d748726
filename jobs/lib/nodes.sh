# shellcheck shell=bash disable=SC2034,SC2154,SC2229 # variables of jobs/launch
# Which of the job's nodes are good: `tessera-ckpt nodes` decides, and writes the
# ledger; here is done what it says. Needs $bin, $here, $job, $run_dir, $spool,
# $check_s, $mpi; sets good=(), in the order in which they are to be used, and
# allocated=().

readonly CHECKS_KEPT=20
readonly SILENT_WAIT_S=30

good=()
# what was found out about nodes in this job, and whether there are others than
# the bad ones
warned=()
was_bad=()
elsewhere=no
# good nodes beside those that train, which a run may leave a slow one for
spare=0
# whom the others did not hear any more, or who told nothing; and who of them has ended
# the last attempt
suspect=()
lost=()
trained=()
check_count=0
guard_pid=
guard_count=0

exec {quiet_pipe}<> <(:) # nobody writes to it
exec {jobs_pipe}<> <(:)  # is_job's

# start_step NAME SRUN-ARGUMENTS...: in the background; sets $srun_pid. Steps
# overlap because one on a dead node keeps its resources until Slurm gives up. PMIx of
# Slurm 20.11 takes a step's n-th node for the n-th of the job's: ranks that
# are not on its first nodes would never meet.
start_step()
{
    local nodes=${SLURM_JOB_NODELIST-} others some
    step_name=$1
    shift
    if [[ " $*" =~ \ --nodelist=([^ ]+) ]]; then
        others=$(but "$(hostnames "${BASH_REMATCH[1]}")" "${allocated[@]}")
        mapfile -t some < <(but "$others" "${allocated[@]}")
        [ ${#some[@]} -eq 0 ] || nodes=$(join "${some[@]}")
    fi
    SLURM_JOB_NODELIST=$nodes srun --job-name="$step_name" --overlap \
        --no-kill --kill-on-bad-exit=0 "$@" </dev/null &
    srun_pid=$!
    srun_rc=
}

# is_job PID: bash calls it a running one. Not by $(jobs -rp): a signal with a trap that
# comes while bash 5.2 reads that breaks the trap.
is_job()
{
    local line found=1
    { jobs -rp; echo; } >&"$jobs_pipe"
    while read -r -u "$jobs_pipe" line && [ -n "$line" ]; do
        [ "$line" != "$1" ] || found=0
    done
    return $found
}

# await SECONDS: until the step has ended (returns 0), the time is over (0: a tenth of
# a second), or a
# request to stop has come. Not by wait: a signal at the moment in which the step
# ends takes that end from it (bash 5.2), and the next one waits for ever.
await()
{
    local ticks=$((10 * $1 + ($1 == 0))) before=$stop_signal
    [ -z "$srun_rc" ] || return 0
    while kill -0 "$srun_pid" 2>/dev/null; do
        [ $((ticks--)) -gt 0 ] && [ "$stop_signal" = "$before" ] || return 1
        read -r -t 0.1 -u "$quiet_pipe"
    done
    srun_rc=75
    ! is_job "$srun_pid" || return 0
    wait "$srun_pid" 2>/dev/null
    srun_rc=$?
    # bash says -1 of an end that it has not understood yet
    [ "$srun_rc" -ge 0 ] || srun_rc=75
}

# The exit code of the step, when it ends.
step_code()
{
    until await 1; do :; done
    step_rc=$srun_rc
}

# cancel_step SECONDS NAME: not waited for, since scancel waits for a dead node's
# answer, and tries for more than a minute where Slurm calls the step in transition.
cancel_step()
{
    local id
    id=$(step_id "$2")
    [ -z "$id" ] || timeout "$1" scancel --signal=KILL "$id" >/dev/null 2>&1 &
}

# end_step [SECONDS [PATIENCE]]: ends the step at once and for good, also where a dead node
# does not answer. What is left of an attempt is ended by the nodes' check, of a
# check by nothing, so that one has longer.
end_step()
{
    cancel_step "${1:-5}" "$step_name"
    await "${2:-2}" || kill -KILL "$srun_pid" 2>/dev/null
    step_code
}

# bounded_step SECONDS NAME SRUN-ARGUMENTS...
bounded_step()
{
    local end=$((SECONDS + $1))
    start_step "${@:2}"
    until await 1; do
        if [ "$SECONDS" -ge "$end" ] || [ -n "$stop_signal" ]; then
            end_step 20
            return 1
        fi
    done
    step_code
}

# Keeps the job, which has just been requeued and waits, off the nodes that were
# bad lately. Those that the user has excluded stay so. Of a job that has been
# shrunk slurmctld takes this when the job has ended, which waits for this script:
# it tries for 5 s, and goes on when nobody waits for the answer.
exclude_bad()
{
    local list=() text
    excluded=$(ledger_word excluded)
    [ -n "$excluded" ] || return 0
    text=$excluded,$(ledger_word expired)
    mapfile -t list < <(hostnames "$kept_off")
    mapfile -t list < <(but "${text//,/$'\n'}" "${list[@]}")
    text=$(timeout --foreground -s KILL 2 scontrol update jobid="$slurm_id" \
        ExcNodeList="$(join "${list[@]}" "$excluded")" 2>&1)
    case $? in
    0) say "kept off $excluded, bad within the last day" ;;
    137) say "asked to be kept off $excluded, bad within the last day" ;;
    *) say "could not be kept off $excluded, bad within the last day: $text" ;;
    esac
}

# Ends its step as well: of an srun that is killed it may go on.
end_guard()
{
    [ -n "$guard_pid" ] || return
    cancel_step 20 "$guard_name"
    kill -KILL "$guard_pid" 2>/dev/null
    wait "$guard_pid" 2>/dev/null
    guard_pid=
}

# Two good nodes watch over the node of this script, see guard.sh. Started again
# when one of them is not good any more.
keep_guard()
{
    local node others=()
    for node in "${good[@]}"; do
        [ "$node" = "${SLURMD_NODENAME:-}" ] || others+=("$node")
    done
    others=("${others[@]:0:2}")
    if [ -n "$guard_pid" ]; then
        [ "$guard_nodes" = "$(join "${others[@]}")" ] &&
            kill -0 "$guard_pid" 2>/dev/null && return
        end_guard
    fi
    guard_nodes=$(join "${others[@]}")
    [ ${#others[@]} -gt 0 ] || return
    guard_name=guard-$((++guard_count))
    srun --job-name="$guard_name" --overlap --no-kill --mpi=none \
        --nodes=${#others[@]} --ntasks=${#others[@]} --ntasks-per-node=1 \
        --nodelist="$guard_nodes" bash "$here/lib/guard.sh" "$run_dir" \
        "$bin" "$local_dir" "$scavenge_s" "$mpi" "$controller_s" \
        </dev/null >/dev/null 2>&1 &
    guard_pid=$!
}

# Ends every step that this job still has, the guards' too. A controller that has
# been started anew counts what the older ones use as taken, although they
# overlap, and none can begin beside them.
end_steps()
{
    local id ids=()
    end_guard
    while read -r id; do
        ! [[ $id =~ \.[0-9]+$ ]] || ids+=("$id")
    done < <(timeout --foreground 20 squeue -h -s -j "$slurm_id" -o %i 2>/dev/null)
    [ ${#ids[@]} -eq 0 ] ||
        timeout --foreground 20 scancel --signal=KILL "${ids[@]}" 2>/dev/null
}

# The checks of old jobs go.
remove_old_checks()
{
    find "$run_dir/health" -mindepth 1 -maxdepth 1 -printf '%T@ %p\0' |
        sort -zrn | tail -zn "+$((CHECKS_KEPT + 1))" | cut -zd' ' -f2- |
        xargs -0 -r rm -rf ||
        say "$run_dir/health: cannot remove the oldest checks"
}

# next_nodes FOLDER: has it decided what is to be done about the nodes. All facts
# are handed over (src/control/nodes_words.c has their names, which are these
# variables'), and those that have changed are set. Sets todo, and fails where
# nothing is said.
next_nodes()
{
    local name value text host=${SLURMD_NODENAME:-}
    todo=
    text=$(
        # what asks the job to stop must not cost the lines in the ledger
        trap '' TERM USR1
        for name in allocated usable excluded host wanted wanted_min quick code \
            late seconds total warned was_bad suspect lost slow trained \
            asked good bad unknown at tries again; do
            local -n fact=$name
            echo "$name ${fact[*]-}"
        done | "$bin/tessera-ckpt" nodes "$run_dir" "$1" "$spool" --job "$job" \
            --attempt "$attempt"
    )
    while read -r name value; do
        case $name in
        say) say "$value" ;;
        do) todo=$value ;;
        '') ;;
        *) read -r -a "$name" <<<"$value" ;;
        esac
    done <<<"$text"
    [ -n "$todo" ]
}

# check_asked FOLDER PHASE BUDGET_S: has the nodes that are asked look at themselves,
# or at each other, by a rank for each GPU; sets code, late and seconds.
check_asked()
{
    local folder=$1 begin=$SECONDS on ranks=1
    [ "$todo" != pairs ] || [ "${SLURM_GPUS_ON_NODE:-0}" -eq 0 ] ||
        ranks=$SLURM_GPUS_ON_NODE
    on=(--nodes=${#asked[@]} --ntasks=$((${#asked[@]} * ranks))
        --ntasks-per-node="$ranks" --distribution=block
        --nodelist="$(join "${asked[@]}")")
    late=0
    if [ "$todo" = pairs ]; then
        bounded_step $(($3 + 5)) "pairs-$check_count" --mpi="$mpi" "${on[@]}" \
            --output="$folder/pairs" "$bin/tessera-health" job --pairs --json \
            --budget "$3" 2>>"$folder/log" || late=1
    else
        bounded_step $(($3 + 5)) "health-$check_count" --mpi=none "${on[@]}" \
            bash "$here/lib/node_check.sh" "$bin" "$folder" "$2" \
            "$3" >>"$folder/log" 2>&1 || late=1
    fi
    code=$step_rc seconds=$((SECONDS - begin))
}

# Gives the bad nodes back, so that the epilog runs there now.
give_back()
{
    [ ${#given[@]} -gt 0 ] || return
    if shrink "${kept[@]}"; then
        say "gave back $(join "${given[@]}")"
    else
        say "could not give back $(join "${given[@]}")"
    fi
}

# ask_others NODE...: those that are suspect are asked only where the others are too few, and
# where no check leaves them out.
ask_others()
{
    local others
    mapfile -t others < <(but "$(printf '%s\n' "${suspect[@]}")" "$@")
    if [ "$check_s" -gt 0 ] && [ ${#others[@]} -ge "$wanted" ]; then
        ask_answers "${others[@]}"
        [ $((${#others[@]} - ${#silent[@]})) -lt "$wanted" ] || return 0
    fi
    ask_answers "$@"
}

# Those that are gone would only delay the check of the others. Where these are too few
# they are waited for, and a little where they are fewer than wanted.
leave_silent()
{
    local begin=$SECONDS left wait_s
    [ ${#address_of[@]} -gt 0 ] || learn_addresses "${allocated[@]}"
    ask_others "${usable[@]}"
    [ ${#silent[@]} -gt 0 ] || return
    say "no answer on the network: $(join "${silent[@]}")"
    while [ ${#silent[@]} -gt 0 ] && [ -z "$stop_signal" ]; do
        left=$((${#usable[@]} - ${#silent[@]})) wait_s=0
        [ "$left" -ge "$wanted" ] || wait_s=5
        [ "$left" -ge "$wanted_min" ] || wait_s=$SILENT_WAIT_S
        [ $((SECONDS - begin)) -lt "$wait_s" ] || break
        read -r -t 1 -u "$quiet_pipe"
        ask_answers "${usable[@]}"
    done
    [ ${#silent[@]} -gt 0 ] || return
    mapfile -t usable < <(but "$(printf '%s\n' "${silent[@]}")" "${usable[@]}")
}

# check_nodes PHASE: "job" or "quick" on every node that can be used, then, in
# phase "job", neighbours against each other.
check_nodes()
{
    local folder todo usable=() asked=() bad=() unknown=() given=() kept=()
    local at=0 tries=0 again=0 code=0 late=0 seconds=0 total=0 begin=$SECONDS
    local quick=0 budget_s=$check_s slow
    slow=$(ledger_word slow)
    # Between attempts every second counts, and a node that has died but is not
    # known to be dead gives no verdict.
    [ "$1" = job ] || quick=1 budget_s=$((check_s < 10 ? check_s : 10))
    mapfile -t allocated < <(job_nodes)
    mapfile -t usable < <(nodes_usable "${allocated[@]}")
    leave_silent
    good=("${usable[@]}") spare=0
    # the node of this script may die while it checks the others
    [ -n "$guard_pid" ] || keep_guard
    [ "$check_s" -gt 0 ] && [ ${#usable[@]} -gt 0 ] || return
    check_count=$((check_count + 1))
    folder=$run_dir/health/$job.${SLURM_RESTART_COUNT:-0}.$check_count
    mkdir -p "$folder"
    # One folder a job for what MPI shares on a node, made by this check: who is
    # killed leaves it behind, and the next check and the epilog remove it. Nobody
    # else knows its name before, so nobody can take it first.
    : "${shm_folder:=/dev/shm/tessera.$job.$(mktemp -u XXXXXXXXXXXX)}"
    export OMPI_MCA_btl_vader_backing_directory=$shm_folder \
        OMPI_MCA_osc_sm_backing_directory=$shm_folder
    while :; do
        next_nodes "$folder" ||
            stop 75 "$bin/tessera-ckpt does not say which nodes are good"
        [ "$todo" != go ] || break
        if [ "$todo" = restart ]; then
            end_steps
            sleep 5
        fi
        check_asked "$folder" "$1" "$budget_s"
        [ -z "$stop_signal" ] || return
        total=$((SECONDS - begin))
    done
    remove_old_checks
    give_back
}
