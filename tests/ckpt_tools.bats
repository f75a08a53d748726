#!/usr/bin/env bats
# tessera-ckpt: statistics, verification of runs, diff, reshard, pins, pruning,
# intervals.

load ckpt_helpers

setup() {
    need_saver
    RUN=$DIR/run
    ROOT=$RUN/checkpoints
    "$SAVER" save "$RUN" 5
    "$SAVER" save "$RUN" 7
}

teardown() {
    ! mountpoint -q "$DIR/full" || umount "$DIR/full"
}

# json EXPRESSION: of the JSON document d on standard input, in Python
json() {
    python3 -c "import json, sys; d = json.load(sys.stdin); print(($1))"
}

need_python() {
    command -v python3 >/dev/null || skip "python3 is not installed"
}

# five checkpoints in a run of its own: the saver itself keeps only three
five_steps() {
    RUN=$DIR/five
    ROOT=$RUN/checkpoints
    mkdir -p "$ROOT"
    for step in 10 20 30 40 50; do
        "$SAVER" save "$DIR/one" $step
        mv "$DIR/one/checkpoints/step-0000000$step" "$ROOT"
    done
}

steps() {
    basename -a "$ROOT"/step-* | sed 's/step-0*//' | tr '\n' ' '
}

@test "wrong options are named" {
    while read -r text wrong; do
        # shellcheck disable=SC2086
        run "$CKPT" $wrong
        [ "$status" -eq 64 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ $output == *"$text"* ]]
    done <<END
--stats ls $RUN --stats
--xml verify $RUN --xml
needs reshard $ROOT/step-000000007 $DIR/out
whole reshard $ROOT/step-000000007 $DIR/out --ranks 0
whole reshard $ROOT/step-000000007 $DIR/out --ranks 2x
path diff $RUN
needs prune $RUN
whole prune $RUN --keep -1
such prune $DIR/none --keep 1
needs interval
needs interval --cost 3
number interval --cost 3 --mtbf nan
above interval --cost 0 --mtbf 100
below interval --cost 1 --mtbf 100 --overhead 1
value interval --cost
such interval $DIR/none
command frob
END
}

@test "show --stats says what the values are, as h5dump does" {
    run "$CKPT" show "$ROOT/step-000000007" --stats
    [ "$status" -eq 0 ]
    [[ $output == *"nothing f32 [0, 4]"*"no finite values"* ]]
    need_python
    command -v h5dump >/dev/null || skip "h5dump is not installed"
    "$CKPT" show "$ROOT/step-000000007" --stats --json >"$DIR/stats"
    [ "$(json 'd["step"], d["shards"], len(d["tensors"])' <"$DIR/stats")" = \
        "(7, 1, 8)" ]
    h5dump -d counts/tokens -y -w 200 "$ROOT/step-000000007/checkpoint.h5" |
        sed -n '/DATA {/,/}/p' | grep -Eo -e '-?[0-9]+' >"$DIR/values"
    python3 - "$DIR/stats" "$DIR/values" <<'END'
import json, math, sys
values = [float(v) for v in open(sys.argv[2])]
stats = {t["name"]: t for t in json.load(open(sys.argv[1]))["tensors"]}
got = stats["counts/tokens"]["stats"]
mean = sum(values) / len(values)
want = {"elements": 30, "nan": 0, "inf": 0, "zero": values.count(0),
        "min": min(values), "max": max(values), "mean": mean,
        "std": math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)),
        "l2": math.sqrt(sum(v * v for v in values))}
for key in want:
    assert math.isclose(got[key], want[key], rel_tol=1e-12), key
assert stats["nothing"]["stats"]["min"] is None
END
    damage "$ROOT/step-000000007/shard-00000-of-00001.h5" 100000
    "$CKPT" show "$ROOT/step-000000007" --stats --json >"$DIR/out" && false
    [ ! -s "$DIR/out" ]
    run "$CKPT" show "$ROOT/step-000000007"
    [ "$status" -eq 0 ]
}

@test "verify of a run names every damaged place" {
    run "$CKPT" verify "$RUN"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'step-00000000[57]: good' <<<"$output")" -eq 2 ]
    damage "$ROOT/step-000000005/shard-00000-of-00001.h5" 100000
    damage "$ROOT/step-000000005/shard-00000-of-00001.h5" 6000000
    run "$CKPT" verify "$RUN"
    [ "$status" -eq 93 ]
    [ "$(grep -c '^damaged: .*step-000000005/shard-00000.*tensor big.*bytes \[' \
        <<<"$output")" -eq 2 ]
    [[ $output == *"step-000000005: damaged"*"step-000000007: good"* ]]
    [[ $output == *"tessera-ckpt: 1 of 2 checkpoints damaged"* ]]
    echo x >>"$ROOT/step-000000007/MANIFEST.json"
    rm "$ROOT"/step-000000005/*.h5
    run "$CKPT" verify "$RUN"
    [ "$status" -eq 93 ]
    [[ $output == *"shard is missing"*"MANIFEST.json"*"2 of 2"* ]]
    mkdir -p "$DIR/empty/checkpoints"
    run "$CKPT" verify "$DIR/empty"
    [ "$status" -eq 93 ]
    [[ $output == *"no committed checkpoint"* ]]
    need_python
    "$CKPT" verify "$RUN" --json >"$DIR/out" 2>/dev/null && false
    [ "$(json '[(c["step"], c["state"], len(c["damage"])) for c in d]' \
        <"$DIR/out")" = "[(5, 'bad', 2), (None, 'bad', 1)]" ]
}

@test "verify shows its progress to those who watch, and to nobody else" {
    "$CKPT" verify "$RUN" 2>"$DIR/err"
    [ ! -s "$DIR/err" ]
    command -v script >/dev/null || skip "script is not installed"
    script -qec "'$CKPT' verify '$RUN' >'$DIR/out'" /dev/null </dev/null \
        >"$DIR/tty"
    grep -q '1/1 shard-00000-of-00001.h5' "$DIR/tty"
    grep -q 'step-000000007: good' "$DIR/out"
}

@test "diff: equal is 0, different is 1, errors are others" {
    run "$CKPT" diff "$ROOT/step-000000005" "$ROOT/step-000000007"
    [ "$status" -eq 1 ]
    [[ $output == *"counts/tokens: 30 of 30 elements differ, first 0, max absolute"* ]]
    [[ $output == *"step: 5, 7"* ]]
    [[ $output == *"state values: 5, 7"* ]]
    [[ $output == *"1 tensors equal, 7 different" ]]
    "$SAVER" save "$DIR/again" 7
    run "$CKPT" diff "$DIR/again/checkpoints/step-000000007" "$ROOT/step-000000007"
    [ "$status" -eq 0 ]
    [ "$output" = "8 tensors equal, 0 different" ]
    run "$CKPT" diff "$ROOT/step-000000005" "$DIR/none"
    [ "$status" -eq 64 ]
    damage "$DIR/again/checkpoints/step-000000007/shard-00000-of-00001.h5" 100000
    run "$CKPT" diff "$ROOT/step-000000005" "$DIR/again/checkpoints/step-000000007"
    [ "$status" -eq 93 ]
    need_python
    "$CKPT" diff "$ROOT/step-000000005" "$ROOT/step-000000007" --json \
        >"$DIR/out" && false
    [ "$(json 'd["equal"], d["steps"], d["state"][0]["entry"],
        d["tensors"][3]["differing"]' <"$DIR/out")" = \
        "(False, [5, 7], 'values', 30)" ]
}

@test "reshard keeps the digest, and training can load the copy" {
    want=$("$CKPT" digest "$ROOT/step-000000007")
    for n in 1 2 5; do
        run "$CKPT" reshard "$ROOT/step-000000007" "$DIR/copy$n" --ranks $n
        [ "$status" -eq 0 ]
        [ "$(find "$DIR/copy$n" -name 'shard-*.h5' | wc -l)" -eq $n ]
        [ "$("$CKPT" digest "$DIR/copy$n")" = "$want" ]
        "$CKPT" verify "$DIR/copy$n"
    done
    rm -r "$ROOT"/step-*
    mv "$DIR/copy5" "$ROOT/step-000000007"
    "$SAVER" load "$RUN" 7
    command -v h5dump >/dev/null || skip "h5dump is not installed"
    run h5dump -a step -a ranks -a rank "$ROOT"/step-000000007/shard-00003*
    [ "$status" -eq 0 ]
    [[ $output == *"(0): 7"*"(0): 5"*"(0): 3"* ]]
}

@test "reshard that fails leaves nothing" {
    step=$ROOT/step-000000007
    mkdir "$DIR/here"
    run "$CKPT" reshard "$step" "$DIR/here" --ranks 2
    [ "$status" -eq 64 ]
    run "$CKPT" reshard "$step" "$DIR/here/step-000000009" --ranks 2
    [ "$status" -eq 64 ]
    run "$CKPT" reshard "$DIR/none" "$DIR/here/x" --ranks 2
    [ "$status" -eq 64 ]
    damage "$step/shard-00000-of-00001.h5" 6000000
    run "$CKPT" reshard "$step" "$DIR/here/x" --ranks 2
    [ "$status" -eq 93 ]
    [[ $output == *"tensor big damaged"* ]]
    [ -z "$(ls -A "$DIR/here")" ]
}

@test "a full disk: reshard says how much is missing" {
    mkdir "$DIR/full"
    mount -t tmpfs -o size=4m tessera-test "$DIR/full" ||
        skip "can't mount a small tmpfs"
    run "$CKPT" reshard "$ROOT/step-000000007" "$DIR/full/copy" --ranks 2
    [ "$status" -eq 75 ]
    [[ $output == *"the copy needs "*" are free: make room"* ]]
    [ -z "$(ls -A "$DIR/full")" ]
}

@test "a read-only folder: what only reads works, what writes says why not" {
    unshare -m true || skip "no mount namespaces"
    step=$ROOT/step-000000005
    touch "$step/PINNED"
    cat >"$DIR/try" <<END
mount --bind "$RUN" "$RUN" || exit 77
mount -o remount,ro,bind "$RUN" || exit 77
"$CKPT" ls "$RUN" || exit 1
"$CKPT" verify "$RUN" || exit 2
"$CKPT" prune "$RUN" --keep 1 --dry-run || exit 3
for wrong in "prune $RUN --keep 1" "pin $step" "unpin $step" \
    "reshard $step $RUN/x --ranks 2"; do
    "$CKPT" \$wrong
    [ \$? -eq 93 ] || exit 4
done
exit 0
END
    run unshare -m sh "$DIR/try"
    [ "$status" -ne 77 ] || skip "can't mount read-only"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'Read-only file system' <<<"$output")" -eq 4 ]
    [ -e "$step/PINNED" ]
}

@test "pins show in ls and outlive prune" {
    run "$CKPT" pin "$ROOT/step-000000005" --reason "best so far"
    [ "$status" -eq 0 ]
    [ "$(cat "$ROOT/step-000000005/PINNED")" = "best so far" ]
    run "$CKPT" ls "$RUN"
    [[ ${lines[1]} =~ ^5\ .*\ yes\ .*step-000000005$ ]]
    [[ ${lines[2]} =~ ^7\ .*\ -\ .*step-000000007$ ]]
    "$CKPT" prune "$RUN" --keep 1
    [ -d "$ROOT/step-000000005" ]
    "$CKPT" unpin "$ROOT/step-000000005"
    "$CKPT" prune "$RUN" --keep 1
    [ ! -e "$ROOT/step-000000005" ]
    run "$CKPT" pin "$DIR/none"
    [ "$status" -eq 64 ]
    need_python
    "$CKPT" pin "$ROOT/step-000000007" --json >"$DIR/out"
    [ "$("$CKPT" ls "$RUN" --json | json 'd[0]["pinned"]')" = True ]
}

@test "prune keeps the newest good ones, multiples and pins" {
    five_steps
    "$CKPT" pin "$ROOT/step-000000010"
    run "$CKPT" prune "$RUN" --keep 2 --dry-run
    [ "$status" -eq 0 ]
    [[ ${lines[0]} == *"step-000000020: "*"would go" ]]
    [[ ${lines[1]} == *"step-000000030: "*"would go" ]]
    [[ ${lines[2]} == "2 checkpoints, "*"would be free" ]]
    [ "$(steps)" = "10 20 30 40 50 " ]
    # a damaged one does not count
    truncate -s -1 "$ROOT/step-000000050/shard-00000-of-00001.h5"
    "$CKPT" prune "$RUN" --keep 2 --dry-run >"$DIR/out"
    grep -q 'step-000000020' "$DIR/out"
    grep -q '^1 checkpoints' "$DIR/out"
    run "$CKPT" prune "$RUN" --keep 1 --keep-every 20
    [ "$status" -eq 0 ]
    [ "$(steps)" = "10 20 40 50 " ]
    [[ ${lines[1]} == "1 checkpoints, 6."*" MiB freed" ]]
    [ -z "$(find "$ROOT" -name '.*' ! -path "$ROOT")" ]
    run "$CKPT" prune "$RUN" --keep 9
    [ "$output" = "0 checkpoints, 0 B freed" ]
}

@test "prune refuses while a live process has the run" {
    boot=$(cat /proc/sys/kernel/random/boot_id)
    sleep 600 3>&- &
    owner=$!
    start=$(sed 's/.*) //' "/proc/$owner/stat" | cut -d' ' -f20)
    printf '{"cluster": "", "host": "%s", "pid": %d, "pid_namespace": "%s",
        "start_time": %d, "boot_id": "%s", "job": 0, "attempt": 0, "beat_s": 2.0}' \
        "$(hostname)" "$owner" "$(readlink /proc/self/ns/pid)" "$start" "$boot" >"$RUN/.lock"
    run "$CKPT" prune "$RUN" --keep 1
    kill "$owner"
    wait "$owner" || true
    [ "$status" -eq 93 ]
    [[ $output == *"is training this run"* ]]
    [ -d "$ROOT/step-000000005" ]
    run "$CKPT" prune "$RUN" --keep 1
    [ "$status" -eq 0 ]
    [ ! -e "$ROOT/step-000000005" ]
    [ ! -e "$RUN/.lock" ]
}

@test "interval from numbers" {
    run "$CKPT" interval --cost 120 --mtbf 11124 --persist 120 --restart 300
    [ "$status" -eq 0 ]
    [[ $output == *"Young "*" 1633.9 s"* ]]
    [[ $output == *"Daly "*" 1554.9 s"* ]]
    [[ $output == *"exact "*" 1554.9 s"* ]]
    [[ $output == *"goodput 82.83 %"* ]]
    run "$CKPT" interval --cost 5 --mtbf 11124 --persist 1000
    [[ $output == *"recommended interval "*" 1100.0 s"*"persist time"* ]]
    run "$CKPT" interval --cost 5 --mtbf 11124 --overhead 0.001
    [[ $output == *"recommended interval "*" 5000.0 s"*"overhead"* ]]
    need_python
    "$CKPT" interval --cost 5 --mtbf 11124 --json >"$DIR/out"
    [ "$(json 'd["limit"], round(d["exact_s"]), d["steps"]' <"$DIR/out")" = \
        "('exact', 330, None)" ]
}

# Two nodes. Attempt 1 (an hour) is killed and restarted after 50 s; attempt 2
# (an hour) is stopped as planned and requeued, to start after 200 s; attempt 3
# dies unheard of after half an hour; attempt 4 fails after half an hour, which
# two events tell.
write_ledger() {
    cat >"$RUN/ledger.jsonl" <<'END'
{"event":"check","time":999.0,"attempt":0,"job":1}
{"event": "start", "time": 1000.0, "attempt": 1, "hosts": ["a", "b"]}
{"event": "commit", "time": 2000.0, "attempt": 1, "step": 1, "bytes": 9, "seconds": 4.0}
{"event": "commit", "time": 4600.0, "attempt": 1, "step": 2, "bytes": 9, "seconds": 6.0}
{"event":"restart","time":4610.000,"attempt":1,"job":1,"code":137,"reason":"x"}
{"event": "start", "time": 4660.0, "attempt": 2, "hosts": ["a", "b"]}
{"event": "commit", "time": 5000.0, "attempt": 2, "step": 3, "bytes": 9, "seconds": 5.0}
{"event": "stop", "time": 8260.0, "attempt": 2, "step": 4, "code": 85, "reason": "signal"}
{"event":"requeue","time":8261.000,"attempt":2,"job":1,"code":85,"reason":"planned"}
{"event": "start", "time": 8461.0, "attempt": 3, "hosts": ["a", "b"]}
{"event": "commit", "time": 10261.0, "attempt": 3, "step": 5, "bytes": 9, "seconds": 5.0}
{"event": "commit", "time": 10262.0, "attempt": 3, "st
[1, 2]
{"event": "start", "time": 20000.0, "attempt": 4, "hosts": ["a", "b"]}
{"event": "stop", "time": 21800.0, "attempt": 4, "step": 5, "code": 75, "reason": "peer"}
{"event":"restart","time":21801.000,"attempt":4,"job":1,"code":75,"reason":"peer"}
END
}

@test "interval from a run's ledger" {
    run "$CKPT" interval "$RUN"
    [ "$status" -eq 93 ]
    [[ $output == *"ledger.jsonl: no such file"* ]]
    need_python
    write_ledger
    for i in 1 2 3 4 5; do
        echo "{\"attempt\": 1, \"step\": $i, \"step_ms\": ${i}000.0}"
    done >"$RUN/metrics.jsonl"
    printf '{"attempt": 1, "st' >>"$RUN/metrics.jsonl"
    run "$CKPT" interval "$RUN"
    [ "$status" -eq 0 ]
    [[ ${lines[0]} == "ledger: 4 attempts, 3 failures, 4 commits, 6 node-hours, 2 nodes" ]]
    # (6000 + 6)/(1 + 3) hours for a node, half of it for two
    "$CKPT" interval "$RUN" --json >"$DIR/out"
    [ "$(json 'd["cost_s"], d["mtbf_s"], d["restart_s"], d["ledger"]["step_s"]' \
        <"$DIR/out")" = "(5.0, 2702700.0, 125.0, 3.0)" ]
    [ "$(json 'd["steps"] == -(-d["exact_s"] // 3)' <"$DIR/out")" = True ]
    run "$CKPT" interval "$RUN" --cost 120 --mtbf 11124 --restart 300
    [[ $output == *"1554.9 s"* ]]
    "$CKPT" interval "$RUN" --prior-hours 2 --json >"$DIR/out"
    [ "$(json 'd["mtbf_s"]' <"$DIR/out")" = 3600.0 ]
    echo '{"event": "start", "time": 1.0, "hosts": ["a"]}' >"$RUN/ledger.jsonl"
    run "$CKPT" interval "$RUN"
    [ "$status" -eq 93 ]
    [[ $output == *"no commit"*"--cost"* ]]
    rm "$RUN/metrics.jsonl"
    run "$CKPT" interval "$RUN" --cost 3
    [ "$status" -eq 0 ]
    [[ $output != *"checkpoint.interval"* ]]
}

@test "every command has JSON" {
    need_python
    step=$ROOT/step-000000007
    for command in "ls $RUN" "show $step" "verify $step" "digest $step" \
        "diff $step $step" "reshard $step $DIR/x --ranks 2" "pin $step" \
        "unpin $step" "prune $RUN --keep 9" "interval --cost 1 --mtbf 99"; do
        # shellcheck disable=SC2086
        "$CKPT" $command --json | json 1
    done
}
