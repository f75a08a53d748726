#!/usr/bin/env bats
# Bad nodes and dead ones under jobs of the researcher on a real Slurm. Every
# job has nodes of its own. Since most of the time is waiting for Slurm, nearly
# all are started at once, each with somebody who does the harm in the
# background; the tests look at what became of them.

load run_helpers
load slurm_helpers # its digest is of a job's run

# only NODE...: sbatch's option that keeps a job to these nodes, of which it
# need not use all.
only() {
    local node others=()
    for node in n{1..32}; do
        [[ " $* " == *" $node "* ]] || others+=("$node")
    done
    (IFS=, && echo "--exclude=${others[*]}")
}

# kill_in_training NAME head|tail [cut]: kills the first or the last node of the
# job, or cuts it off the network, where its processes live on.
kill_in_training() {
    within 300 trained "$1" 40
    hosts "$1" | "$2" -n 1 >"$DIR/$1.victim"
    "$CLUSTER" "${3:-kill}" "$(cat "$DIR/$1.victim")"
    last "$1" step >"$DIR/$1.step"
}

# From the moment that Slurm has noticed to the first new step.
measure_restart() {
    local begin
    within 120 node_state_is "$(cat "$DIR/$1.victim")" 'DOWN*'
    begin=$EPOCHREALTIME
    within 120 attempt_above "$1" 1
    echo "$begin $EPOCHREALTIME" >"$DIR/$1.restarted"
}

# What the launch script did from the loss of a node to the next start. An attempt
# whose ranks never find each other on a busy machine costs TESSERA_START_S.
restart_events() { # NAME FILTER
    jq -rs "map(select(.event | IN(\"restart\", \"check\", \"start\"))) |
        .[map(.event) | index(\"restart\"):] | map($2) | join(\" \")" \
        "$home/runs/$1/ledger.jsonl"
}

# A job of three nodes, two to train on, of which one turns bad when the prolog
# has let it pass: the script waits until then.
turns_bad() { # NAME NODE
    within 300 test -e "$home/$1.begun"
    "$CLUSTER" full "$2"
    touch "$home/$1.go"
}

setup_file() {
    "$CLUSTER" possible || return 0
    cluster_start 32
    home=$TESSERA_CLUSTER_DIR/home
    # Each takes 768 MiB, and the nodes share one machine.
    echo 'disable = "triad";' >"$TESSERA_INSTALL/etc/health.cfg"
    cat >"$home/wait.sbatch" <<'END'
#!/bin/bash -l
touch "$SLURM_JOB_NAME.begun"
until [ -e "$SLURM_JOB_NAME.go" ]; do sleep 0.1; done
exec bash -l /opt/tessera/share/tessera/pretrain.sbatch "$@"
END
    # the probes of root find what those of the job are told to
    mv "$TESSERA_INSTALL/bin/tessera-health" "$TESSERA_INSTALL/libexec/tessera/probes"
    cat >"$TESSERA_INSTALL/bin/tessera-health" <<'END'
#!/bin/bash
[ "$UID" -ne 0 ] || {
    export TESSERA_INJECT=gemm:n31:wrong
    set -- "$@" --allow-inject
}
exec /opt/tessera/libexec/tessera/probes "$@"
END
    chmod 755 "$TESSERA_INSTALL/bin/tessera-health"
    "$CLUSTER" full n11
    submit bad --nodes=2 "$(only n10 n11 n12)"
    settings=TESSERA_SPARES=1 submit spare --nodes=3 "$(only n1 n2 n3)"
    settings=TESSERA_SPARES=1 submit local --nodes=4 "$(only n19 n20 n21 n22)" \
        -- checkpoint.interval=1dur checkpoint.local_interval=10ba \
        checkpoint.local_dir=/dev/shm/tessera-ckpt.%j
    settings=TESSERA_SPARES=0 submit scavenged --nodes=2 --no-kill --requeue \
        "$(only n23 n24 n25)" -- checkpoint.interval=1dur \
        checkpoint.local_interval=10ba \
        checkpoint.local_dir=/dev/shm/tessera-ckpt.%j
    settings=TESSERA_INJECT=gemm:n31:wrong submit kept --nodes=2 --requeue \
        "$(only n30 n31 n32)"
    submit nospare --nodes=2 --no-kill --requeue "$(only n4 n5 n6)"
    submit batchhost --nodes=2 "$(only n7 n8 n9)" -- checkpoint.interval=1dur \
        checkpoint.local_interval=10ba \
        checkpoint.local_dir=/dev/shm/tessera-ckpt.%j
    export settings=TESSERA_NODES=2 script=wait.sbatch
    submit turned --nodes=3 --requeue --no-kill "$(only n13 n14 n15)"
    submit turnedfirst --nodes=3 --requeue --no-kill "$(only n16 n17 n18)"
    {
        turns_bad turned n14 3>&- &
        turns_bad turnedfirst n16 3>&- &
        kill_in_training local tail 3>&- &
        kill_in_training nospare tail 3>&- &
        kill_in_training scavenged tail 3>&- &
        kill_in_training batchhost head 3>&- &
        { kill_in_training spare tail cut && measure_restart spare; } 3>&- &
    } >"$DIR/harm.log" 2>&1
}

setup() {
    need_cluster
    cat "$DIR/harm.log"
}

# lost_node NAME: it has started again because of its victim, which the ranks may
# find before Slurm does; with Open MPI 5 they may be ended before they have.
lost_node() {
    events "$1" restart
    events "$1" restart | grep -e "$(cat "$DIR/$1.victim")" -e 'one was lost'
}

# drained NODE: by us, with a reason that has our prefix once
drained() {
    node_state_is "$1" '*DRAIN*'
    reason=$(node_reason "$1")
    echo "$1: $reason"
    [[ $reason == "tessera: SHM_FULL "* ]]
    [ "$(grep -o 'tessera:' <<<"$reason" | wc -l)" -eq 1 ]
}

@test "a node cut off the network, with a spare: again in its allocation" {
    completed spare 300
    [ "$(job_field spare Restarts)" -eq 0 ]
    victim=$(cat "$DIR/spare.victim")
    [ "$(cat "$DIR/spare.step")" -lt "$STEPS" ]
    [ "$(events spare start | wc -l)" -eq 2 ]
    [[ " $(hosts spare | xargs) " != *" $victim "* ]]
    [ "$(hosts spare | wc -l)" -eq 2 ]
    lost_node spare
    events spare restart | grep '"progress":true'
    # nothing is left of either attempt
    for node in $(hosts spare); do
        left=$("$CLUSTER" exec --root --node "$node" ls -lA --full-time /dev/shm)
        echo "$node: $left"
        [ "$left" = "total 0" ]
        [ -z "$(rank_on "$node")" ]
    done
    # one check before each start, and nothing else is waited for
    [[ $(restart_events spare .event) =~ ^(restart check )+start$ ]]
    read -r down new <"$DIR/spare.restarted"
    note "seconds after Slurm's DOWN: $(restart_events spare \
        "\"\(.event) \((.time - $down) * 10 | round / 10),\"")" \
        "first new step $(awk -v a="$down" -v b="$new" 'BEGIN { printf "%.1f", b - a }')"
}

@test "a dead node with node-local checkpoints: the others have its shards" {
    completed local 300
    [ "$(job_field local Restarts)" -eq 0 ]
    [ "$(hosts local | wc -l)" -eq 3 ]
    [[ " $(hosts local | xargs) " != *" $(cat "$DIR/local.victim") "* ]]
    events local restart | grep '"progress":true'
    # Nothing was in the run directory when it died.
    [ "$(events local commit | wc -l)" -eq 1 ]
    events local commit | grep "\"attempt\":2,\"step\":$STEPS,"
    from=$(sed -n "s/.*step \([0-9]*\) came from the nodes' own.*/\1/p" \
        "$home/local.out")
    [ "$from" -ge 30 ]
    # The epilog has removed them.
    for node in $(hosts local); do
        [ -z "$("$CLUSTER" exec --root --node "$node" ls /dev/shm)" ]
    done
}

@test "a dead node without a spare: the job is requeued and completes" {
    completed nospare 300
    victim=$(cat "$DIR/nospare.victim")
    [ "$(cat "$DIR/nospare.step")" -lt "$STEPS" ]
    [ "$(job_field nospare Restarts)" -eq 1 ]
    [[ " $(hosts nospare | xargs) " != *" $victim "* ]]
    [ "$(hosts nospare | wc -l)" -eq 2 ]
    [ "$(events nospare requeue | wc -l)" -eq 1 ]
    events nospare requeue | grep '"code":75,"reason":"1 good nodes, 2 needed"'
}

# scavenged NAME: the step that the nodes alone had, which a later job went on
# from; nothing else was committed before the end.
scavenged() {
    local step
    [ "$(events "$1" commit | wc -l)" -eq 2 ]
    step=$(events "$1" commit | sed -n '1s/.*"step":\([0-9]*\).*/\1/p')
    events "$1" commit | head -n 1 | grep '"scavenged":true'
    [ "$step" -ge 30 ]
    grep "step $step came from the run directory" "$home/$1.out"
}

@test "the same with node-local checkpoints: the others' step is saved first" {
    completed scavenged 300
    [ "$(job_field scavenged Restarts)" -eq 1 ]
    events scavenged requeue | grep '"progress":true'
    scavenged scavenged
}

@test "the node of the batch script dies: requeued, and completes" {
    completed batchhost 300
    victim=$(cat "$DIR/batchhost.victim")
    [ "$(cat "$DIR/batchhost.step")" -lt "$STEPS" ]
    [ "$(job_field batchhost Restarts)" -eq 1 ]
    [[ " $(hosts batchhost | xargs) " != *" $victim "* ]]
    events batchhost requeue | grep "lost $victim, the node of the launch"
    scavenged batchhost
}

@test "a bad node is drained by the prolog, and the job runs elsewhere" {
    completed bad 300
    [ "$(hosts bad | xargs)" = "n10 n12" ]
    [ "$(job_field bad Restarts)" -eq 1 ]
    [ "$(events bad start | wc -l)" -eq 1 ]
    drained n11
    # Nothing is left of it when it is mended.
    "$CLUSTER" full n11 undo
    "$CLUSTER" exec --root scontrol update nodename=n11 state=resume
    "$CLUSTER" exec srun -w n11 true
}

@test "a node that only the job's check finds bad: elsewhere after one requeue" {
    completed kept 300
    [ "$(hosts kept | xargs)" = "n30 n32" ]
    [ "$(job_field kept Restarts)" -eq 1 ]
    events kept exclude | grep '"node":"n31","code":"GEMM_WRONG"'
    [ -z "$(events kept give-up)" ]
    # as the user would, who sees it in the job
    [[ $(job_field kept ExcNodeList) == *31* ]]
    # and its own epilog, alone with the node, finds the same
    within 60 node_state_is n31 '*DRAIN*'
    [[ $(node_reason n31) == "tessera: GEMM_WRONG gemm job=$(job_of kept) "* ]]
}

@test "a node that turns bad is found by the job's check and drained at once" {
    completed turned 300
    [ "$(hosts turned | xargs)" = "n13 n15" ]
    [ "$(job_field turned Restarts)" -eq 0 ]
    [ "$(job_field turned NumNodes)" -eq 2 ]
    events turned exclude | grep '"node":"n14","code":"SHM_FULL"'
    drained n14
}

@test "the same with the batch script's own node: drained after the job" {
    completed turnedfirst 300
    [ "$(hosts turnedfirst | xargs)" = "n17 n18" ]
    [ "$(job_field turnedfirst Restarts)" -eq 0 ]
    within 180 drained n16
}

@test "a dead node of four under zero3: the same job goes on with three" {
    # After the others: with four more nodes under check at once some would seem
    # to be slow, and the job would begin with three.
    for job in bad spare local scavenged nospare batchhost turned turnedfirst; do
        within 300 ended $job
    done
    settings=TESSERA_NODES_MIN=3 script=$TEMPLATE submit shrinks --nodes=4 \
        "$(only n26 n27 n28 n29)" -- parallel.strategy=zero3
    kill_in_training shrinks tail
    completed shrinks 300
    victim=$(cat "$DIR/shrinks.victim")
    [ "$(cat "$DIR/shrinks.step")" -lt "$STEPS" ]
    events shrinks start
    events shrinks restart
    [ "$(events shrinks start | grep -o '"ranks":[0-9]*' | xargs)" = \
        "ranks:4 ranks:3" ]
    # in the same allocation
    events shrinks start | grep -o '"restart":[0-9]*' >"$DIR/shrinks.restart"
    [ "$(uniq "$DIR/shrinks.restart" | wc -l)" -eq 1 ]
    [[ " $(hosts shrinks | xargs) " != *" $victim "* ]]
    [ "$(hosts shrinks | wc -l)" -eq 3 ]
    lost_node shrinks
    events shrinks restart | grep '"progress":true'
    # every step, also those done again, as in the run that nothing disturbed
    step_losses "$home/runs/shrinks" >"$DIR/shrinks.losses"
    [ "$(wc -l <"$DIR/shrinks.losses")" -eq "$STEPS" ]
    step_losses "$DIR/undisturbed" | cmp - "$DIR/shrinks.losses"
    eval_losses() {
        grep -o '"step".*"tokens": [0-9]*' "$1/eval.jsonl"
    }
    [ "$(eval_losses "$home/runs/shrinks")" = \
        "$(eval_losses "$DIR/undisturbed")" ]
}
