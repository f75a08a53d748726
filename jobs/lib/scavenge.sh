# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# Before a job ends without another attempt: a checkpoint that only its nodes
# have goes into the run directory. Needs what attempt.sh needs, and $local_dir
# (empty: there are none), $scavenge_s, $mpi.

# The seconds that the copy may take: Slurm must not end the job before it is
# requeued, nor the half minute between its SIGTERM and SIGKILL be over.
scavenge_time()
{
    local end left=$scavenge_s
    end=$(job_field EndTime)
    # Unknown: there is no limit.
    if [[ $end == *T*:* ]] && end=$(date -d "$end" +%s); then
        left=$((end - $(date +%s) - 15))
    fi
    [ "$stop_signal" = TERM ] && [ "$left" -gt 15 ] && left=15
    echo $((left < scavenge_s ? left : scavenge_s))
}

# scavenge NODE...: one process on each of them; succeeds when a step is
# committed that was not. A request to stop does not end it: no other attempt
# follows in any case.
scavenge()
{
    local before end seconds step_rc
    before=$(newest_checkpoint)
    [ -n "$local_dir" ] && [ $# -gt 0 ] && [[ $(ledger_word local) > $before ]] ||
        return
    seconds=$(scavenge_time)
    if [ "$seconds" -lt 5 ]; then
        say "no time is left to save $(ledger_word local) from the nodes"
        return 1
    fi
    say "saving $(ledger_word local) from the nodes $(join "$@")"
    end=$((SECONDS + seconds))
    TESSERA_ATTEMPT_OF=$job start_step scavenge --mpi="$mpi" --nodes=$# \
        --ntasks=$# --ntasks-per-node=1 --nodelist="$(join "$@")" \
        "$bin/tessera-ckpt" scavenge "$run_dir" --local "$local_dir" \
        --timeout "$seconds"
    until await 1; do
        if [ "$SECONDS" -ge "$end" ]; then
            say "not done after $seconds s: ending it"
            end_step
            return 1
        fi
    done
    step_code
    [[ $(newest_checkpoint) > $before ]] && return
    say "nothing could be saved from the nodes (code $step_rc)"
    return 1
}

# The nodes that the launch script knows to be good and Slurm not to be dead.
scavenge_here()
{
    local usable=()
    [ -n "$local_dir" ] && [ ${#good[@]} -gt 0 ] || return
    mapfile -t usable < <(nodes_usable "${good[@]}")
    scavenge "${usable[@]}"
}
