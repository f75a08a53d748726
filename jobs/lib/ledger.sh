# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# The ledger of a run, RUN/ledger.jsonl, whose events are one table for the
# training program and these scripts (src/job/ledger_rows.h), and the room for
# it. Needs $bin, $run_dir, $job and $controller_s.

# ledger EVENT ATTEMPT [KEY=VALUE ...]: returns 1 where it cannot be written.
# What asks the job's processes to stop must not cost the line.
ledger()
{
    (trap '' TERM USR1
        exec "$bin/tessera-ckpt" ledger "$run_dir" --event "$1" --attempt "$2" \
            -- job="$job" "${@:3}") && return
    say "$run_dir/ledger.jsonl: cannot write the event $1"
    return 1
}

# ledger_word NAME: what the ledger tells of this job (struct ledger_job in
# src/job/ledger_history.h). Without an answer a number is 0, a list empty.
ledger_word()
{
    local name value word=
    while read -r name value; do
        [ "$name" != "$1" ] || word=$value
    done < <("$bin/tessera-ckpt" ledger "$run_dir" --job "$job" 2>/dev/null)
    case $1 in
    local | excluded | expired | slow) ;;
    *) word=${word:-0} ;;
    esac
    echo "$word"
}

# full TEXT: does an error say that there is no room?
full()
{
    [[ ${1,,} =~ 'no space left'|quota ]]
}

# Is the run's file system full, or a quota? Only a try tells.
no_room()
{
    local try=$run_dir/health/room.$job text
    text=$(timeout --foreground 60 dd if=/dev/zero of="$try" bs=64K count=1 \
        conv=fsync status=none 2>&1)
    rm -f "$try"
    full "$text"
}

# Waits for room, at most $controller_s or until a request to stop. Fails if
# there is none even then; sets room_came where there was none before.
wait_for_room()
{
    local end=$((SECONDS + controller_s)) pause=5
    room_came=no
    no_room || return 0
    say "no room for $run_dir, its file system or a quota is full: waiting," \
        "at most $controller_s s"
    while [ -z "$stop_signal" ]; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep "$pause" &
        wait $!
        pause=$((pause < 30 ? 2 * pause : 60))
        if ! no_room; then
            say "there is room again"
            room_came=yes
            return
        fi
    done
}

# The name of the newest committed checkpoint; names sort by step.
newest_checkpoint()
{
    local path newest=
    for path in "$run_dir"/checkpoints/step-*; do
        [ -d "$path" ] && newest=${path##*/}
    done
    echo "$newest"
}
