# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# One attempt: start the training step, watch over it, and decide what its end
# means. Needs what nodes.sh needs, and $program, arguments=(), $start_s,
# $hang_s.

# start_attempt NODE...: one step over these nodes.
start_attempt()
{
    local cpus=()
    [ -n "${SLURM_CPUS_PER_TASK:-}" ] &&
        cpus=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
    # When a rank has ended, the others get some seconds to leave together and
    # to say why; ending them at once would turn a clean 85 into a 143.
    TESSERA_ATTEMPT_OF=$job start_step "train-$attempt" --mpi=pmix --wait=10 \
        --nodes=$# --ntasks=$(($# * tasks_per_node)) \
        --ntasks-per-node="$tasks_per_node" ${cpus[@]+"${cpus[@]}"} \
        --nodelist="$(join "$@")" "$program" "${arguments[@]}"
}

# The last sign of life: the training writes metrics.jsonl every step.
last_beat()
{
    stat -c %Y "$run_dir/metrics.jsonl" "$run_dir/heartbeat" 2>/dev/null |
        sort -n | tail -n 1
}

# Passes a request to stop on to all ranks; again at the next tick if the step
# has not started or a node did not answer. srun itself must not get a SIGTERM:
# it would end the step without a checkpoint.
forward_stop()
{
    local id
    id=$(step_id "$step_name")
    [ -n "$id" ] || return
    [ "$stop_forwarded" = no ] &&
        say "asking the ranks to checkpoint and stop ($stop_signal)"
    stop_forwarded=trying
    scancel --signal=USR1 "$id" 2>/dev/null && stop_forwarded=yes
}

# watch_attempt NODE...: until the step has ended; sets ended_by to "node",
# "start" or "hang" where we ended it, and lost=().
watch_attempt()
{
    local beat beat_seen=none beat_at=$SECONDS start_by=$((SECONDS + start_s))
    ended_by='' lost=() stop_forwarded=no
    until await "$watch_s"; do
        [ -e "$run_dir/STOP" ] && stop_signal=STOP
        if [ -n "$stop_signal" ] && [ "$stop_forwarded" != yes ]; then
            forward_stop
        fi
        mapfile -t lost < <(nodes_lost "$@")
        if [ ${#lost[@]} -gt 0 ]; then
            ended_by=node
            say "lost $(join "${lost[@]}"): ending the attempt"
            end_step
            return
        fi
        if [ -n "$start_by" ] && attempt_started; then
            start_by=
        elif [ -n "$start_by" ] && [ "$SECONDS" -ge "$start_by" ]; then
            ended_by=start
            say "not started within $start_s s: ending the attempt"
            end_step
            return
        fi
        beat=$(last_beat)
        if [ "$beat" != "$beat_seen" ]; then
            beat_seen=$beat
            beat_at=$SECONDS
        elif [ $((SECONDS - beat_at)) -ge "$hang_s" ]; then
            ended_by=hang
            say "no step for $hang_s s: ending the attempt"
            end_step
            return
        fi
    done
    step_code
}

# Has the training program come so far that the attempt is in the ledger?
attempt_started()
{
    [ "$(ledger_started)" -ge "$attempt" ]
}

# What the ranks of the attempt wrote about why they left: "CODE TEXT", the
# gravest first. Nothing if they had no time to.
attempt_reason()
{
    local number
    number=$(ledger_started)
    [ "$number" -ge "$attempt" ] || return
    # Files may lack their last newline.
    awk '
    FNR == 1 {
        grave = $1 == 93 ? 3 : $1 == 64 ? 2 : 1
        if (grave > worst) { worst = grave; line = $0 }
    }
    END { print line }' /dev/null \
        "$run_dir/reasons/attempt-$(printf %04d "$number").rank-"* 2>/dev/null
}

# classify: sets action (done, stop, requeue, retry, leave) and cause, from the
# reason files, the state of the job and, only then, the code of srun, which is
# just the highest of all ranks.
classify()
{
    local written state
    written=$(attempt_reason)
    state=$(job_state)
    case $step_rc:$ended_by in
    0:)
        action="done" cause="finished"
        return
        ;;
    *:node) action=retry cause="lost node $(join "${lost[@]}")" ;;
    *:start) action=retry cause="not started within $start_s s" ;;
    *:hang) action=retry cause="no step for $hang_s s" ;;
    85:) action=requeue cause="checkpointed on request" ;;
    93: | 64:) action=stop cause="exit code $step_rc" ;;
    75:) action=retry cause="transient failure" ;;
    137:) action=retry cause="killed (SIGKILL): out of memory?" ;;
    *)
        if [ "$step_rc" -gt 128 ]; then
            action=retry cause="ended by signal $((step_rc - 128))"
        else
            action=retry cause="exit code $step_rc"
        fi
        ;;
    esac
    attempt_started || cause+=" before the run was opened, see the job's output"
    case $written in
    93\ * | 64\ *)
        action=stop
        step_rc=${written%% *}
        ;;
    esac
    [ -n "$written" ] && cause=${written#* }
    if [ -n "$stop_signal" ] && [ "$action" = retry ]; then
        # No time is left for another attempt in this job.
        action=requeue
    fi
    if [ "$stop_signal" = STOP ] && [ "$action" = requeue ]; then
        action=stop cause="$run_dir/STOP: remove it to go on"
    fi
    if [ "$state" != RUNNING ]; then
        action=leave cause="job is ${state:-unknown to Slurm}; $cause"
    fi
}
