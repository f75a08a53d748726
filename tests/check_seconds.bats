#!/usr/bin/env bats
# How long a job checks its nodes: what is set, else by the number of GPUs.

setup() {
    unset TESSERA_CHECK_S SLURM_GPUS_ON_NODE
    # shellcheck source=jobs/lib/nodes.sh
    . "$BATS_TEST_DIRNAME/../jobs/lib/nodes.sh"
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
