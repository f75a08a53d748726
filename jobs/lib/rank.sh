#!/bin/bash
# rank.sh RUN_DIR ATTEMPT COMMAND...: a rank of an attempt. Where a signal has ended it
# the other ranks would wait for its signs of life: so what it died of is written as
# ranks write why they leave, and the step ends on all nodes at once: by the first of
# them, since all may die of one fault. So it does where a GPU of the node is found not
# to be fit to go on, for which a node's first rank has a process beside it, every
# TESSERA_ALERTS_S seconds.
run_dir=$1 attempt=$2
# what asks the ranks to stop must not end who waits for one
trap : USR1 USR2 TERM INT HUP

leave() # KIND WORDS...
{
    mkdir -p "$run_dir/reasons"
    printf '75 %s %s: %s\n' "$1" "$SLURMD_NODENAME" "${*:2}" >"$run_dir/reasons/$(printf \
        'attempt-%04d.rank-%04d.task' "$attempt" "$SLURM_PROCID")"
    mkdir "$run_dir/reasons/$(printf 'attempt-%04d.ended' "$attempt")" 2>/dev/null &&
        timeout 5 scancel --signal=KILL "$SLURM_JOB_ID.$SLURM_STEP_ID" 2>/dev/null
}

# A watcher says "alert" or "fatal", a code, words. One that a signal has ended is started
# again, a few times; what asks the ranks to stop ends none.
watch_gpus()
{
    local what words why='' starts
    trap '' USR1 USR2
    for starts in {1..5}; do
        while read -r what words; do
            case $what in
            alert) notify "$SLURMD_NODENAME: $words" ;;
            fatal) why=$words ;;
            esac
        done < <(exec "${3%/*}/tessera-health" watch --run "$run_dir" \
            --attempt "$attempt" --every "${TESSERA_ALERTS_S:-10}")
        wait $!
        [ $? -le 128 ] || [ -n "$why" ] && break
        echo "rank.sh: $SLURMD_NODENAME: who watches the GPUs has died ($starts of 5)" >&2
        sleep 1
    done
    [ -z "$why" ] || leave gpu "$why"
}

# Of what ends the attempt the launch script tells.
notify() # WORDS
{
    [ -z "${TESSERA_NOTIFY-}" ] ||
        timeout 10 "$TESSERA_NOTIFY" gpu-alert "$run_dir" "$SLURM_JOB_ID" "$1" \
            >/dev/null 2>&1 </dev/null ||
        echo "rank.sh: TESSERA_NOTIFY $TESSERA_NOTIFY failed (code $?): $1" >&2
}

watcher=
if [ "${SLURM_LOCALID:-1}" = 0 ] && [ "${TESSERA_ALERTS_S:-10}" != 0 ] &&
    [ -x "${3%/*}/tessera-health" ]; then
    watch_gpus "$@" </dev/null &
    watcher=$!
fi
"${@:3}"
code=$?
[ -z "$watcher" ] || kill "$watcher" 2>/dev/null
[ "$code" -gt 128 ] || exit "$code"
name=$(kill -l $((code - 128)))
leave comm "task $SLURM_PROCID was ended by signal $((code - 128)) ($name)"
exit "$code"
