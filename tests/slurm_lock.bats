#!/usr/bin/env bats
# One run directory, two jobs that Slurm does not show each other: in two clusters
# with one file system, and of two users where jobs are private. Needs root.

load slurm_helpers

setup_file() {
    "$CLUSTER" possible >/dev/null || return 0
    TESSERA_CLUSTER_NAME=north cluster_start 1
    export NORTH=$TESSERA_CLUSTER_DIR SOUTH=$DIR/south
    mkdir "$SOUTH"
    ln -s "$NORTH/home" "$SOUTH/home"
    TESSERA_CLUSTER_DIR=$SOUTH TESSERA_CLUSTER_NAME=south \
        TESSERA_CLUSTER_CONF=PrivateData=jobs "$CLUSTER" up 2 >/dev/null
    submit shared --nodes=1
    TESSERA_CLUSTER_DIR=$SOUTH submit private --nodes=1 \
        --nodelist=n1 -- train.max_duration=100000ba
}

teardown_file() {
    [ -z "${SOUTH:-}" ] || TESSERA_CLUSTER_DIR=$SOUTH "$CLUSTER" down
    TESSERA_CLUSTER_DIR=${NORTH:-} cluster_stop
}

setup() {
    need_cluster
    home=$NORTH/home
}

# second USER NODE NAME: a job of another user or cluster on the same run
second() {
    TESSERA_CLUSTER_DIR=$SOUTH "$CLUSTER" exec --root setpriv --reuid "$1" \
        --regid "$1" --clear-groups srun --mpi=none --chdir=/home/researcher -N1 \
        -n1 -w "$2" /opt/tessera/bin/tessera-train run.cfg "run.dir=runs/$3"
}

# one_writer NAME: nobody else has begun
one_writer() {
    [ "$(events "$1" start | wc -l)" -eq 1 ]
}

@test "two clusters on one file system: the job of the other is not dead" {
    within 90 trained shared 5
    run second 60011 n2 shared
    echo "$output"
    [ "$status" -eq 93 ]
    [[ "$output" == *"of north, which is another cluster"* ]]
    [[ "$output" == *"heartbeat"* ]]
    completed shared 200
    one_writer shared
}

@test "PrivateData=jobs: the job that another user cannot see is not dead" {
    TESSERA_CLUSTER_DIR=$SOUTH
    within 90 trained private 5
    chmod -R a+rwX "$home/runs/private"
    # its owner sees it and the time that it has left
    run "$CLUSTER" exec squeue -h -t all -j "$(job_of private)" -o %L
    [[ "$output" =~ ^1[0-9]:[0-9][0-9]$ ]]
    # it is hidden from this user
    run "$CLUSTER" exec --root setpriv --reuid 60012 --regid 60012 \
        --clear-groups squeue -h -j "$(job_of private)"
    [[ "$output" != *RUNNING* ]]
    run second 60012 n2 private
    echo "$output"
    [ "$status" -eq 93 ]
    [[ "$output" == *"which Slurm does not show us"* ]]
    state_is private RUNNING
    one_writer private
}
