# shellcheck shell=bash
# Sections of tests/soak/matrix in which something else goes wrong than a death
# at a known point or a failing call.

until_true() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}

pid_of() { # RANK: of the last victim that wrote its pid
    sed -n "s/^pid $1 //p" "$JOURNAL" | tail -n 1
}

stopped() { # RANK
    grep -q '^State:.T' "/proc/$(pid_of "$1")/status"
}

started() {
    [ "$(tail -n 1 "$JOURNAL" | cut -d ' ' -f 1)" = start ]
}

# Save in the background until rank RANK has stopped itself at POINT.
stop_at() { # POINT RANK RANKS FLAGS...
    local at=$1:$2 rank=$2 ranks=$3
    shift 3
    fresh new
    TESSERA_CRASH_AT=$at TESSERA_CRASH_STOP=1 saves "$ranks" new "$@" &
    saver=$!
    until_true 60 stopped "$rank" && return
    wrong "rank $rank did not stop"
    wait $saver
    return 1
}

section_others() {
    cells_stop
    cells_removed
    cells_race
    cells_random
}

# A rank that is stopped: for a moment, or for good.
cells_stop() {
    local plan rank point want
    for plan in shard-half:1 shards-agreed:1 manifest-written:0 commit-renamed:0; do
        point=${plan%:*} rank=${plan#*:}
        cell "SIGSTOP and SIGCONT at $point" "rank $rank/2" new
        if stop_at "$point" "$rank" 2; then
            sleep 1
            kill -CONT "$(pid_of "$rank")"
            wait $saver && judge "" "" || wrong "the save failed"
        fi
        cell "SIGSTOP for good at $point" "rank $rank/2" new
        if stop_at "$point" "$rank" 2 -t 3; then
            wait $saver && wrong "the save did not fail" && continue
            # mpirun wakes the stopped rank before it kills it, so that rank 0
            # may commit after all
            want=old
            [ "$rank" != 0 ] || want=
            [ "$(place "$point")" -lt "$COMMITTED" ] || want=new
            if grep -q "rank $rank " "$WORK/err"; then
                NOTE="the others name rank $rank, " judge "" $want
            else
                wrong "nobody names rank $rank: $(tail -n 1 "$WORK/err")"
            fi
        fi
    done
}

# The folder goes away in the middle of a save.
cells_removed() {
    local point
    for point in folder-made shard-half shard-renamed shards-agreed manifest-written; do
        cell "folder removed at $point" alone new
        stop_at $point 0 1 || continue
        rm -rf "$RUN"/checkpoints/.tmp-*
        kill -CONT "$(pid_of 0)"
        wait $saver && wrong "the save did not fail" && continue
        NOTE="the save fails, " judge "" old
    done
}

# Two jobs on one run: the second is refused while the first lives, and goes on
# from what it left.
cells_race() {
    local point i status
    for point in shard-half commit-renamed; do
        cell "second job while the first is at $point" two new
        if stop_at $point 0 1 -l; then
            (JOURNAL=$WORK/journal2 saves 1 same -l)
            status=$?
            kill -CONT "$(pid_of 0)"
            wait $saver || status="$status, the first failed"
            if [ "$status" = 3 ]; then
                NOTE="refused, " judge "" ""
            else
                wrong "not refused: status $status"
            fi
        fi
        cell "second job after the first died at $point" two new
        if stop_at $point 0 1 -l; then
            kill -KILL "$(pid_of 0)"
            wait $saver
            if saves 1 same -l next; then
                NOTE="takes over, " judge "" ""
            else
                wrong "it can't go on: $(cat "$WORK/out")"
            fi
        fi
    done
    for ((i = 1; i <= 5; i++)); do
        cell "two jobs at once, time $i" two new
        fresh new
        (WORK=$WORK/second && mkdir -p "$WORK" && saves 1 same -l next) &
        saver=$!
        saves 1 new -l next
        status=$?
        wait $saver
        case $status,$? in
        0,0 | 0,3 | 3,0) NOTE="status $status and $?, " judge "" "" ;;
        *) wrong "status $status and $?" ;;
        esac
    done
}

# SIGKILL at any moment of many saves.
cells_random() {
    local i ranks steps
    read -ra steps <<<"$(for ((i = 3; i < 4000; i++)); do echo -n "$i:$i "; done)"
    for ((i = 1; i <= 20; i++)); do
        ranks=$((i % 4 == 0 ? 2 : 1))
        cell "SIGKILL at a random moment, time $i" "$ranks ranks" new
        fresh new
        local program=("$SOAK/victim")
        [ $ranks -eq 1 ] || program=(tests/mpirun $ranks "$SOAK/victim")
        "${program[@]}" save "$RUN" "$JOURNAL" "${steps[@]}" >/dev/null 2>&1 &
        saver=$!
        until_true 60 started
        sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
        kill -KILL "$(pid_of 0)" || complain "the saves were too short"
        wait $saver 2>/dev/null
        judge "" ""
    done
}

# --- damage ----------------------------------------------------------------------

shard() { # STEP NUMBER [RUN]
    find "${3:-$RUN}/checkpoints/step-00000000$1" -name "shard-0000$2-*"
}

exchange() { # FILE FILE
    mv "$1" "$WORK/exchanged"
    mv "$2" "$1"
    mv "$WORK/exchanged" "$2"
}

# After COMMAND on a run with steps 1 and 2, step 1 is the newest intact one.
damage() { # WHAT COMMAND...
    cell "$1" - new
    shift
    fresh new
    echo "commit 1 1" >"$JOURNAL"
    if "$@"; then judge -b old; else wrong "no damage was done"; fi
}

# After COMMAND step 2 must still be loaded.
harmless() { # WHAT COMMAND...
    cell "$1" - new
    shift
    fresh new
    if "$@"; then judge "" old; else wrong "nothing was changed"; fi
}

section_damage() {
    local s2=$RUN/checkpoints/step-000000002 s1=$RUN/checkpoints/step-000000001
    local latest=$RUN/checkpoints/LATEST r file
    rm -rf "$WORK/other"
    tests/mpirun 2 "$SOAK/victim" save "$WORK/other" "$WORK/other.journal" \
        1:8 2:9 || complain "no save without faults"
    harmless "LATEST missing" rm "$latest"
    harmless "LATEST empty" truncate -s 0 "$latest"
    harmless "LATEST garbage" cp /bin/sh "$latest"
    harmless "LATEST names an older step" sh -c "echo step-000000001 >$latest"
    harmless "LATEST names a step that is not there" sh -c "echo step-000000007 >$latest"
    harmless "LATEST is a folder" sh -c "rm $latest && mkdir $latest"
    fresh new
    for r in 0 1; do
        damage "shard $r of another step" eval "cp \$(shard 1 $r) \$(shard 2 $r)"
        damage "shard $r of another run" eval "cp \$(shard 2 $r $WORK/other) \$(shard 2 $r)"
        damage "shard $r missing" eval "rm \$(shard 2 $r)"
        damage "shard $r empty" eval "truncate -s 0 \$(shard 2 $r)"
        damage "shard $r a byte short" eval "truncate -s -1 \$(shard 2 $r)"
        damage "shard $r a byte long" eval "truncate -s +1 \$(shard 2 $r)"
        damage "shard $r zeros" eval \
            "dd if=/dev/zero of=\$(shard 2 $r) bs=1 conv=notrunc status=none count=\$(stat -c %s \$(shard 2 $r))"
        damage "shard $r is a folder" eval \
            "file=\$(shard 2 $r) && rm \$file && mkdir \$file"
    done
    damage "shards exchanged among ranks" eval "exchange \$(shard 2 0) \$(shard 2 1)"
    damage "manifest missing" rm "$s2/MANIFEST.json"
    damage "manifest empty" truncate -s 0 "$s2/MANIFEST.json"
    for r in 1 2 10 100 600; do
        damage "manifest torn, $r bytes less" truncate -s -$r "$s2/MANIFEST.json"
    done
    damage "manifest with more behind it" sh -c "echo >>$s2/MANIFEST.json"
    damage "manifest of another step" cp "$s1/MANIFEST.json" "$s2/MANIFEST.json"
    damage "manifest of another run" cp \
        "$WORK/other/checkpoints/step-000000002/MANIFEST.json" "$s2/MANIFEST.json"
    damage "step 1 under the name of step 2" sh -c "rm -r $s2 && cp -r $s1 $s2"
    damage "empty folder" sh -c "rm -r $s2 && mkdir $s2"
    damage "a file in place of the folder" sh -c "rm -r $s2 && echo >$s2"
    cell "every checkpoint damaged" - new
    fresh new
    for file in "$s1" "$s2"; do
        truncate -s 10 "$file/MANIFEST.json"
    done
    if saves 1 new; then
        wrong "a fresh start"
    elif grep -q 'no good checkpoint is left' "$WORK/out"; then
        outcome "refused: $(cut -d : -f 3 "$WORK/out")"
    else
        wrong "$(cat "$WORK/out")"
    fi
}

# In memory where possible: nothing here is about syncing.
section_flips() {
    local folder line memory=/dev/shm
    [ -d $memory ] && [ -w $memory ] || memory=$WORK
    folder=$(mktemp -d "$memory/tessera-flips.XXXXXX")
    OTHER=$folder
    victim flips "$folder" >"$WORK/flips"
    while read -r line; do
        cell "every bit of ${line%% -> *}" - new
        case $line in
        *WRONG) WRONG=$((WRONG + 1)) ;;
        esac
        outcome "${line##* -> }"
    done <"$WORK/flips"
    rm -rf "$folder"
}
