# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# The ledger of a run, RUN/ledger.jsonl: one line of JSON per event. The
# training program writes "start", "commit" and "stop"; what is decided about
# attempts ("check", "exclude", "node-warning", "restart", "requeue", "give-up",
# "stop") is written
# here. Needs $run_dir, $job and $controller_s.

# json_value TEXT: TEXT as JSON, a number where it looks like one.
json_value()
{
    local text=$1
    if [[ $text =~ ^(-?(0|[1-9][0-9]*)(\.[0-9]+)?|true|false|null)$ ]]; then
        printf '%s' "$text"
        return
    fi
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\n'/ }
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

# json_text LINE KEY: the first string of that name in a line of JSON.
json_text()
{
    local pattern="\"$2\": ?\"([^\"]*)\""
    [[ $1 =~ $pattern ]] && printf '%s' "${BASH_REMATCH[1]}"
}

# Attempts so far: each is a "start" of the training program.
ledger_attempts()
{
    local count
    count=$(grep -c '"event": *"start"' "$run_dir/ledger.jsonl" 2>/dev/null)
    echo "${count:-0}"
}

# The number of the newest attempt that this job has started, or 0: another job
# may have been submitted for the same run.
ledger_started()
{
    local line pattern='"attempt": *([0-9]+)'
    line=$(grep '"event": *"start"' "$run_dir/ledger.jsonl" 2>/dev/null |
        grep "\"job\": *${job}[,}]" | tail -n 1)
    [[ $line =~ $pattern ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

# ledger EVENT ATTEMPT [KEY=VALUE ...]: returns 1 where it cannot be written.
ledger()
{
    local file=$run_dir/ledger.jsonl line field before=
    printf -v line '{"event":"%s","time":%s,"attempt":%d,"job":%d' \
        "$1" "$(date +%s.%3N)" "$2" "$job"
    for field in "${@:3}"; do
        line+=,\"${field%%=*}\":$(json_value "${field#*=}")
    done
    # A line that a power cut has torn must not swallow this one.
    if [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ]; then
        before=$'\n'
    fi
    if ! printf '%s%s}\n' "$before" "$line" >>"$file"; then
        say "$file: cannot write the event $1"
        return 1
    fi
}

# Is the run's file system full, or a quota? Only a try tells.
no_room()
{
    local try=$run_dir/health/room.$job text
    text=$(timeout --foreground 60 dd if=/dev/zero of="$try" bs=64K count=1 \
        conv=fsync status=none 2>&1)
    rm -f "$try"
    grep -qi 'no space left\|quota' <<<"$text"
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

# How many decisions of this job in a row, up to now, followed an attempt without
# a newly committed checkpoint. Having given up ends the row: someone has looked.
ledger_futile()
{
    grep "\"job\": *${job}[,}]" "$run_dir/ledger.jsonl" 2>/dev/null | awk '
    /"event": *"(give-up|hold)"/ || /"progress": *true/ { row = 0 }
    /"progress": *false/ { row++ }
    END { print row + 0 }'
}

# How many times in a row this job was requeued by the signal of its time limit
# before an attempt began.
ledger_unstarted()
{
    grep "\"job\": *${job}[,}]" "$run_dir/ledger.jsonl" 2>/dev/null | awk '
    /"event": *"(give-up|hold|start)"/ { row = 0 }
    /"reason": *"asked to stop \(USR1\) before the start"/ { row++ }
    END { print row + 0 }'
}

# The newest step that this job has committed to the nodes' own folders, named
# like a checkpoint.
newest_local()
{
    local line pattern='"step": *([0-9]+)'
    line=$(grep '"event": *"commit-local"' "$run_dir/ledger.jsonl" 2>/dev/null |
        tail -n 1)
    [[ $line =~ $pattern ]] && printf 'step-%09d' "${BASH_REMATCH[1]}"
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
