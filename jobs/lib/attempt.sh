# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# One attempt: start the training step and watch over it. Needs what nodes.sh needs, and $program, arguments=(), $start_s,
# $hang_s, $watch_s, $tasks_per_node, $cpus_per_task, $launch_beat, and a pipe
# open as 9.

readonly STANDSTILL_S=5 STOP_AGAIN_S=15

# start_attempt NODE...: one step over these nodes.
start_attempt()
{
    # When a rank has ended, the others get some seconds to leave together and
    # to say why; ending them at once would turn a clean 85 into a 143.
    TESSERA_ATTEMPT_OF=$job start_step "train-$attempt" --mpi="$mpi" \
        --wait=10 --nodes=$# --ntasks=$(($# * tasks_per_node)) \
        --ntasks-per-node="$tasks_per_node" \
        --cpus-per-task="$cpus_per_task" \
        --nodelist="$(join "$@")" "$program" "${arguments[@]}"
}

# What can be seen of the run without asking Slurm, at every tick: the last sign
# of life of the training, which writes metrics.jsonl every step, and now and then
# a file STOP. The guards in turn see this script in its own sign. It runs beside the
# script, since a file system that stands still would stop it.
look()
{
    local stop=
    # not at every tick: shared storage has many such scripts
    if [ $((SECONDS % 4)) -lt "$watch_s" ]; then
        touch "$launch_beat"
        [ ! -e "$run_dir/STOP" ] || stop=STOP
    fi
    echo "$(stat -c %.Y+%s "$run_dir/metrics.jsonl" || echo none) $stop" >&9
}

# The newest of what look() has seen: sets beat, and passes STOP on.
take_look()
{
    local seen stop
    while read -r -t 0.01 -u 9 seen stop; do
        beat=$seen
        [ -z "$stop" ] || stop_signal=STOP
    done
}

# Passes a request to stop on to all ranks; again at the next tick if the step
# has not started or a node did not answer, and now and then in any case: Slurm
# calls a signal sent that comes before the step is there to take it. srun itself
# must not get a SIGTERM: it would end the step without a checkpoint.
forward_stop()
{
    local id
    [ "$SECONDS" -ge "$stop_again_at" ] || return
    id=$(step_id "$step_name")
    [ -n "$id" ] || return
    [ "$stop_forwarded" = no ] &&
        say "asking the ranks to checkpoint and stop ($stop_signal)"
    stop_forwarded=yes
    timeout --foreground 5 scancel --signal=USR1 "$id" 2>/dev/null &&
        stop_again_at=$((SECONDS + STOP_AGAIN_S))
}

# Sets passed_s: since the last tick, as far as time passed for the job as well.
# While this script stood still, suspended by an administrator or waiting for
# storage, so did the ranks.
measure_tick()
{
    local now=$SECONDS
    passed_s=$((now - tick_at))
    tick_at=$now
    if [ "$passed_s" -gt $((watch_s + STANDSTILL_S)) ]; then
        say "stood still for $passed_s s, which do not count"
        passed_s=$watch_s
    fi
}

# Sets gap_s and quiet_s, between the last two steps and since the last one. A
# suspension ends in either.
listen()
{
    take_look
    quiet_s=$((quiet_s + passed_s))
    if [ "$beat" != "$beat_seen" ]; then
        [ -z "$beat_seen" ] || gap_s=$quiet_s
        beat_seen=$beat
        quiet_s=0
    fi
}

# Is it time to ask Slurm for the nodes? Once a minute while steps come as they
# came before. Else soon, and the longer nothing has come the more seldom: a
# death that Slurm learns of is heard of after an eighth of the silence more.
time_to_ask()
{
    local pause_s=60
    if [ "$quiet_s" -gt $((5 + 2 * gap_s)) ]; then
        pause_s=$((quiet_s / 8))
        pause_s=$((pause_s < 2 ? 2 : pause_s > 15 ? 15 : pause_s))
    fi
    [ $((SECONDS - asked_at)) -ge "$pause_s" ]
}

# ask_nodes NODE...: sets lost.
ask_nodes()
{
    local answer known
    answer=$(job_lacks "$@")
    known=$?
    # Waiting for Slurm is no standstill.
    quiet_s=$((quiet_s + SECONDS - tick_at))
    tick_at=$SECONDS asked_at=$SECONDS
    if [ "$known" -eq 0 ]; then
        answered=yes
        [ -z "$answer" ] || mapfile -t lost <<<"$answer"
    elif [ "$answered" = yes ]; then
        answered=no
        say "Slurm does not say which nodes the job has, going on"
    fi
}

end_attempt()
{
    ended_by=$1
    shift
    say "$*: ending the attempt"
    end_step
}

# watch_attempt NODE...: until the step has ended; sets ended_by to "node",
# "start" or "hang" where we ended it, and lost=().
watch_attempt()
{
    local beat='' beat_seen='' quiet_s=0 gap_s=60 started=no
    local tick_at=$SECONDS passed_s asked_at=$SECONDS answered=yes
    ended_by='' lost=() stop_forwarded=no stop_again_at=0
    until await "$watch_s" look; do
        measure_tick
        listen
        [ -z "$stop_signal" ] || forward_stop
        if [ "$started" = no ] && attempt_started; then
            started=yes quiet_s=0
        fi
        if [ "$started" = no ]; then
            if [ "$quiet_s" -ge "$start_s" ]; then
                end_attempt start "not started within $start_s s"
                return
            fi
        elif [ "$quiet_s" -ge "$hang_s" ]; then
            end_attempt hang "no step for $hang_s s"
            return
        fi
        # Last: while Slurm is waited for nobody listens, and what came then
        # is heard at the next tick, before that wait passes for a hang.
        ! time_to_ask || ask_nodes "$@"
        if [ ${#lost[@]} -gt 0 ]; then
            end_attempt node "lost $(join "${lost[@]}")"
            return
        fi
    done
    step_code
}

# Has the training program come so far that the attempt is in the ledger?
attempt_started()
{
    [ "$(ledger_word started)" -ge "$attempt" ]
}
