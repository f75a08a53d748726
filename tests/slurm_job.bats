#!/usr/bin/env bats
# Jobs of the researcher on a real Slurm, and how they end: done, on the wrong
# configuration, with a killed rank, cancelled, at the time limit, in vain.
# Nodes die in slurm_nodes.bats.

load slurm_helpers

setup_file() {
    load slurm_helpers
    ! "$CLUSTER" possible || cluster_start 8
}

teardown_file() {
    load slurm_helpers
    cluster_stop
}

setup() {
    need_cluster
}

@test "a job over three nodes completes, with the bits of one rank" {
    submit plain --nodes=3
    completed plain 120
    [ "$(job_field plain ExitCode)" = 0:0 ]
    [ "$(job_field plain UserId)" = "researcher(60011)" ]
    [ "$(hosts plain | wc -l)" -eq 3 ]
    [ "$(events plain start | wc -l)" -eq 1 ]
    [ "$(events plain stop | grep -c '"code":0')" -eq 1 ]
}

@test "a wrong configuration ends the job with 64 and is not requeued" {
    submit typo --nodes=1 -- train.max_durations=3ba
    submit nodata --nodes=1 -- data.train=data/nothing
    for name in typo nodata; do
        within 90 ended $name
        state_is $name FAILED
        [ "$(job_field $name ExitCode)" = 64:0 ]
        [ "$(job_field $name Restarts)" -eq 0 ]
    done
    grep -q 'train.max_durations' "$home/typo.out"
    grep -q 'data/nothing' "$home/nodata.out"
    events nodata stop | grep -q '"code":64'
}

@test "a killed rank: the job starts again by itself, to the same bits" {
    submit rank --nodes=2
    within 90 trained rank 40
    node=$(hosts rank | tail -n 1)
    pid=$(ranks_on "$node")
    "$CLUSTER" exec --root --node "$node" kill -KILL "$pid"
    completed rank 120
    [ "$(job_field rank Restarts)" -eq 0 ]
    [ "$(events rank start | wc -l)" -eq 2 ]
    events rank restart | grep -q '"progress":true'
    # nothing was trained twice beyond the newest commit
    [ "$(last rank attempt)" -eq 2 ]
}

@test "a cancelled job is not requeued, and its run goes on later" {
    submit cancel --nodes=2
    within 90 trained cancel 40
    user scancel "$(job_of cancel)"
    within 60 ended cancel
    state_is cancel CANCELLED
    sleep 3
    state_is cancel CANCELLED
    [ "$(job_field cancel Restarts)" -eq 0 ]
    [ "$(last cancel step)" -lt $STEPS ]
    [ -z "$(events cancel requeue)" ]
    submit cancel --nodes=1
    completed cancel 120
}

@test "three attempts without a new checkpoint: held, with the reason" {
    export TESSERA_CRASH_AT=shards-agreed
    settings=TESSERA_CRASH_AT=shards-agreed submit vain --nodes=2
    within 180 ended vain
    state_is vain FAILED
    [ "$(job_field vain ExitCode)" = 93:0 ]
    [ "$(job_field vain Restarts)" -eq 0 ]
    [ "$(events vain start | wc -l)" -eq 3 ]
    [ "$(events vain hold | wc -l)" -eq 1 ]
    grep -q 'held: 3 attempts in a row without a new checkpoint' "$home/vain.out"
    # somebody has mended the cause
    submit vain --nodes=2
    completed vain 120
}
