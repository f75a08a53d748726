#!/usr/bin/env bats
# Jobs of the researcher on a real Slurm, and how they end: done, on the wrong
# configuration, with a killed rank, cancelled, at the time limit, in vain,
# preempted, without the right to come back, as one of an array.
# Nodes die in slurm_nodes.bats. Jobs that mostly wait are started early and run
# beside the others.

load slurm_helpers

# Stops the ranks of job $1 as soon as it trains, and lets them go on when the
# launch script asks them to end: a job that does not end within its time, on
# machines of any speed, and that needs no processor meanwhile.
too_slow() {
    local node nodes
    within 180 trained "$1" 5
    nodes=$(hosts "$1")
    for node in $nodes; do
        "$CLUSTER" exec --root --node "$node" kill -STOP "$(rank_on "$node")"
    done
    within 240 grep -q 'asking the ranks' "$home/$1.out"
    for node in $nodes; do
        "$CLUSTER" exec --root --node "$node" kill -CONT "$(rank_on "$node")"
    done
    # The rest takes longer than another minute on a busy machine.
    within 240 restarted "$1"
    within 120 "$CLUSTER" exec --root scontrol update \
        jobid="$(job_of "$1")" timelimit=20
    touch "$DIR/$1.slow"
}

restarted() { # NAME
    [ "$(job_field "$1" Restarts)" -ge 1 ]
}

setup_file() {
    "$CLUSTER" possible || return 0
    cluster_start 8
    # takes most of a check's 5 s where others compute
    echo 'disable = "triad";' >"$TESSERA_INSTALL/etc/health.cfg"
    # A hook's own job. It has the variable that tells the processes of an attempt,
    # as what is submitted by other means than hooks has.
    cat >"$TESSERA_CLUSTER_DIR/home/submit_child" <<'END'
#!/bin/bash
[ ! -e child.begun ] || exit 0
export TESSERA_ATTEMPT_OF=$SLURM_JOB_ID
sbatch --parsable --job-name=child --nodes=1 --ntasks=1 --output=child.out \
    --nodelist="$SLURMD_NODENAME" --wrap 'touch child.begun
        until [ -e child.go ]; do sleep 0.2; done; echo to its end' >child.job
END
    chmod +x "$TESSERA_CLUSTER_DIR/home/submit_child"
}

setup() {
    need_cluster
}

# Whatever has failed, the tests that follow find a controller.
teardown() {
    [ ! -e "$BATS_FILE_TMPDIR/away" ] || "$CLUSTER" controller start
    rm -f "$BATS_FILE_TMPDIR/away"
}

@test "a killed rank while Slurm is away: the job starts again, same bits" {
    # With nobody to ask, srun cannot end the other rank: it leaves by itself.
    submit rank --nodes=2 -- parallel.timeout_s=10 hooks.on_fit_start=./submit_child
    within 180 trained rank 40
    within 60 test -e "$home/child.begun"
    cp "$home/child.job" "$DIR"
    node=$(hosts rank | tail -n 1)
    "$CLUSTER" controller stop
    touch "$BATS_FILE_TMPDIR/away"
    "$CLUSTER" exec --root --node "$node" kill -KILL "$(rank_on "$node")"
    within 180 grep 'Slurm does not answer' "$home/rank.out"
    "$CLUSTER" controller start
    rm "$BATS_FILE_TMPDIR/away"
    completed rank 300
    [ "$(job_field rank Restarts)" -eq 0 ]
    [ "$(events rank start | wc -l)" -eq 2 ]
    events rank restart | grep '"progress":true'
    [ "$(last rank attempt)" -eq 2 ]
    # What the hook has submitted to the job's own node outlives the second node
    # check and the job's epilog.
    [ "$(events rank check | wc -l)" -eq 2 ]
    state_is child RUNNING
    [ "$(job_field child NodeList)" = "$(hosts rank | head -n 1)" ]
    touch "$home/child.go"
    within 60 ended child
    state_is child COMPLETED
    [ "$(cat "$home/child.out")" = "to its end" ]
}

# Not while Slurm is away: a controller that comes back after the signal's time
# and the job's end sends both at once.
@test "a job that will not end within its time begins, beside the others" {
    # Slurm looks every 30 s, so the signal comes 89 to 119 s after the start,
    # when also a busy machine has trained, and the end another 30 s later.
    submit limit --nodes=2 --nodelist=n7,n8 --time=2 --signal=B:USR1@1
    too_slow limit >"$DIR/limit.said" 2>&1 3>&- &
}

@test "a job over three nodes completes, with the bits of one rank" {
    # also with an environment that would lead Slurm's commands elsewhere
    submit plain --nodes=3 "--export=ALL,$(printf '%s=other,' SLURM_CLUSTERS \
        SLURM_TIME_FORMAT SQUEUE_STATES SQUEUE_USERS SQUEUE_FORMAT \
        SCONTROL_FEDERATION SCANCEL_STATE SCANCEL_NAME SLURM_HOSTFILE \
        SLURM_STDOUTMODE SLURM_TIMELIMIT)SLURM_EXPORT_ENV=NONE"
    completed plain 300
    [ "$(job_field plain ExitCode)" = 0:0 ]
    [ "$(job_field plain UserId)" = "researcher(60011)" ]
    [ "$(hosts plain | wc -l)" -eq 3 ]
    [ "$(events plain start | wc -l)" -eq 1 ]
    [ "$(events plain stop | grep -c '"code":0')" -eq 1 ]
}

@test "a run by its name: submitted, looked at, stopped, gone on with" {
    local began=$SECONDS submit="tessera submit run.cfg run.dir=runs/named --nodes 2 --time 20"
    user "$submit --sbatch --exclude=n7,n8" | tee "$DIR/said"
    sed -n 's/^job \([0-9]*\):.*/\1/p' "$DIR/said" >"$DIR/named.job"
    within 120 trained named 1
    note "from submit to the first step: $((SECONDS - began)) s"
    user tessera status runs/named | tee "$DIR/said"
    grep "^job $(job_of named): RUNNING" "$DIR/said"
    grep "^running .*runs/named" "$DIR/said"
    run user "$submit"
    [ "$status" -eq 64 ]
    [[ $output == *"job $(job_of named) of this run is RUNNING"* ]]
    user tessera stop runs/named
    within 60 ended named
    events named stop | grep '"code":85'
    user "$submit" >"$DIR/said"
    [ ! -e "$home/runs/named/STOP" ]
    sed -n 's/^job \([0-9]*\):.*/\1/p' "$DIR/said" >"$DIR/named.job"
    ln "$home/runs/named/job-$(job_of named).out" "$home/named.out" 2>/dev/null || true
    completed named 300
    user tessera logs runs/named | grep 'finished after step 160'
    user tessera status runs/named | grep '^finished'
    # a partition that is not there is Slurm's to refuse, in its words
    run user "$submit --partition nowhere run.dir=runs/other"
    [ "$status" -eq 64 ]
    [[ $output == *"invalid partition"* ]]
}

# slow_rank NAME ACT: the last node's rank stands still nine tenths of the time until the
# job acts on it and goes on in its second attempt
slow_rank() {
    settings=TESSERA_SPARES=1 submit "$1" --nodes=3 -- watch.on_straggler="$2" \
        watch.window=8
    within 180 trained "$1" 8
    node=$(hosts "$1" | tail -n 1)
    "$CLUSTER" exec --root --node "$node" bash -c 'while kill -STOP "$1"; do
        sleep 0.05; kill -CONT "$1"; sleep 0.01; done' slows "$(rank_on "$node")" \
        2>/dev/null || true
    completed "$1" 300
    events "$1" slow | grep "\"node\":\"$node\".*\"action\":\"$2\""
    events "$1" restart | grep '"code":85,.*"progress":true'
    [ "$(job_field "$1" Restarts)" -eq 0 ]
    [ "$(events "$1" start | wc -l)" -eq 2 ]
    [ "$(hosts "$1" | wc -l)" -eq 2 ]
    grep 'attempt 2 on .*, 1 in reserve' "$home/$1.out"
}

@test "a rank that stays slow: again in its job with the spare node, same bits" {
    slow_rank slow replace
    [[ " $(hosts slow | xargs) " != *" $node "* ]]
}

@test "the same with all nodes checked, which are good: again on its own, same bits" {
    slow_rank sweep sweep
    [[ " $(hosts sweep | xargs) " == *" $node "* ]]
    [ "$(events sweep check | jq -r .phase | xargs)" = "job job" ]
}

@test "a wrong configuration ends the job with 64 and is not requeued" {
    submit typo --nodes=1 -- train.max_durations=3ba
    # only the ranks can know
    submit ranks --nodes=2 -- parallel.slots=1
    # a Slurm in which srun finds no PMIx
    cp -r "$("$CLUSTER" exec scontrol show config |
        sed -n 's/^PluginDir *= *//p')" "$TESSERA_INSTALL/plugins"
    rm "$TESSERA_INSTALL/plugins"/mpi_pmix*
    { grep -v MpiDefault "$TESSERA_CLUSTER_DIR/etc/slurm/slurm.conf"
        echo "PluginDir=/opt/tessera/plugins"; } >"$home/slurm.conf"
    cat >"$home/nopmix.sbatch" <<'END'
#!/bin/bash -l
export SLURM_CONF=$PWD/slurm.conf
exec bash -l /opt/tessera/share/tessera/pretrain.sbatch "$@"
END
    script=nopmix.sbatch submit nopmix --nodes=1
    for name in typo ranks nopmix; do
        within 180 ended $name
        state_is $name FAILED
        [ "$(job_field $name ExitCode)" = 64:0 ]
        [ "$(job_field $name Restarts)" -eq 0 ]
    done
    grep 'train.max_durations' "$home/typo.out"
    grep 'parallel.slots' "$home/ranks.out"
    grep 'this Slurm has no PMIx, only .*pmi2' "$home/nopmix.out"
    [ "$(events ranks stop | grep -c '"code":64')" -eq 2 ]
}

@test "ranks that never find each other: ended, and started again" {
    # a program of which the first attempt never comes up
    cat >"$TESSERA_INSTALL/bin/tessera-late" <<'END'
#!/bin/bash
[[ " $* " == *" --print "* ]] || [ ! -e late ] || { rm late; exec sleep 1000; }
exec "${0%late}train" "$@"
END
    chmod 755 "$TESSERA_INSTALL/bin/tessera-late"
    touch "$home/late"
    chown 60011 "$home/late"
    settings='TESSERA_PROGRAM=late TESSERA_START_S=20' submit late --nodes=1
    completed late 300
    grep 'not started within 20 s: ending' "$home/late.out"
    [ "$(job_field late Restarts)" -eq 0 ]
    events late restart | grep '"reason":"not started within 20 s before'
    [ "$(last late attempt)" -eq 1 ]
}

@test "a node that is too busy for a verdict is checked again" {
    health=$TESSERA_INSTALL/bin/tessera-health
    mv "$health" "$health.real"
    cat >"$health" <<'END'
#!/bin/bash
[ "$*" != "job --json --budget 5" ] || [ ! -e busy ] ||
    { rm busy; exec sleep 1000; }
exec "$0.real" "$@"
END
    chmod 755 "$health"
    touch "$home/busy"
    chown 60011 "$home/busy"
    settings=TESSERA_CHECK_S=5 submit busy --nodes=1
    within 180 test ! -e "$home/busy"
    completed busy 300
    mv "$health.real" "$health"
    grep '0 good nodes, 1 wanted: checking n[0-9]* again' "$home/busy.out"
    [ "$(job_field busy Restarts)" -eq 0 ]
}

@test "a cancelled job is not requeued, and its run goes on later" {
    submit cancel --nodes=2
    within 180 trained cancel 40
    user scancel "$(job_of cancel)"
    within 180 ended cancel
    state_is cancel CANCELLED
    [ "$(job_field cancel Restarts)" -eq 0 ]
    [ "$(last cancel step)" -lt "$STEPS" ]
    [ -z "$(events cancel requeue)" ]
    # submitted again at once, and on one node only
    submit cancel --nodes=1
    completed cancel 300
}

@test "three attempts without a new checkpoint: given up, with the reason" {
    # too long an interval, and every attempt loses a rank before it is over
    submit vain --nodes=2 -- checkpoint.interval=100000ba \
        train.max_duration=100000ba
    for attempt in 0 1 2; do
        within 180 attempt_above vain $attempt
        node=$(hosts vain | tail -n 1)
        "$CLUSTER" exec --root --node "$node" kill -KILL "$(rank_on "$node")"
    done
    within 180 ended vain
    state_is vain FAILED
    [ "$(job_field vain ExitCode)" = 93:0 ]
    [ "$(job_field vain Restarts)" -eq 0 ]
    [ "$(events vain start | wc -l)" -eq 3 ]
    [ "$(events vain give-up | wc -l)" -eq 1 ]
    grep 'given up: 3 attempts in a row without a new checkpoint' "$home/vain.out"
    # somebody has mended the cause
    submit vain --nodes=2
    completed vain 300
}

@test "the time limit: a checkpoint, requeued, and to the end" {
    within 480 test -e "$DIR/limit.slow" || {
        cat "$DIR/limit.said"
        tail -n 5 "$home/limit.out"
        false
    }
    completed limit 300
    [ "$(job_field limit Restarts)" -eq 1 ]
    events limit requeue | grep '"code":85'
    [ "$(events limit start | wc -l)" -eq 2 ]
    went_on limit
}

@test "preempted by a higher partition: a checkpoint, and on after it" {
    submit preempted --nodes=2 --nodelist=n5,n6 --partition=low
    within 180 trained preempted 20
    user sbatch --parsable --partition=urgent --nodes=2 --nodelist=n5,n6 \
        --exclusive --output=urgent.out --wrap=true >"$DIR/urgent.job"
    completed preempted 300
    state_is urgent COMPLETED
    # Slurm 24.11 requeues it once more after its end, and there is nothing to do
    [[ $(job_field preempted Restarts) == [12] ]]
    [[ $(events preempted start | wc -l) == [23] ]]
    went_on preempted
}

@test "a job that may not be requeued: the next of its chain goes on" {
    submit chain --nodes=1 --no-requeue
    cp "$DIR/chain.job" "$DIR/chained.job"
    submit chain --nodes=1 --no-requeue --dependency=singleton \
        --open-mode=append
    within 180 trained chain 20
    warn_job chained
    within 180 ended chained
    state_is chained FAILED
    [ "$(job_field chained ExitCode)" = 85:0 ]
    grep 'may not be requeued (Requeue=0)' "$home/chain.out"
    grep 'cannot be requeued, nothing is lost' "$home/chain.out"
    completed chain 300
    went_on chain
}

@test "tasks of an array: each is a job of its own, also its requeue" {
    cat >"$home/array.sbatch" <<'END'
#!/bin/bash -l
exec bash -l /opt/tessera/share/tessera/pretrain.sbatch run.cfg \
    run.dir="runs/array$SLURM_ARRAY_TASK_ID"
END
    # without --ntasks-per-node: two ranks all the same
    user TESSERA_SPARES=0 sbatch --parsable --array=0-1 -N1 -n2 --time=20 \
        --output=array%a.out array.sbatch >"$DIR/array.job"
    for task in 0 1; do
        echo "$(job_of array)_$task" >"$DIR/array$task.job"
    done
    # the last one has the number of the array
    [ "$(job_field array1 JobId)" = "$(job_of array)" ]
    within 180 trained array1 20
    warn_job array1
    completed array0 300
    [ "$(job_field array0 Restarts)" -eq 0 ]
    completed array1 300
    [ "$(job_field array1 Restarts)" -eq 1 ]
    events array1 start | grep '"ranks":2'
    went_on array1
}

@test "a sweep as an array: each run through its own requeue, then compared" {
    cat >"$home/sweep.cfg" <<'END'
config = "run.cfg";
dir = "runs/sweep";
command = "bash -l /opt/tessera/share/tessera/pretrain.sbatch";
sbatch = "--parsable --nodes=1 --ntasks-per-node=1 --time=20 --output=sweep%a.out";
grid = ( { key = "optimizer.lr"; values = "1e-4 | 3e-3"; } );
END
    user TESSERA_SPARES=0 tessera-sweep sweep.cfg --slurm >"$DIR/sweep.job"
    name[0]=sweep/000-optimizer.lr=1e-4 name[1]=sweep/001-optimizer.lr=3e-3
    for task in 0 1; do
        echo "$(job_of sweep)_$task" >"$DIR/sweep$task.job"
    done
    within 180 trained "${name[1]}" 20
    warn_job sweep1
    within 300 state_is sweep0 COMPLETED
    within 300 state_is sweep1 COMPLETED
    [ "$(job_field sweep1 Restarts)" -eq 1 ]
    user tessera-sweep sweep.cfg --report --json sweep.json
    jq -e '[.runs[].state] == ["finished", "finished"]' "$home/sweep.json"
    # the rate of the configuration: the requeued run has its bits
    same_bits "${name[1]}"
    # nothing is left to do
    user tessera-sweep sweep.cfg --slurm 2>&1 | grep 'all 2 runs are finished'
}

# template KIND OPTIONS ARGUMENT...: a job of share/tessera/KIND.sbatch, which completes
template() {
    user "TESSERA_SPARES=0 sbatch --parsable --ntasks-per-node=1 $2 --time=20 --output=$1.out" \
        "${TEMPLATE/pretrain/$1} ${*:3}" >"$DIR/$1.job"
    within 300 ended "$1"
    state_is "$1" COMPLETED || { cat "$home/$1.out" && false; }
}

@test "a job of each kind by its template: data, a sweep, a fine-tuning, scores" {
    local eval="tessera-eval runs/tuned --perplexity data/eval --out one.json"
    cp "$DIR/text" "$home"
    echo 'config = "run.cfg"; dir = "runs/grid"; grid = ({ key = "train.max_duration"; values = "3ba | 5ba"; });' >"$home/grid.cfg"
    template data --cpus-per-task=1 tokenize --seq-len 64 --eval-fraction 0.05 --out again text
    diff -r "$home/data" "$home/again"
    template sweep "--cpus-per-task=1 --array=1" grid.cfg
    template finetune --nodes=2 run.cfg run.dir=runs/tuned model.weights=runs/grid/001-train.max_duration=5ba train.max_duration=4ba
    template eval "--nodes=2 --cpus-per-task=1" ${eval#*eval } --out two.json
    user "$eval"
    cmp "$home/one.json" "$home/two.json"
    grep 'weights are there once a node' "$home/eval.out" # of two ranks
}

@test "a file STOP ends the job for good, and its removal lets it go on" {
    submit stop --nodes=1
    within 180 trained stop 40
    touch "$home/runs/stop/STOP"
    within 180 ended stop
    [ "$(job_field stop ExitCode)" = 93:0 ]
    [ "$(job_field stop Restarts)" -eq 0 ]
    grep 'runs/stop/STOP: remove it to go on' "$home/stop.out"
    rm "$home/runs/stop/STOP"
    submit stop --nodes=1
    completed stop 300
}

# over NAME: it has ended, minutes ago even, when Slurm has forgotten it
over() {
    ! "$CLUSTER" exec squeue -h -j "$(job_of "$1")" \
        -t PENDING,RUNNING,COMPLETING,SUSPENDED 2>/dev/null | grep -q .
}

# questions: how many the user's jobs have had for Slurm since the last reset
questions() {
    "$CLUSTER" exec --root sdiag | sed -n '/statistics by user/,$p' |
        sed -n 's/.*researcher *( *60011) *count:\([0-9]*\).*/\1/p'
}

@test "the same run submitted twice: one trains, the other ends and says why" {
    settings=TESSERA_HANG_S=10 submit twice --nodes=2 --nodelist=n1,n3 -- \
        train.max_duration=100000ba
    within 180 trained twice 5
    cp "$DIR/twice.job" "$DIR/first.job"
    submit twice --nodes=1 --nodelist=n2 --output=second.out -- \
        train.max_duration=100000ba
    within 180 ended twice
    [ "$(job_field twice ExitCode)" = 93:0 ]
    grep "job $(job_of first) .* is training this run" "$home/second.out"
    events twice stop | grep 'before the run was opened'
    state_is first RUNNING
    [ "$(events twice start | wc -l)" -eq 1 ]
}

@test "while it trains, Slurm is hardly asked anything" {
    for job in "$DIR"/*.job; do
        job=$(basename "$job" .job)
        [ "$job" = first ] || [ "$job" = array ] || within 300 over "$job"
    done
    [ "$(questions)" -gt 0 ]
    "$CLUSTER" exec --root sdiag -r
    sleep 20
    asked=$(questions)
    note "${asked:-0} messages to Slurm in 20 s of a job on 2 nodes"
    # One question is two messages; on a busy machine steps that are late are
    # asked about. Asking all the time would be 80.
    [ "${asked:-0}" -le 12 ]
    state_is first RUNNING
}

@test "suspended, and told to finish on its node: it trains on" {
    "$CLUSTER" exec --root scontrol update nodename=n3 state=fail reason=later
    "$CLUSTER" exec --root scontrol suspend "$(job_of first)"
    sleep 15
    step=$(last twice step)
    "$CLUSTER" exec --root scontrol resume "$(job_of first)"
    within 180 trained twice $((step + 50))
    within 180 grep 'stood still for [1-9][0-9] s' "$home/twice.out"
    # it has asked Slurm for its nodes meanwhile
    asked() { [ "$(questions)" -gt 0 ]; }
    within 180 asked
    within 180 trained twice $(($(last twice step) + 50))
    [ "$(events twice start | wc -l)" -eq 1 ]
    user scancel "$(job_of first)"
    "$CLUSTER" exec --root scontrol update nodename=n3 state=resume
}
