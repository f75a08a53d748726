#!/usr/bin/env bats
# shellcheck disable=SC2034,SC2317 # what the parts need
# Parts of the launch script that need no cluster: how long it checks nodes, what
# it makes of Slurm's words.

setup() {
    unset TESSERA_CHECK_S SLURM_GPUS_ON_NODE SLURM_ARRAY_JOB_ID
    job=7 controller_s=3
    say() { echo "$*" >&2; }
    die() { say "${@:2}"; exit "$1"; }
    # shellcheck source=jobs/lib/slurm.sh
    . "$BATS_TEST_DIRNAME/../jobs/lib/slurm.sh"
    # shellcheck source=jobs/lib/shape.sh
    . "$BATS_TEST_DIRNAME/../jobs/lib/shape.sh"
}

@test "a node without GPUs is checked for a minute" {
    [ "$(check_seconds)" = 60 ]
}

@test "each GPU takes its time" {
    [ "$(SLURM_GPUS_ON_NODE=8 check_seconds)" = 140 ]
}

@test "what the user sets is taken, also that there is no check" {
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
        'scontrol: error: Munge encode failed: Invalid credential' ''; do
        unanswered "$text"
    done
    for text in 'slurm_load_jobs error: Invalid job id specified' \
        'Requested operation is presently disabled for job 2' \
        'Access/permission denied for job 2' \
        'Job/step already completing or completed for job 2' \
        'timeout: failed to run command scontrol: No such file or directory'
    do
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
