# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# Which of the job's nodes are good. Needs $bin, $here, $job, $run_dir, $spool,
# $check_s, $mpi; sets good=(), of which warned=(), and allocated=().

readonly CHECKS_KEPT=20

good=()
warned=()
check_count=0
# whether a bad node was known to be bad before this job began, and whether not
came_back=no
turned_bad=no
check_end=
guard_pid=
guard_count=0

# A tick of await().
trap : ALRM

# start_step NAME SRUN-ARGUMENTS...: in the background; sets $srun_pid. Steps
# overlap because one on a dead node keeps its resources until Slurm gives up.
start_step()
{
    step_name=$1
    shift
    srun --job-name="$step_name" --overlap --no-kill --kill-on-bad-exit=0 \
        "$@" </dev/null &
    srun_pid=$!
    srun_rc=
}

# await SECONDS [COMMAND]: until the step has ended (returns 0), the time is
# over, or a signal has come. The command runs first, beside this script: where
# it gets stuck there is no tick, but signals and the step's end are heard.
await()
{
    local timer code
    [ -z "$srun_rc" ] || return 0
    # It signals again and again: once might be just before the wait.
    { ${2:-}; while sleep "$1" && kill -ALRM $$; do :; done; } >/dev/null 2>&1 &
    timer=$!
    wait "$srun_pid" 2>/dev/null
    code=$?
    kill "$timer" 2>/dev/null
    kill -0 "$srun_pid" 2>/dev/null && return 1
    # It may have been the signal that ended the wait.
    wait "$srun_pid" 2>/dev/null
    srun_rc=$?
    [ "$srun_rc" -ne 127 ] || srun_rc=$code
}

# The exit code of the step, when it ends.
step_code()
{
    until await 1; do :; done
    step_rc=$srun_rc
}

# end_step [SECONDS]: ends the step at once and for good, also where a dead node
# does not answer. scancel tries for more than a minute where Slurm calls the step
# in transition; what is left of an attempt is ended by the nodes' check, of a
# check by nothing, so that one has longer.
end_step()
{
    local id tries
    id=$(step_id "$step_name")
    [ -n "$id" ] &&
        timeout --foreground "${1:-5}" scancel --signal=KILL "$id" 2>/dev/null
    for tries in 1 2 3 4; do
        await 0.5 && break
        [ "$tries" -eq 3 ] && kill -KILL "$srun_pid" 2>/dev/null
    done
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

# read_verdict NODE FILE: the last complete verdict about a node; sets host,
# verdict, code and reason, "unknown" where there is none.
read_verdict()
{
    local line
    verdict=unknown code=NO_VERDICT reason=$check_end
    while read -r line; do
        [[ $line == "verdict ${1%%.*}"[.\ ]* ]] || continue
        read -r _ host verdict code _ reason <<<"$line"
    done < <("$bin/tessera-health" --read "$2")
}

# leave_verdict NODE FILE: for root's epilog, which looks for itself.
leave_verdict()
{
    local file
    [ -n "$spool" ] && [ -d "$spool" ] && [ -w "$spool" ] || return
    file=$(mktemp "$spool/.verdict.XXXXXX") || return
    grep -F "\"host\":\"$host\"" "$2" | tail -n 1 >"$file" &&
        chmod 644 "$file" && mv -f "$file" "$spool/verdict.$job.$1"
}

# judge FILES NODE...: reads the verdicts, where %s in FILES stands for a node;
# sets good and unknown, and adds to bad.
judge()
{
    local node files=$1 host verdict code reason
    shift
    good=() unknown=()
    for node in "$@"; do
        read_verdict "$node" "${files//%s/$node}"
        case $verdict in
        ok) good+=("$node") ;;
        warn)
            good+=("$node") warned+=("$node")
            ledger node-warning "$attempt" node="$node" code="$code" \
                reason="$reason"
            say "node $node, a warning: $code: $reason"
            ;;
        bad)
            bad+=("$node")
            if [[ ,$excluded, == *",$node,"* ]]; then
                came_back=yes
            else
                turned_bad=yes
            fi
            leave_verdict "$node" "${files//%s/$node}"
            ledger exclude "$attempt" node="$node" code="$code" reason="$reason"
            say "node $node is bad and left out: $code: $reason"
            ;;
        *)
            unknown+=("$node")
            say "no verdict on node $node: $code: $reason"
            ;;
        esac
    done
}

# Good nodes without a warning in this job first: spares take the places of slow
# ones.
put_first()
{
    local node sound=() others=()
    for node in "${good[@]}"; do
        if [[ " ${warned[*]} " == *" $node "* ]]; then
            others+=("$node")
        else
            sound+=("$node")
        fi
    done
    good=("${sound[@]}" "${others[@]}")
}

# Keeps the job, which has just been requeued and waits, off the nodes that were
# bad lately. Those that the user has excluded stay so. Of a job that has been
# shrunk slurmctld takes this when the job has ended, which waits for this script:
# it tries for 5 s, and goes on when nobody waits for the answer.
exclude_bad()
{
    local node list=() ours text
    excluded=$(ledger_word excluded)
    [ -n "$excluded" ] || return
    ours=,$excluded,$(ledger_word expired),
    while read -r node; do
        [[ $ours == *",$node,"* ]] || list+=("$node")
    done < <(hostnames "$kept_off")
    text=$(timeout --foreground -s KILL 2 scontrol update jobid="$slurm_id" \
        ExcNodeList="$(join "${list[@]}" "$excluded")" 2>&1)
    case $? in
    0) say "kept off $excluded, bad within the last day" ;;
    137) say "asked to be kept off $excluded, bad within the last day" ;;
    *) say "could not be kept off $excluded, bad within the last day: $text" ;;
    esac
}

# Gives the bad nodes back, so that the epilog runs there now. The node of this
# script can't be given back: it stays, unused, to the end of the job.
give_back()
{
    local node keep=() given=()
    [ ${#bad[@]} -gt 0 ] || return
    for node in "${allocated[@]}"; do
        if [[ " ${bad[*]} " == *" $node "* ]] &&
            [ "$node" != "${SLURMD_NODENAME:-}" ]; then
            given+=("$node")
        else
            keep+=("$node")
        fi
    done
    [ ${#given[@]} -gt 0 ] && [ ${#keep[@]} -gt 0 ] || return
    if shrink "${keep[@]}"; then
        allocated=("${keep[@]}")
        say "gave back $(join "${given[@]}")"
    else
        say "could not give back $(join "${given[@]}")"
    fi
}

# Ends its step as well: of an srun that is killed it may go on.
end_guard()
{
    local id
    [ -n "$guard_pid" ] || return
    id=$(step_id "$guard_name")
    [ -z "$id" ] ||
        timeout --foreground 20 scancel --signal=KILL "$id" 2>/dev/null
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

# how_it_ended FOLDER BEGIN: what became of a check that gave no verdict, with the
# last words of srun where it was over before its time.
how_it_ended()
{
    local words
    if [ "$ended_late" = yes ]; then
        echo "no verdict within $((SECONDS - $2)) s"
        return
    fi
    words=$(grep -E '^(srun|slurmstepd)[^ ]*: ' "$1/log" | tail -n 1)
    echo "no verdict, the check ended with code $step_rc after" \
        "$((SECONDS - $2)) s: ${words:-see $1/log}"
}

# check_each PHASE SECONDS FOLDER NODE...: every node looks at itself, and is
# judged. Where not even a step could be started this is tried again.
check_each()
{
    local phase=$1 budget_s=$2 folder=$3 begin=$SECONDS ended_late=no tries
    shift 3
    for tries in 1 2 3; do
        bounded_step $((budget_s + 5)) "health-$check_count" --mpi=none \
            --nodes=$# --ntasks=$# --ntasks-per-node=1 \
            --nodelist="$(join "$@")" bash "$here/lib/node_check.sh" "$bin" \
            "$folder" "$phase" "$budget_s" >>"$folder/log" 2>&1 ||
            ended_late=yes
        [ -z "$stop_signal" ] || return
        check_end=$(how_it_ended "$folder" "$begin")
        judge "$folder/%s.json" "$@"
        if [ "$ended_late" = yes ] || [ "$step_rc" -eq 0 ] ||
            [ ${#unknown[@]} -lt $# ] || [ "$tries" -eq 3 ]; then
            break
        fi
        say "the check did not start, trying again"
        end_steps
        sleep 5
    done
    keep_verdicts "$folder" "$@"
}

# Ends every step that this job still has, the guards' too. A controller that has
# been started anew counts what the older ones use as taken, although they
# overlap, and none can begin beside them.
end_steps()
{
    end_guard
    timeout --foreground 20 squeue -h -s -j "$slurm_id" -o %i 2>/dev/null |
        grep '\.[0-9]*$' |
        xargs -r timeout --foreground 20 scancel --signal=KILL 2>/dev/null
}

# keep_verdicts FOLDER NODE...: one file for all of them instead of one each, and
# the checks of old jobs go.
keep_verdicts()
{
    local node folder=$1
    shift
    for node in "$@"; do
        [ ! -e "$folder/$node.json" ] || cat "$folder/$node.json"
        rm -f "$folder/$node.json"
    done >>"$folder/verdicts"
    find "$run_dir/health" -mindepth 1 -maxdepth 1 -printf '%T@ %p\0' |
        sort -zrn | tail -zn "+$((CHECKS_KEPT + 1))" | cut -zd' ' -f2- |
        xargs -0 -r rm -rf ||
        say "$run_dir/health: cannot remove the oldest checks"
}

# check_again FOLDER NODE...: before the job goes back into the queue for want of
# nodes, those without a verdict are asked again: they may have been busy with
# what was there before.
check_again()
{
    local folder=$1 first=("${good[@]}") both=() node
    shift
    say "${#first[@]} good nodes, $wanted wanted: checking $(join "$@") again"
    check_each job "$check_s" "$folder" "$@"
    for node in "${allocated[@]}"; do
        [[ " ${first[*]} ${good[*]} " == *" $node "* ]] && both+=("$node")
    done
    good=("${both[@]}")
}

# check_nodes PHASE: "job" or "quick" on every node that can be used, then, in
# phase "job", neighbours against each other.
check_nodes()
{
    local phase=$1 folder usable=() tried=() begin=$SECONDS budget_s again
    local bad=() unknown=()
    budget_s=$check_s
    # Between attempts every second counts, and a node that has died but is not
    # known to be dead gives no verdict.
    [ "$phase" = job ] || budget_s=$((check_s < 10 ? check_s : 10))
    mapfile -t allocated < <(job_nodes)
    mapfile -t usable < <(nodes_usable "${allocated[@]}")
    good=("${usable[@]}")
    [ "$check_s" -gt 0 ] && [ ${#usable[@]} -gt 0 ] || return
    check_count=$((check_count + 1))
    folder=$run_dir/health/$job.${SLURM_RESTART_COUNT:-0}.$check_count
    mkdir -p "$folder"
    tried=("${usable[@]}")
    # One folder a job for what MPI shares on a node, made by this check: who is
    # killed leaves it behind, and the next check and the epilog remove it. Nobody
    # else knows its name before, so nobody can take it first.
    : "${shm_folder:=/dev/shm/tessera.$job.$(mktemp -u XXXXXXXXXXXX)}"
    export OMPI_MCA_btl_vader_backing_directory=$shm_folder \
        OMPI_MCA_osc_sm_backing_directory=$shm_folder
    check_each "$phase" "$budget_s" "$folder" "${tried[@]}"
    [ -z "$stop_signal" ] || return
    for again in 1 2; do
        if [ "$phase" != job ] || [ ${#good[@]} -ge "$wanted" ] ||
            [ ${#unknown[@]} -eq 0 ]; then
            break
        fi
        check_again "$folder" "${unknown[@]}"
        [ -z "$stop_signal" ] || return
    done
    if [ "$phase" = job ] && [ ${#good[@]} -gt 1 ]; then
        check_pairs "$folder"
        [ -z "$stop_signal" ] || return
    fi
    # A job that is about to be requeued gives all back, and while one that has
    # been shrunk ends, slurmctld changes nothing of it (see exclude_bad).
    [ ${#good[@]} -lt "$wanted_min" ] || give_back
    ledger check "$attempt" phase="$phase" tried=${#tried[@]} \
        good=${#good[@]} nodes="$(join "${good[@]}")" \
        seconds=$((SECONDS - begin))
}

# Each good node sums with its neighbours. Without any answer nobody is blamed:
# the training has its own deadlines.
check_pairs()
{
    local folder=$1 tried=("${good[@]}")
    bounded_step $((check_s + 5)) "pairs-$check_count" --mpi="$mpi" \
        --nodes=${#tried[@]} --ntasks=${#tried[@]} --ntasks-per-node=1 \
        --nodelist="$(join "${tried[@]}")" --output="$folder/pairs" \
        "$bin/tessera-health" job --pairs --json --budget "$check_s" \
        2>>"$folder/log"
    [ -z "$stop_signal" ] || return
    if ! grep -q '"verdict"' "$folder/pairs" 2>/dev/null; then
        say "the pair check gave no verdict (code $step_rc), going on"
        return
    fi
    check_end="no verdict of the pair check"
    judge "$folder/pairs" "${tried[@]}"
}
