# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# One attempt: start the training step and watch over it. What is to be done says
# `tessera-ckpt watch`. Needs what nodes.sh needs, and $program, arguments=(),
# $start_s, $hang_s, $watch_s, $tasks_per_node, $cpus_per_task, and a pipe open as 9.

readonly STOP_AGAIN_S=15

# start_attempt NODE...: one step over these nodes.
start_attempt()
{
    # One of this number that never began may have left words, which are not this one's.
    timeout 10 find "$run_dir/reasons" -maxdepth 1 \
        -name "$(printf 'attempt-%04d.*' "$attempt")" -delete 2>/dev/null || true
    # When a rank has ended, the others get some seconds to leave together and
    # to say why; ending them at once would turn a clean 85 into a 143.
    TESSERA_ATTEMPT_OF=$job TESSERA_SPARE_NODES=$spare start_step "train-$attempt" --mpi="$mpi" \
        --wait=10 --nodes=$# --ntasks=$(($# * tasks_per_node)) \
        --ntasks-per-node="$tasks_per_node" \
        --cpus-per-task="$cpus_per_task" \
        --nodelist="$(join "$@")" \
        bash "$here/lib/rank.sh" "$run_dir" "$attempt" "$program" "${arguments[@]}"
}

# What can be seen of the run without asking Slurm: sets watch_pid, whose words come
# through pipe 9. What asks the job to stop must not end it.
start_watch()
{
    (trap '' TERM USR1
        exec "$bin/tessera-ckpt" watch "$run_dir" "$start_s" "$hang_s" "$watch_s" \
            --job "$job" --attempt "$attempt") </dev/null >&9 &
    watch_pid=$!
    disown "$watch_pid" # nobody waits for one that storage has stopped
}

# hear_watch: sets ask, where Slurm is to be asked ("start": while the attempt has not
# started), ended_by and limit_s; passes STOP on.
hear_watch()
{
    local pid what words
    ask=no
    # a line that has begun is waited for: read forgets the half of one whose time is over
    while read -t 0 -u 9 && read -r -t 5 -u 9 pid what words; do
        [ "$pid" = "$watch_pid" ] || continue
        case $what in
        say) say "$words" ;;
        stop) stop_signal=STOP ;;
        ask) ask=${words:-yes} ;;
        start)
            limit_s=$words
            end_attempt start "not started within $limit_s s"
            ;;
        hang) end_attempt hang "no step for $hang_s s" ;;
        apart) end_attempt itself "its ranks have left, and Slurm waits for some" ;;
        esac
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

# ask_start NODE...: sets lost to those that are silent twice running. Where all others are,
# it is this node's network.
ask_start()
{
    local before=("${silent_before[@]}")
    ask_answers "$@"
    silent_before=("${silent[@]}")
    [ ${#silent[@]} -lt $(($# > 2 ? $# - 1 : $#)) ] || return 0
    mapfile -t lost < <(but "$(but "$(printf '%s\n' "${before[@]}")" "${silent[@]}")" "${silent[@]}")
}

# ask_nodes NODE...: sets lost.
ask_nodes()
{
    local answer known
    answer=$(job_lacks "$@")
    known=$?
    if [ "$known" -eq 0 ]; then
        answered=yes
        [ -z "$answer" ] || mapfile -t lost <<<"$answer"
    elif [ "$answered" = yes ]; then
        answered=no
        say "Slurm does not say which nodes the job has, going on"
    fi
    # a start that drags waits for whom Slurm does not miss yet
    if [ "$ask" = start ] && [ ${#lost[@]} -eq 0 ]; then
        ask_start "$@"
    fi
}

end_attempt()
{
    ended_by=$1
    shift
    say "$*: ending the attempt"
    # of ranks that have left nobody has more to say
    end_step 5 "$([ "$ended_by" = itself ] && echo 0 || echo 2)"
}

# watch_attempt NODE...: until the step has ended; sets ended_by to "node", "itself",
# "start" or "hang" where we ended it, and lost=().
watch_attempt()
{
    local ask answered=yes silent_before=()
    ended_by='' lost=() stop_forwarded=no stop_again_at=0
    start_watch
    until await 0; do
        kill -0 "$watch_pid" 2>/dev/null || start_watch
        hear_watch
        [ -z "$ended_by" ] || break
        [ -z "$stop_signal" ] || forward_stop
        [ "$ask" = no ] || ask_nodes "$@"
        [ ${#lost[@]} -eq 0 ] || end_attempt node "lost $(join "${lost[@]}")"
    done
    kill -KILL "$watch_pid" 2>/dev/null
    step_code
    [ "$ended_by" != itself ] || step_rc=75 # as all that have left
    # ranks that were killed with their node, or since it never began, say nothing
    if [ -z "$ended_by" ] && [[ ! $step_rc =~ ^(0|64|75|85|93)$ ]]; then
        ask_answers "$@"
        lost=("${silent[@]}")
        [ ${#lost[@]} -eq 0 ] || ended_by=node
    fi
}
