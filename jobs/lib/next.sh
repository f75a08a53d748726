# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# What follows when an attempt has ended or could not begin. `tessera-ckpt next`
# decides, and writes the ledger; here is asked and done what it says. Needs what
# ledger.sh, slurm.sh and scavenge.sh need, $attempt, $step_rc, $futile and
# $may_requeue, sets $phase where the next attempt needs the nodes' whole check, and
# needs a function ask_requeue that fails where Slurm refuses.

# follow ENDED [FACT=VALUE ...]: until the next attempt may begin (returns), or
# the job ends. $before and $before_local: the newest steps of the attempt.
follow()
{
    local todo code words row pause_s name value facts=(ended="$@")
    lost=()
    while :; do
        todo=end code=75 pause_s=0 words="stopped: $bin/tessera-ckpt does not say what next"
        while read -r name value; do
            case $name in
            do) todo=$value ;;
            exit) code=$value ;;
            futile) row=$value ;;
            say) words=$value ;;
            phase) phase=$value ;;
            pause) pause_s=$value ;;
            suspect) suspect+=("$value") lost=("$value") ;;
            esac
        done < <(
            # what asks the job to stop must not cost the line in the ledger
            trap '' TERM USR1
            exec "$bin/tessera-ckpt" next "$run_dir" --job "$job" \
                --attempt "$attempt" --before "${before-}" \
                --before-local "${before_local-}" -- code="$step_rc" \
                futile="$futile" stop="$stop_signal" job="$slurm_id" \
                may_requeue="$([ "$may_requeue" = 1 ] && echo yes || echo no)" \
                "${facts[@]}"
        )
        case $todo in
        ask) facts+=(state="$(job_state)") ;;
        ask-again) facts+=(last_state="$(job_state)") ;;
        room)
            wait_for_room && facts+=(room=yes) || facts+=(room=no)
            facts+=(room_came="$room_came")
            ;;
        scavenge) scavenge_here && facts+=(scavenged=yes) || facts+=(scavenged=no) ;;
        requeue)
            say "$words"
            notify requeue "$words"
            ask_requeue && exit "$code"
            facts+=(requeued=no)
            ;;
        *)
            [ -z "$words" ] || say "$words"
            if [ "$todo" = end ] && [ "$code" -eq 0 ]; then
                notify finish "${words:-the run is finished}"
            elif [ "$todo" = end ]; then
                notify give-up "${words:-the job ends with code $code}"
            fi
            [ "$todo" != end ] || exit "$code"
            notify restart "${words:-a new attempt begins}"
            futile=$row
            for ((; pause_s > 0; pause_s--)); do
                [ -z "$stop_signal" ] || break
                sleep 1
            done
            return
            ;;
        esac
    done
}

# notify EVENT WORDS: tells the program that the site or the user has named.
notify()
{
    [ -z "${TESSERA_NOTIFY-}" ] ||
        timeout --foreground 10 "$TESSERA_NOTIFY" "$1" "$run_dir" "$job" "$2" \
            </dev/null >/dev/null 2>&1 ||
        say "TESSERA_NOTIFY $TESSERA_NOTIFY failed (code $?), nobody was told of $1"
}
