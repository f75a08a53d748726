#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2317 # what the parts need
# What of the launch script needs no cluster: how long it checks nodes, what it
# makes of Slurm's words; and how whole jobs end, with stand-ins for Slurm's
# commands and the training.

teardown() {
    ! mountpoint -q "$T/run" || umount -l "$T/run"
}

setup() {
    unset TESSERA_CHECK_S SLURM_GPUS_ON_NODE SLURM_ARRAY_JOB_ID TESSERA_STOP
    JOBS=$BATS_TEST_DIRNAME/../jobs T=$BATS_TEST_TMPDIR
    job=7 controller_s=3
    say() { echo "$*" >&2; }
    die() { say "${@:2}"; exit "$1"; }
    # shellcheck source=jobs/lib/slurm.sh
    . "$BATS_TEST_DIRNAME/../jobs/lib/slurm.sh"
    # shellcheck source=jobs/lib/shape.sh
    . "$BATS_TEST_DIRNAME/../jobs/lib/shape.sh"
    slurm_stand_ins
}

@test "a node is checked for a minute, longer for GPUs, or as the user sets" {
    [ "$(check_seconds)" = 60 ]
    [ "$(SLURM_GPUS_ON_NODE=8 check_seconds)" = 140 ]
    [ "$(SLURM_GPUS_ON_NODE=8 TESSERA_CHECK_S=5 check_seconds)" = 5 ]
    [ "$(SLURM_GPUS_ON_NODE=8 TESSERA_CHECK_S=0 check_seconds)" = 0 ]
}

@test "states of nodes, as several versions of Slurm print them" {
    usable=$(usable_states <<'END' | xargs
a1 ALLOCATED
a2 MIXED+POWER_DOWN
a3 MIXED+COMPLETING
a4 IDLE+CLOUD+POWERING_UP
a5 ALLOCATED+REBOOT_REQUESTED
b1 DOWN
b2 DOWN*
b3 IDLE+NOT_RESPONDING
b4 IDLE*
b5 MIXED+FAIL
b6 ALLOCATED+DRAIN
b7 DOWN+NOT_RESPONDING
b8 IDLE+CLOUD+POWERED_DOWN
END
    )
    echo "$usable"
    [ "$usable" = "a1 a2 a3 a4 a5" ]
}

@test "a list of thousands of nodes is short enough for an argument" {
    [ "$(join a b)" = a,b ]
    command -v scontrol >/dev/null || skip "there is no Slurm"
    printf 'ClusterName=x\nSlurmctldHost=localhost\nNodeName=x\n' >"$T/slurm.conf"
    mapfile -t nodes < <(seq -f 'node%05g' 1 16384)
    [ "$(SLURM_CONF=$T/slurm.conf join "${nodes[@]}")" = 'node[00001-16384]' ]
}

@test "nodes, a job and MPI, as three versions of Slurm print them" {
    for recorded in "$BATS_TEST_DIRNAME"/data/slurm/*; do
        ask() { cat "$recorded/nodes"; }
        [ "$(nodes_usable n1 | xargs)" = "n1 n2 n8 n9" ]
        [ "$(field JobState "$(cat "$recorded/job")")" = PENDING ]
        [ "$(field ExcNodeList "$(cat "$recorded/job")")" = "n[1-2]" ]
        [ -z "$(hostnames "$(field NodeList "$(cat "$recorded/job")")")" ]
        srun() { cat "$recorded/mpi"; }
        pick_mpi
        [ "$mpi" = pmix ]
    done
}

@test "ranks of a node from what sbatch was told" {
    [ "$(SLURM_NTASKS_PER_NODE=4 SLURM_TASKS_PER_NODE='4(x3)' task_count)" = 4 ]
    [ "$(SLURM_NTASKS=2 SLURM_TASKS_PER_NODE=2 task_count)" = 2 ]
    [ "$(SLURM_NTASKS=6 SLURM_TASKS_PER_NODE='2(x3)' task_count)" = 2 ]
    # no number was given: one per processor is nobody's wish
    [ "$(SLURM_TASKS_PER_NODE='64(x3)' task_count)" = 1 ]
    run env SLURM_NTASKS=5 SLURM_TASKS_PER_NODE='2(x2),1' bash -c \
        "$(declare -f say die task_count); task_count"
    [ "$status" -eq 64 ]
}

@test "the GPUs of a node are for all its ranks, whatever binds them" {
    SLURM_GPUS_ON_NODE=4 SLURM_GPUS_PER_TASK=1 SLURM_NTASKS_PER_GPU=1
    SLURM_GPU_BIND=single:1 SLURM_GPUS=8
    export SLURM_GPUS SLURM_GPUS_PER_TASK SLURM_NTASKS_PER_GPU SLURM_GPU_BIND
    tasks_per_node=4
    unset SLURM_DISTRIBUTION
    share_gpus
    [ "$(env | grep -E '^SLURM_(GPU|NTASKS_PER_GPU|DIST)' | sort | xargs)" = \
        "SLURM_DISTRIBUTION=block:block SLURM_GPUS_PER_NODE=4" ]
    tasks_per_node=2
    TESSERA_GPUS=any share_gpus
    run share_gpus
    [ "$status" -eq 64 ]
}

@test "processors of a rank: its share of the smallest node" {
    unset OMP_NUM_THREADS SLURM_CPUS_PER_TASK
    SLURM_JOB_CPUS_PER_NODE='64(x2),32' tasks_per_node=8
    share_cpus
    [ "$cpus_per_task" = 4 ]
    [ "$OMP_NUM_THREADS" = 4 ]
    SLURM_CPUS_PER_TASK=6
    share_cpus
    [ "$cpus_per_task" = 6 ]
}

@test "a controller that does not answer is no answer" {
    for text in 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' \
        'slurm_load_jobs error: Socket timed out on send/recv operation' \
        'slurm_load_jobs error: Zero Bytes were transmitted or received' \
        'slurm_load_jobs error: Slurm backup controller in standby mode' \
        'scontrol: error: Munge encode failed: Invalid credential' '' \
        'scontrol: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: No such file or directory' \
        'scontrol: error: resolve_ctls_from_dns_srv: Host not found'; do
        unanswered "$text"
    done
    for text in 'slurm_load_jobs error: Invalid job id specified' \
        'Requested operation is presently disabled for job 2' \
        'Access/permission denied for job 2' \
        'Job/step already completing or completed for job 2' \
        'Node n99 not found'; do
        ! unanswered "$text" || false
    done
}

@test "no answer is waited for, with an end" {
    silent() { # fails as many times as the file says
        left=$(($(cat "$BATS_TEST_TMPDIR/left") - 1))
        echo $left >"$BATS_TEST_TMPDIR/left"
        [ "$left" -lt 0 ] && echo "State=FINE" && return
        echo "Unable to contact slurm controller" && return 1
    }
    timeout() { "${@:3}"; }
    echo 1 >"$BATS_TEST_TMPDIR/left"
    [ "$(ask silent 2>/dev/null)" = "State=FINE" ]
    echo 9 >"$BATS_TEST_TMPDIR/left"
    run ask silent
    [ "$status" -eq 2 ]
    [[ $output == *"Slurm has not answered for 3 s"* ]]
}

@test "a command of Slurm that cannot be started is no answer" {
    controller_s=0
    run ask "$BATS_TEST_TMPDIR/none/scontrol"
    [ "$status" -eq 2 ]
    echo true >"$BATS_TEST_TMPDIR/scontrol"
    run ask "$BATS_TEST_TMPDIR/scontrol" # Permission denied
    [ "$status" -eq 2 ]
}

# What in a job's environment would lead Slurm's commands elsewhere, or have
# them answer otherwise.
MISLEADS='SLURM_CLUSTERS|SLURM_TIME_FORMAT|SQUEUE_STATES|SQUEUE_USERS'
MISLEADS+='|SQUEUE_FORMAT|SCONTROL_FEDERATION|SCANCEL_STATE|SCANCEL_NAME'
MISLEADS+='|SLURM_HOSTFILE|SLURM_STDOUTMODE|SLURM_TIMELIMIT|SLURM_EXPORT_ENV'

# stand_in NAME: a program of that name, with the script on stdin
stand_in() {
    { echo '#!/bin/bash'; echo "T='$T'"
        echo "env | grep -E '^($MISLEADS)=' >>'$T/misled'"; cat; } >"$T/bin/$1"
    chmod 755 "$T/bin/$1"
}

# A job 7 on the nodes of $T/nodes, n1 alone at first, whose checks say what is in
# $T/verdict.NODE and $T/pairs. Its states are the words of $T/states, one for each time
# that Slurm is asked; the last one stays. $T/step is the training step.
slurm_stand_ins() {
    mkdir -p "$T/bin" "$T/run"
    echo RUNNING >"$T/states"
    echo n1 >"$T/nodes"
    echo 'exit 85' >"$T/step"
    stand_in scontrol <<'END'
case "$*" in
*"show job"*)
    read -r state rest <"$T/states"
    [ -z "$rest" ] || echo "$rest" >"$T/states"
    echo "JobId=7 JobState=$state Restarts=$(cat "$T/restarts" 2>/dev/null) Requeue=1 NodeList=$(cat "$T/nodes") ExcNodeList=$(cat "$T/kept_off" 2>/dev/null) BatchHost=n0 End"
    ;;
*ExcNodeList=*)
    [ ! -e "$T/shrunk" ] || exec sleep 300
    [[ "$*" =~ ExcNodeList=(.*) ]] && echo "${BASH_REMATCH[1]}" >"$T/kept_off"
    ;;
*hostnames*) tr , '\n' <<<"$3" ;;
*"show node"*)
    for node in $(tr , ' ' <"$T/nodes"); do
        echo "NodeName=$node Arch=x NodeAddr=127.0.0.1 NodeHostName=$node State=ALLOCATED End"
    done
    ;;
requeue*)
    [ ! -e "$T/refusal" ] || { cat "$T/refusal"; exit 1; }
    touch "$T/requeued"
    ;;
esac
END
    stand_in srun <<'END'
case "$*" in
--version) echo "slurm 22.05.8" ;;
--mpi=list) printf 'MPI plugin types are...\n\tpmix\n' ;;
*--job-name=train*)
    echo "$SLURM_JOB_NODELIST" >"$T/listed"
    . "$T/step"
    ;;
*--job-name=health*)
    for node in $(tr , ' ' <"$T/nodes"); do
        cat "$T/verdict.$node" 2>/dev/null >"${@: -3:1}/$node.json" ||
            echo '{"host":"'$node'","verdict":"ok"}' >"${@: -3:1}/$node.json"
    done
    ;;
*--job-name=pairs*)
    [ ! -e "$T/pairs" ] || [[ ! "$*" =~ --output=([^ ]*) ]] ||
        cp "$T/pairs" "${BASH_REMATCH[1]}"
    ;;
esac
END
    stand_in squeue <<'END'
cat "$T/steps" 2>/dev/null
END
    stand_in scancel <<'END'
echo "$*" >>"$T/cancelled"
END
    stand_in tessera-train <<'END'
[[ "$1 $2" != "--print run.dir"* ]] || echo "$T/run"
END
    ln -s "$(readlink -f "$JOBS/launch")" "$T/bin/tessera-launch"
    ln -s "$(readlink -f "${TESSERA_BIN:-$JOBS/../build/bin}")"/tessera-{ckpt,health} "$T/bin"
    touch "$T/run.cfg"
}

# launch: the job, from its beginning to its end
launch() {
    PATH=$T/bin:$PATH SLURM_JOB_ID=7 TESSERA_CHECK_S=${check_s:-0} \
        TESSERA_CONTROLLER_S=${wait_s:-0} timeout -k 1 400 "$T/bin/tessera-launch" "$T/run.cfg"
}

# launch_is CODE: how it ends
launch_is() {
    run launch
    echo "$output"
    [ "$status" -eq "$1" ]
}

@test "a job on request: requeued, with a line in the ledger" {
    launch_is 85
    [ -e "$T/requeued" ]
    [[ $output != *"cannot be requeued"* ]]
    [ "$(jq -r .event "$T/run/ledger.jsonl" | xargs)" = requeue ]
    # by what it was decided
    [[ $(cat "$T/run/health/decisions") == ended=itself*code=85*state=RUNNING*"-> requeue 85 checkpointed on request"* ]]
    # and nothing more once Slurm has done it
    [ "$(wc -l <"$T/run/health/decisions")" -eq 1 ]
    [[ $output != *"cannot be requeued"* ]]
}

# Seconds between attempts pass at once, and are counted in $T/slept.
short_pauses() {
    echo 'echo "$1" >>"$T/slept"; [ "$1" = 1 ] || exec /bin/sleep "$1"' | stand_in sleep
}

# slow_job ACTION: the first attempt ends by it, for node n2, the second by a signal
slow_job() {
    echo n1,n2,n3 >"$T/nodes"
    cat >"$T/step" <<END
[[ "\$*" =~ --nodelist=([^ ]+) ]]
echo "\${BASH_REMATCH[1]} spare \$TESSERA_SPARE_NODES" >>"$T/tried"
at=\$(wc -l <"$T/tried")
mkdir -p "$T/run/checkpoints/step-00000000\$at"
echo "{}" >"$T/run/checkpoints/step-00000000\$at/MANIFEST.json"
cat >>"$T/run/ledger.jsonl" <<LINES
{"event":"start","time":\$EPOCHSECONDS,"attempt":\$at,"job":7}
{"event":"slow","time":\$EPOCHSECONDS,"attempt":\$at,"node":"n2.x","action":"\$([ "\$at" -gt 1 ] && echo warn || echo $1)"}
{"event":"stop","time":\$EPOCHSECONDS,"attempt":\$at,"step":\$at,"code":85,"reason":"x"}
LINES
exit 85
END
    printf '#!/bin/bash\necho "$1 $4" >>%q\n' "$T/told" >"$T/tell"
    chmod 755 "$T/tell"
    check_s=5 TESSERA_NOTIFY=$T/tell TESSERA_SPARES=1 launch_is 85
    [ -e "$T/requeued" ]
    jq -c 'select(.event == "restart") | [.code, .progress]' "$T/run/ledger.jsonl" | grep -xF '[85,true]'
    [ "$("$T/bin/tessera-ckpt" ledger "$T/run" --job 7 | grep futile)" = "futile 0" ]
}

phases() {
    jq -r 'select(.event == "check") | .phase' "$T/run/ledger.jsonl" | xargs
}

@test "a slow node that the run has left stands last in the next attempt" {
    slow_job replace
    [ "$(cat "$T/tried")" = "n1,n2 spare 1"$'\n'"n1,n3 spare 0" ]
    head -n 1 "$T/told" | grep -x 'restart going on: checkpointed to leave the slow node n2.x'
    [ "$(phases)" = "job quick" ]
}

@test "a slow run has the whole check of its nodes before it goes on" {
    slow_job sweep
    [ "$(cat "$T/tried")" = "n1,n2 spare 1"$'\n'"n1,n2 spare 1" ]
    head -n 1 "$T/told" | grep -x 'restart going on: checkpointed to have all nodes checked'
    [ "$(phases)" = "job job" ]
}

@test "ranks that have lost each other are not waited for as long as Slurm waits" {
    # the step would last until KillWait; the second attempt is asked to stop
    cat >"$T/step" <<'END'
[ ! -e "$T/again" ] || exit 85
touch "$T/again"
cat >>"$T/run/ledger.jsonl" <<'LINES'
{"event":"start","time":1.0,"attempt":1,"job":7}
{"event":"stop","time":2.0,"attempt":1,"code":75,"reason":"no answer","apart":true}
LINES
mkdir -p "$T/run/reasons"
echo "75 comm n1: no answer from rank 1 (n2)" >"$T/run/reasons/attempt-0001.rank-0000"
exec sleep 300
END
    begin=$SECONDS
    launch_is 85
    [ $((SECONDS - begin)) -lt 250 ]
    [[ $output == *"its ranks have left"*"attempt 1 ended with code 75"*"going on: comm n1: no answer from rank 1 (n2)"* ]]
}

# gone NODE: does not answer on the network; "" at first: nobody.
gone() {
    if [ ! -e "$T/gone" ]; then
        real=$(readlink -f "$T/bin/tessera-ckpt")
        rm "$T/bin/tessera-ckpt"
        stand_in tessera-ckpt <<END
[ "\$1" = reach ] || exec $real "\$@"
while read -r node _; do
    grep -qx "\$node" "$T/gone" && echo "\$node silent" || echo "\$node here"
done
END
    fi
    echo "$1" >"$T/gone"
}

@test "a node that is cut off is missed by a start that drags, and not asked by the next check" {
    echo n1,n2,n3 >"$T/nodes"
    gone ""
    cat >"$T/step" <<'END'
[[ "$*" =~ --nodelist=([^ ]+) ]]
echo "${BASH_REMATCH[1]}" >>"$T/tried"
case $(wc -l <"$T/tried") in
1)
    echo "{\"event\":\"start\",\"time\":$EPOCHREALTIME,\"attempt\":1,\"job\":7}" >>"$T/run/ledger.jsonl"
    echo n2 >"$T/gone"
    exit 137
    ;;
2)
    echo n3 >"$T/gone"
    exec sleep 300
    ;;
esac
exit 85
END
    begin=$SECONDS
    check_s=5 TESSERA_NODES=2 launch_is 85
    [ $((SECONDS - begin)) -lt 120 ]
    echo "$output"
    # n2 is suspect, and not asked before others are wanting
    [[ $output == *"going on: lost node n2"*"attempt 2 on n1,n3,"*"lost n3: ending the attempt"*"no answer on the network: n3"*"on n1,n2,"* ]]
    [ "$(xargs <"$T/tried")" = "n1,n2 n1,n3 n1,n2" ]
    jq -es 'all(.[]; .event != "restart" or .progress == null)' "$T/run/ledger.jsonl"
}

@test "where nodes are not checked, one that is gone is left out all the same" {
    echo n1,n2,n3 >"$T/nodes"
    gone ""
    cat >"$T/step" <<'END'
[[ "$*" =~ --nodelist=([^ ]+) ]]
echo "${BASH_REMATCH[1]}" >>"$T/tried"
echo n2 >"$T/gone"
[ "$(wc -l <"$T/tried")" -gt 1 ] || exit 137
exit 85
END
    TESSERA_CHECK_S=0 TESSERA_NODES=2 launch_is 85
    echo "$output"
    [ "$(xargs <"$T/tried")" = "n1,n2 n1,n3" ]
}

@test "a node that never answered is not judged, and silent ones are waited for where nodes are wanting" {
    echo n1,n2 >"$T/nodes"
    gone n2
    cat >"$T/step" <<'END'
echo "$*" >>"$T/tried"
[ "$(wc -l <"$T/tried")" -eq 1 ] || exit 85
echo "{\"event\":\"start\",\"time\":$EPOCHREALTIME,\"attempt\":1,\"job\":7}" >>"$T/run/ledger.jsonl"
echo n1 >"$T/gone"
(sleep 8; echo >"$T/gone") >/dev/null 2>&1 3>&- &
exit 75
END
    check_s=5 launch_is 85
    echo "$output"
    [[ $output == *"attempt 1 on n1,n2,"*"no answer on the network: n1"*" on n1,n2,"* ]]
    [[ $output != *"good nodes"* ]]
}

@test "nodes that are lost one after the other are no attempts in vain" {
    cat >"$T/step" <<'END'
echo >>"$T/tried"
at=$(wc -l <"$T/tried")
echo "{\"event\":\"start\",\"time\":1.0,\"attempt\":$at,\"job\":7}" >>"$T/run/ledger.jsonl"
mkdir -p "$T/run/reasons"
[ "$at" -lt 5 ] || exit 85
echo "75 comm n1: no answer for 2 s from rank 1 (m$at)" >"$T/run/reasons/attempt-000$at.rank-0000"
# the rank of the last one has died, which a run may do each time
[ "$at" -lt 4 ] ||
    echo "75 comm m4: task 1 was ended by signal 9 (KILL)" >"$T/run/reasons/attempt-0004.rank-0001.task"
exit 137
END
    launch_is 85
    [ "$(jq -c 'select(.event == "restart") | [.code, .progress, .silent]' "$T/run/ledger.jsonl" | xargs)" = \
        "[75,null,m1] [75,null,m2] [75,null,m3] [75,false,null]" ]
}

@test "what ranks that never began have said does not end those that begin in their place" {
    short_pauses
    # a start that fails in MPI_Init: the next one has its number
    cat >"$T/step" <<'END'
mkdir -p "$T/run/reasons"
if [ ! -e "$T/again" ]; then
    touch "$T/again"
    echo "75 comm n1: task 0 was ended by signal 11 (SEGV)" >"$T/run/reasons/attempt-0001.rank-0000.task"
    mkdir "$T/run/reasons/attempt-0001.ended"
    exit 137
fi
ls "$T/run/reasons" >"$T/old"
echo '{"event":"start","time":1.0,"attempt":1,"job":7}' >>"$T/run/ledger.jsonl"
sleep 3
exit 85
END
    launch_is 85
    [[ $output == *"going on in 10 s: killed (SIGKILL): out of memory? before the run was opened"* ]]
    [[ $output != *"its ranks have left"* && $output != *SEGV* ]]
    [ "$(jq -r .event "$T/run/ledger.jsonl" | xargs)" = "restart start requeue" ]
    [ ! -s "$T/old" ]
}

@test "a rank that does not leave when the run is finished costs no attempt" {
    cat >"$T/step" <<'END'
cat >>"$T/run/ledger.jsonl" <<'LINES'
{"event":"start","time":1.0,"attempt":1,"job":7}
{"event":"stop","time":2.0,"attempt":1,"step":6,"code":CODE,"reason":"done","apart":false}
LINES
[ ! -e "$T/saved" ] || mkdir -p "$T/run/checkpoints/step-000000006"
[ ! -e "$T/saved" ] || echo "{}" >"$T/run/checkpoints/step-000000006/MANIFEST.json"
exit 137
END
    # not where the last step is not saved
    sed -i 's/CODE/0/' "$T/step"
    launch_is 93
    rm -rf "${T:?}/run"/*
    touch "$T/saved"
    launch_is 0
    [[ $output == *"attempt 1 ended with code 137"* ]]
    rm -rf "${T:?}/run"/*
    sed -i 's/"code":0/"code":85/' "$T/step"
    launch_is 85
}

@test "who is to be told hears of each restart, requeue, give-up and finish" {
    printf '#!/bin/bash\nprintf "[%%s]" "$@" >>%q; echo >>%q\n' "$T/told" "$T/told" >"$T/tell"
    chmod 755 "$T/tell"
    export TESSERA_NOTIFY=$T/tell
    launch_is 85
    rm -rf "$T/run/"*
    echo 'echo >>"$T/attempts"; [ "$(wc -l <"$T/attempts")" -lt 3 ] && exit 1; exit 0' >"$T/step"
    launch_is 0
    rm -rf "$T/run/"*
    echo 'exit 1' >"$T/step"
    launch_is 93
    cat "$T/told"
    grep -F "[requeue][$T/run][7][requeueing: checkpointed on request" "$T/told"
    [ "$(cut -d']' -f1 "$T/told" | xargs)" = "[requeue [restart [restart [finish [restart [restart [give-up" ]
    TESSERA_NOTIFY=$T/nothing launch_is 93
    [[ $output == *"TESSERA_NOTIFY $T/nothing failed (code 127), nobody was told of give-up"* ]]
}

# refused WORDS [key=value ...]: the job ends at once, and says so
refused() {
    run env PATH="$T/bin:$PATH" SLURM_JOB_ID=7 TESSERA_CHECK_S=0 timeout -k 1 ${guard_s:-100} \
        "$T/bin/tessera-launch" "$conf" "${@:2}"
    echo "$output"
    [ "$status" -eq 64 ]
    [[ $output == *"$1"* ]]
    [ ! -e "$T/executed" ]
}

@test "what cannot be meant of run.dir and run.mode ends a job with 64" {
    ln -sf "$(readlink -f "$JOBS/../build/bin/tessera-train")" "$T/bin/tessera-train"
    conf=$JOBS/conf/lora-smollm2.cfg
    refused 'run.mode = "rwx"' run.mode=rwx
    refused 'run.mode = "a[$(touch executed)]"' 'run.mode=a[$(touch executed)]'
    refused 'run.dir is empty' run.dir=
    refused "unknown setting 'run.dri'" run.dri=x
}

@test "what a program says of a run is looked at before it is used" {
    conf=$T/run.cfg
    stand_in tessera-train <<<'echo'
    refused 'run.dir= '
    stand_in tessera-train <<<'echo "$T/run"; echo; echo "a[\$(touch $T/executed)]"'
    refused 'run.mode=a['
    stand_in tessera-train <<<'echo "$T/run"; echo here'
    refused 'checkpoint.local_dir=here'
}

@test "a run that has seen STOP before its launch script did is not requeued" {
    echo 'touch "$T/run/STOP"; exit 85' >"$T/step"
    run launch
    echo "$output"
    [ ! -e "$T/requeued" ]
    [[ $output == *"/STOP: remove it to go on"* ]]
}

@test "a node with a warning waits in reserve, and that is said" {
    echo n1,n2,n3,n4 >"$T/nodes"
    echo 'exit 0' >"$T/step"
    echo '{"host":"n1","verdict":"warn","code":"MEM_LOW","reason":"tessera: MEM_LOW x"}' \
        >"$T/verdict.n1"
    printf '{"host":"n%d","verdict":"%s","code":"PAIR_SLOW","reason":"0.02 GB/s"}\n' \
        1 ok 2 ok 3 warn 4 ok >"$T/pairs"
    check_s=5 TESSERA_NODES=3 launch_is 0
    [[ $output == *"attempt 1 on n2,n4,n1, 1 in reserve"* ]]
    # as Slurm orders them, and no others
    [ "$(cat "$T/listed")" = n1,n2,n4 ]
    [[ $output == *"node n3, a warning: PAIR_SLOW: 0.02 GB/s"* ]]
    [ "$(jq -r 'select(.event == "node-warning") | .node + " " + .code' \
        "$T/run/ledger.jsonl" | xargs)" = "n1 MEM_LOW n3 PAIR_SLOW" ]
}

@test "a job is kept off the nodes that it found bad, and none of it is in vain" {
    echo n1,n2 >"$T/nodes"
    echo n9 >"$T/kept_off" # by the user
    echo '{"host":"n2","verdict":"bad","code":"GEMM_WRONG","reason":"x"}' >"$T/verdict.n2"
    export check_s=5 TESSERA_NODES=2
    launch_is 85
    [ "$(cat "$T/kept_off")" = n9,n2 ]
    [[ $output == *"kept off n2, bad within the last day"* ]]
    # elsewhere, where another one is bad
    echo n1,n3 >"$T/nodes"
    mv "$T/verdict.n2" "$T/verdict.n3"
    sed -i s/n2/n3/ "$T/verdict.n3"
    launch_is 85
    [ "$(cat "$T/kept_off")" = n9,n2,n3 ]
    [ "$(jq -r 'select(.event == "requeue").progress' "$T/run/ledger.jsonl" | xargs)" = \
        "null null" ]
    # what was long ago is forgotten, and not what the user said
    sed -i '/"node":"n2"/s/"time":[0-9.]*/"time":1/' "$T/run/ledger.jsonl"
    echo n1,n4 >"$T/nodes"
    mv "$T/verdict.n3" "$T/verdict.n4"
    sed -i s/n3/n4/ "$T/verdict.n4"
    launch_is 85
    [ "$(cat "$T/kept_off")" = n9,n3,n4 ]
    # where Slurm gives them all the same it is, for the third time
    launch_is 85
    launch_is 85
    launch_is 93
    [[ $output == *"given up: 3 attempts in a row"*"1 good nodes, 2 needed"* ]]
}

@test "a node is given back when the job goes on; when it does not, all are" {
    echo n1,n2 >"$T/nodes"
    echo 'exit 0' >"$T/step"
    echo '{"host":"n2","verdict":"bad","code":"GEMM_WRONG","reason":"x"}' >"$T/verdict.n2"
    export check_s=5
    TESSERA_NODES=2 launch_is 85
    [[ $output != *"gave back"* ]]
    TESSERA_NODES=1 launch_is 0
    [[ $output == *"gave back n2"* ]]
}

@test "while a job that was shrunk ends, slurmctld's answer is not waited for" {
    touch "$T/shrunk"
    echo n1,n2 >"$T/nodes"
    echo '{"host":"n2","verdict":"bad","code":"GEMM_WRONG","reason":"x"}' >"$T/verdict.n2"
    begin=$SECONDS
    check_s=5 TESSERA_NODES=2 launch_is 85
    [[ $output == *"asked to be kept off n2, bad within the last day"* ]]
    [ $((SECONDS - begin)) -lt 250 ] # when it would come
}

@test "the site's settings are read as words, as root reads them" {
    mkdir -p "$T/t/libexec/tessera" "$T/t/etc" "$T/spool"
    cp -r "$JOBS/launch" "$JOBS/lib" "$T/t/libexec/tessera"
    ln -sf "$T/t/libexec/tessera/launch" "$T/bin/tessera-launch"
    printf '#!/bin/sh\ntouch "%s"\n' "$T/executed" >"$T/program"
    chmod 755 "$T/program"
    cat >"$T/t/etc/tessera.conf" <<END
TESSERA_CLEAN=/dev/shm $T/program
$T/program
  TESSERA_SPOOL="$T/spool" # of the site
END
    echo n1,n2 >"$T/nodes"
    echo 'exit 0' >"$T/step"
    echo '{"host":"n2","verdict":"bad","code":"SHM_FULL","reason":"x"}' >"$T/verdict.n2"
    check_s=5 TESSERA_NODES=1 launch_is 0
    [ ! -e "$T/executed" ]
    grep SHM_FULL "$T/spool/verdict.7.n2"
    rm -r "$T/spool/"*
    TESSERA_SPOOL='' check_s=5 TESSERA_NODES=1 run launch
    [ -z "$(ls -A "$T/spool")" ]
}

@test "variables of the user's lead no command of Slurm elsewhere" {
    echo 'exit 0' >"$T/step"
    for name in ${MISLEADS//|/ }; do
        export "$name=other"
    done
    check_s=5 launch_is 0
    cat "$T/misled"
    [ -e "$T/misled" ] && [ ! -s "$T/misled" ]
}

@test "a job cancelled in the last moment is not requeued" {
    echo "RUNNING RUNNING RUNNING CANCELLED" >"$T/states"
    launch_is 75
    [ ! -e "$T/requeued" ]
    [[ $output == *"job is CANCELLED"* ]]
    ! grep '"event":"requeue"' "$T/run/ledger.jsonl" || false
    # nor for want of nodes
    echo "RUNNING RUNNING CANCELLED" >"$T/states"
    export TESSERA_NODES_MIN=2
    launch_is 75
    [ ! -e "$T/requeued" ]
}

@test "a ledger that cannot be written: neither begun again nor requeued" {
    mkdir "$T/run/ledger.jsonl"
    for code in 1 85; do
        echo "exit $code" >"$T/step"
        launch_is 75
        [ ! -e "$T/requeued" ]
        [[ $output == *"ledger.jsonl cannot be written"* ]]
        [ "$(grep -c 'attempt 1 on' <<<"$output")" -eq 1 ]
    done
}

@test "three attempts in vain are counted without the ledger, too" {
    # somebody removes it again and again
    echo 'rm -f "$T/run/ledger.jsonl"; exit 1' >"$T/step"
    short_pauses
    launch_is 93
    [[ $output == *"given up: 3 attempts in a row"* ]]
    # what keeps ranks from beginning may pass by
    [ "$(grep -cx 1 "$T/slept")" -ge 50 ]
    [[ $output == *"going on in 10 s: "*"going on in 40 s: "* ]]
}

@test "a pause before the next attempt ends when the job is asked to stop" {
    echo 'exit 1' >"$T/step"
    echo '[ "$1" = 1 ] || exec /bin/sleep "$1"; echo x >>"$T/slept"
        [ "$(wc -l <"$T/slept")" -ne 3 ] || kill -USR1 $PPID' | stand_in sleep
    launch_is 85
    [ "$(wc -l <"$T/slept")" -eq 3 ]
    [ -e "$T/requeued" ]
}

@test "a full file system is waited for, and ends no attempt in vain" {
    mount -t tmpfs -o size=256k tmpfs "$T/run" || skip "can't mount a small tmpfs"
    cat >"$T/step" <<'END'
echo >>"$T/attempts"
[ "$(wc -l <"$T/attempts")" -lt 5 ] || exit 0
head -c 1M /dev/zero >"$T/run/ballast" 2>/dev/null
exit 75
END
    # the first pause of those who wait for room
    stand_in sleep <<'END'
[ "$1" != 5 ] || rm "$T/run/ballast"
exec /bin/sleep 0.1
END
    wait_s=60 launch_is 0
    cat "$T/run/ledger.jsonl"
    [ "$(grep -c '"event":"restart".*"progress":null' "$T/run/ledger.jsonl")" -eq 4 ]
    [ "$(grep -c 'there is room again' <<<"$output")" -eq 4 ]
    # but not for ever, and nobody gives the run up for it
    rm "$T/attempts"
    launch_is 75
    head -c 1M /dev/zero >"$T/run/ballast" 2>/dev/null || true
    launch_is 75
    [[ $output == *"no room for $T/run"* ]]
}

@test "asked to stop before the start, for the third time: given up" {
    export TESSERA_STOP=USR1
    launch_is 85
    launch_is 85
    launch_is 93
    [[ $output == *"3 times in a row"*"--time"*"--signal"* ]]
    # somebody has looked
    launch_is 85
    # an attempt in between, and a preemption, do not count
    echo '{"event":"start","attempt":1,"job":7}' >>"$T/run/ledger.jsonl"
    for time in 1 2; do
        launch_is 85
        TESSERA_STOP=TERM launch_is 85
    done
    launch_is 93
}

@test "the signal that comes while the module is loaded is passed on" {
    rm "$T/bin/tessera-launch"
    stand_in tessera-launch <<'END'
echo "stop: $TESSERA_STOP"
END
    module() { [ "$1" = unload ] || kill -USR1 $$; }
    export -f module
    PATH=$T/bin:$PATH run bash "$JOBS/pretrain.sbatch" run.cfg
    [ "$status" -eq 0 ]
    [ "$output" = "stop: USR1" ]
}

@test "an end before the first attempt stands in the ledger" {
    export TESSERA_NODES=none
    launch_is 64
    grep '"event":"stop".*"code":64.*TESSERA_NODES' "$T/run/ledger.jsonl"
    unset TESSERA_NODES
    stand_in scontrol <<'END'
echo "Invalid job id specified"
exit 1
END
    launch_is 75
    grep '"event":"stop".*"code":75.*what job 7 was given' "$T/run/ledger.jsonl"
}

@test "a TMPDIR that is not on this node: /tmp instead, and said" {
    TMPDIR=$T/none launch_is 85
    [[ $output == *"TMPDIR=$T/none"*"/tmp"* ]]
}

@test "checks of old jobs that cannot be removed: said, and it goes on" {
    mkdir -p "$T/run/health/"{1..25}
    stand_in rm <<'END'
[ "$1" != -rf ] || exit 1
exec /bin/rm "$@"
END
    check_s=5 launch_is 85
    grep '"event":"check".*"good":1' "$T/run/ledger.jsonl"
    [[ $output == *"/health: cannot remove"* ]]
}

@test "the checks of old jobs go, whatever the run's name" {
    # shellcheck source=jobs/lib/nodes.sh
    . "$JOBS/lib/nodes.sh"
    run_dir=$T/$'two\nlines'
    mkdir -p "$run_dir/health/"{1..25} "$run_dir/health/new"
    touch -d "1 hour ago" "$run_dir/health/"{1..25}
    run remove_old_checks
    [ "$status" -eq 0 ]
    [ "$(find "$run_dir/health" -mindepth 1 -maxdepth 1 -printf x | wc -c)" -eq 20 ]
    [ -e "$run_dir/health/new" ]
}

@test "a guard is ended with its step" {
    # shellcheck source=jobs/lib/nodes.sh
    . "$JOBS/lib/nodes.sh"
    PATH=$T/bin:$PATH
    printf '7.1 guard-1\n7.2 train-1\n7.3 guard-2\n' >"$T/steps"
    sleep 60 3>&- &
    guard_pid=$! guard_name=guard-2
    ended=$guard_pid
    end_guard || true # set -e would end it at its wait
    [ -z "$guard_pid" ]
    ! kill -0 "$ended" || false
    # which nobody waits for
    for ((n = 0; n < 300; n++)); do
        [ ! -s "$T/cancelled" ] || break
        sleep 0.1
    done
    [ "$(cat "$T/cancelled")" = "--signal=KILL 7.3" ]
}

@test "a rank that is cut off blames its peer, and is not believed" {
    mkdir -p "$T/run/reasons"
    echo '{"event":"start","time":1.0,"attempt":1,"job":7}' >"$T/run/ledger.jsonl"
    echo "75 comm n2: no answer for 2 s from rank 0 (n1), x" >"$T/run/reasons/attempt-0001.rank-0001"
    echo "75 comm n3: no answer for 2 s from rank 1 (n2), x" >"$T/run/reasons/attempt-0001.rank-0002"
    run "$T/bin/tessera-ckpt" next "$T/run" --job 7 --attempt 1 -- ended=itself code=75 \
        job=7 may_requeue=yes state=RUNNING room=yes
    echo "$output"
    [[ $output == *"comm n3: no answer for 2 s from rank 1 (n2)"* ]]
    [ "$(grep -x 'suspect .*' <<<"$output")" = "suspect n2" ]
}

@test "a rank that a signal has ended says so, and ends its step" {
    stand_in scancel <<<'echo "$*" >"$T/cancelled"'
    export SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_PROCID=2 SLURMD_NODENAME=n4
    PATH=$T/bin:$PATH run bash "$JOBS/lib/rank.sh" "$T/run" 1 bash -c 'kill -SEGV $$'
    [ "$status" -eq 139 ]
    [ "$(cat "$T/cancelled")" = "--signal=KILL 7.3" ]
    [ "$(cat "$T/run/reasons/attempt-0001.rank-0002.task")" = \
        "75 comm n4: task 2 was ended by signal 11 (SEGV)" ]
    # other ends are the rank's own to tell, and what asks it to stop ends nobody else
    rm "$T/cancelled"
    PATH=$T/bin:$PATH run bash "$JOBS/lib/rank.sh" "$T/run" 1 bash -c \
        'trap "exit 85" USR1; kill -USR1 $PPID $$; sleep 5'
    [ "$status" -eq 85 ]
    [ ! -e "$T/cancelled" ]
}

# guard: what it does when the node of the launch script has died
guard() {
    stand_in sleep </dev/null
    PATH=$T/bin:$PATH SLURM_JOB_ID=7 SLURM_PROCID=0 timeout -k 1 ${guard_s:-100} \
        bash "$JOBS/lib/guard.sh" "$T/run" "$T/bin" "" 120 pmix 0
}

@test "the guard requeues, and ends the job only where that is refused" {
    run guard
    [ -e "$T/requeued" ]
    grep '"event":"requeue".*lost n0' "$T/run/ledger.jsonl"
    echo "Unable to contact slurm controller" >"$T/refusal"
    run guard
    [ ! -e "$T/cancelled" ]
    echo "Requested operation is presently disabled" >"$T/refusal"
    run guard
    [ "$(cat "$T/cancelled")" = 7 ]
}

@test "the guard leaves alone a job that was cancelled meanwhile" {
    echo "RUNNING RUNNING RUNNING CANCELLED" >"$T/states"
    run guard
    [ ! -e "$T/requeued" ]
    [ ! -e "$T/cancelled" ]
    ! grep '"event":"requeue"' "$T/run/ledger.jsonl" || false
    echo "RUNNING RUNNING RUNNING RUNNING RUNNING COMPLETING" >"$T/states"
    echo "Requested operation is presently disabled" >"$T/refusal"
    run guard
    [ ! -e "$T/cancelled" ]
}

@test "a user's TMOUT is no limit of what the script reads" {
    real=$(readlink -f "$T/bin/tessera-ckpt")
    rm "$T/bin/tessera-ckpt"
    stand_in tessera-ckpt <<<"[ \$1 != next ] || sleep 2; exec $real \"\$@\""
    TMOUT=1 launch_is 85
    [ -e "$T/requeued" ]
}

@test "guards are there before the nodes are checked" {
    echo n0,n1,n2 >"$T/nodes"
    { cat <<'END' && tail -n +2 "$T/bin/srun"; } >"$T/srun"
for ((i = 0; i < 50; i++)); do # a guard begins beside the check
    [[ "$*" == *=health-1* ]] && ! grep guard "$T/sruns" || break
    sleep 0.1
done
[[ "$*" != *job-name* ]] || echo "$*" >>"$T/sruns"
END
    stand_in srun <"$T/srun"
    SLURMD_NODENAME=n0 check_s=5 launch_is 85
    cut -c 1-150 "$T/sruns"
    head -n 1 "$T/sruns" | grep -- '--job-name=guard-1 .*--nodelist=n1,n2'
    sed -n 2p "$T/sruns" | grep -- '--job-name=health-1'
}

@test "a guard whose step Slurm has forgotten goes with its job" {
    echo n0,n1 >"$T/nodes" # the node of the launch script is among them
    for states in "RUNNING COMPLETED" "RUNNING PENDING" "SUSPENDED RUNNING COMPLETING"; do
        echo "$states" >"$T/states"
        run guard
        [ "$status" -eq 0 ]
    done
    # the same job, begun anew
    echo RUNNING >"$T/states"
    echo 1 >"$T/restarts"
    run guard
    [ "$status" -eq 0 ]
    export SLURM_RESTART_COUNT=1 guard_s=5
    run guard
    [ "$status" -eq 124 ]
    [ ! -e "$T/requeued" ]
    [ ! -e "$T/cancelled" ]
}

# What an attempt asks for, with a clock of its own: the step ends after $ticks
# ticks of $watch_s seconds.
attempt_stand_ins() {
    # shellcheck source=jobs/lib/nodes.sh
    . "$JOBS/lib/nodes.sh"
    # shellcheck source=jobs/lib/attempt.sh
    . "$JOBS/lib/attempt.sh"
    stop_signal='' step_name=train-1
    await() {
        tick=$((tick + 1)) SECONDS=$((SECONDS + watch_s))
        [ "$tick" -gt "$ticks" ]
    }
    start_watch() { watch_pid=none; }
    hear_watch() { ask=no; }
    step_code() { :; }
    step_id() { echo 7.1; }
    # shellcheck disable=SC2032 # xargs is not used here
    scancel() { echo "$tick" >>"$T/sent"; }
    timeout() { shift 2 && "$@"; } # which runs no functions
}

watch() {
    tick=0
    watch_attempt n1 || true # set -e would end it
}

@test "a word of the watch that comes in two parts is heard" {
    # shellcheck source=jobs/lib/attempt.sh
    . "$JOBS/lib/attempt.sh"
    local watch_pid=4711 heard=''
    say() { heard=$*; }
    mkfifo "$T/words"
    exec 9<>"$T/words"
    (
        printf '4711 s' >&9
        sleep 0.2
        printf 'ay all of it\n' >&9
    ) 3>&- &
    sleep 0.1
    hear_watch
    wait $!
    hear_watch
    exec 9>&-
    [ "$heard" = "all of it" ]
}

@test "an attempt is ended before a scancel that tries again and again" {
    # shellcheck source=jobs/lib/nodes.sh
    . "$JOBS/lib/nodes.sh"
    stand_in scancel <<'END'
echo "$*" >>"$T/cancelled"
for ((i = 0; i < 900; i++)); do
    [ ! -e "$T/ended" ] || exit 0
    sleep 0.1
done
touch "$T/given_up"
END
    step_name=train-1 srun_rc=''
    step_id() { echo 7.1; }
    sleep 1000 3>&- &
    srun_pid=$!
    PATH=$T/bin:$PATH end_step || true # set -e would end it
    touch "$T/ended"
    [ "$(cat "$T/cancelled")" = "--signal=KILL 7.1" ]
    [ ! -e "$T/given_up" ]
    [ "$step_rc" -eq 137 ]
}

@test "an attempt without a start, and one without steps, is ended" {
    stand_in scancel <<<'kill -KILL "$(cat "$T/pid")"'
    echo '7.1 train-1' >"$T/steps"
    # who holds the job's output is waited for
    cat >"$T/step" <<'END'
[ ! -e "$T/started" ] || cat "$T/started" >>"$T/run/ledger.jsonl"
echo $$ >"$T/pid"
exec sleep 1000 >/dev/null 2>&1
END
    echo RUNNING RUNNING CANCELLED >"$T/states"
    TESSERA_START_S=1 launch_is 75
    [[ $output == *"not started within 1 s: ending the attempt"* ]]
    echo '{"event":"start","attempt":1,"job":7}' >"$T/started"
    echo RUNNING RUNNING CANCELLED >"$T/states"
    TESSERA_HANG_S=2 launch_is 75
    [[ $output == *"no step for 2 s: ending the attempt"* ]]
    [ -e "$T/run/health/beat.7" ]
}

@test "a start that takes much longer than those before is not waited for to the end" {
    short_pauses
    stand_in scancel <<<'kill -KILL "$(cat "$T/pid")"'
    cat >"$T/step" <<'END'
ledger() { printf '{"event":"%s","time":%s,"attempt":%d,"job":7}\n' "$1" "$EPOCHREALTIME" "$2"; }
at=$(($(cat "$T/at") + 1))
echo $at >"$T/at"
case $at in
1) ledger start 1 ;;
2)
    sleep 0.2
    ledger start 2
    ;;
3)
    echo $$ >"$T/pid"
    exec sleep 1000 >/dev/null 2>&1
    ;;
*) ledger start 3 ;;
esac >>"$T/run/ledger.jsonl"
mkdir -p "$T/run/checkpoints/step-00000000$at"
echo "{}" >"$T/run/checkpoints/step-00000000$at/MANIFEST.json"
[ "$at" -lt 4 ] || exit 85
exit 137
END
    echo 0 >"$T/at"
    echo '7.1 train-3' >"$T/steps"
    launch_is 85
    # four times what the second took, and 10 s
    [[ $output =~ 'not started within '1[1-9]' s: ending the attempt' ]]
    [ "$(jq -c 'select(.event == "restart") | .progress' "$T/run/ledger.jsonl" | tail -n 1)" = null ]
}

@test "steps that Slurm cannot begin are not in vain: their numbers taken behind a requeue, a node out of reach" {
    short_pauses
    cat >"$T/step" <<'END'
at=$(($(cat "$T/at") + 1))
echo $at >"$T/at"
[ "$at" -ge 6 ] || exit "${STEP_CODE:-137}"
echo '{"event":"start","time":1.0,"attempt":1,"job":7}' >>"$T/run/ledger.jsonl"
exit 85
END
    echo 0 >"$T/at"
    # a program that can never begin has three tries, and behind a requeue ten more
    launch_is 93
    [ "$(cat "$T/at")" -eq 3 ]
    local row
    for row in "1 137" "0 233" "0 236"; do
        export SLURM_RESTART_COUNT=${row% *} STEP_CODE=${row#* }
        rm -r "${T:?}/run"
        mkdir "$T/run"
        echo 0 >"$T/at"
        launch_is 85
        [ "$(cat "$T/at")" -eq 6 ]
        [ "$(jq -r 'select(.event == "restart") | .progress' "$T/run/ledger.jsonl" | sort -u)" = null ]
        rm -r "${T:?}/run"
        mkdir "$T/run"
        echo -99 >"$T/at"
        launch_is 93
        [ "$(cat "$T/at")" -eq $((13 - 99)) ]
    done
}

@test "a watch that is killed is started again, and a file STOP is heard" {
    cat >"$T/step" <<'END'
pkill -KILL -f "^$T/bin/tessera-ckpt watch $T/run"
touch "$T/run/STOP"
for ((i = 0; i < 900; i++)); do
    [ ! -e "$T/cancelled" ] || exit 85
    sleep 0.1
done
END
    echo '7.1 train-1' >"$T/steps"
    launch_is 93
    [[ $output == *"asking the ranks to checkpoint and stop (STOP)"* ]]
    ! pgrep -f "^$T/bin/tessera-ckpt watch $T/run" || false
}

@test "a step's end and its code are heard whatever signals come" {
    # shellcheck source=jobs/lib/nodes.sh
    . "$JOBS/lib/nodes.sh"
    stand_in srun <<<'sleep 0.0$((RANDOM % 4)); exit 9'
    PATH=$T/bin:$PATH stop_signal=''
    trap : USR1 ALRM
    for ((n = 0; n < 20; n++)); do
        start_step "train-$n"
        (while kill -0 "$srun_pid" && kill -USR1 $$ && kill -ALRM $$; do :; done) \
            >/dev/null 2>&1 3>&- &
        step_code
        [ "$step_rc" -eq 9 ]
    done
}

@test "a step has a list of its own nodes, or the job's where that is not known" {
    # shellcheck source=jobs/lib/nodes.sh
    . "$JOBS/lib/nodes.sh"
    stand_in srun <<<'echo "$SLURM_JOB_NODELIST" >"$T/listed"'
    PATH=$T/bin:$PATH stop_signal=''
    export SLURM_JOB_NODELIST='n[1-4]'
    for allocated in 'n1 n2 n3 n4' 'n2 n4' ''; do
        read -r -a allocated <<<"$allocated"
        start_step train-1 --nodes=2 --nodelist=n4,n2
        step_code
        cat "$T/listed" >>"$T/lists"
    done
    [ "$(xargs <"$T/lists")" = "n2,n4 n2,n4 n[1-4]" ]
}

@test "a request to stop is sent again while the step lives" {
    attempt_stand_ins
    watch_s=10 ticks=6 stop_signal=USR1
    watch 2>"$T/said"
    [ "$(xargs <"$T/sent")" = "1 3 5" ]
    [ "$(grep -c 'asking the ranks' "$T/said")" -eq 1 ]
}
