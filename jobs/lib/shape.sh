# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/launch
# What the job was given and what it is to become: ranks and GPUs of a node, how
# MPI finds its ranks, the user's settings. Everything here is said before a
# node is touched, and ends the job with 64 where it cannot be meant.

readonly SLURM_OLDEST=20.11 # srun --overlap

# number NAME DEFAULT [LEAST]: the setting of that name, a whole number.
number()
{
    local value=${!1:-$2} least=${3:-0}
    if ! [[ $value =~ ^[0-9]{1,9}$ ]] || [ $((10#$value)) -lt "$least" ]; then
        die 64 "$1=$value: a whole number of at least $least is wanted"
    fi
    echo $((10#$value))
}

# check_seconds: for a check of nodes before the first attempt; those of GPUs
# take their time for each.
check_seconds()
{
    number TESSERA_CHECK_S $((60 + 10 * ${SLURM_GPUS_ON_NODE:-0}))
}

# Ranks of a node, the same on every one since any of them may be a spare.
task_count()
{
    local listed=${SLURM_TASKS_PER_NODE:-1}
    if [ -n "${SLURM_NTASKS_PER_NODE:-}" ]; then
        number SLURM_NTASKS_PER_NODE 1 1
    elif [ -z "${SLURM_NTASKS:-}" ]; then
        # Without a number of tasks Slurm lists one for each processor.
        echo 1
    elif [[ $listed =~ ^([0-9]+)(\(x[0-9]+\))?$ ]]; then
        echo "${BASH_REMATCH[1]}"
    else
        die 64 "$SLURM_NTASKS tasks are not the same number on every node" \
            "($listed): use sbatch --ntasks-per-node"
    fi
}

# The job's GPUs belong to all ranks of their node: a rank picks its own by its
# number there, and NCCL reaches the others' only if it can see them. Slurm
# would cut each rank off from all but one after --gpus-per-task and the like,
# and hand out none at all where a whole node was asked for but no GPU.
share_gpus()
{
    local gpus=${SLURM_GPUS_ON_NODE:-0} bound
    bound="${SLURM_GPUS_PER_TASK:-}${SLURM_NTASKS_PER_GPU:-}"
    bound+="${SLURM_GPU_BIND:-}${SLURM_GPUS_PER_SOCKET:-}"
    [ "$gpus" -gt 0 ] || return 0
    [ -z "$bound" ] ||
        say "every rank sees all $gpus GPUs of its node and takes one of them," \
            "whatever sbatch's options bind it to"
    unset SLURM_GPUS SLURM_GPUS_PER_TASK SLURM_GPUS_PER_SOCKET \
        SLURM_NTASKS_PER_GPU SLURM_GPU_BIND
    export SLURM_GPUS_PER_NODE=$gpus
    # Neighbouring ranks on neighbouring cores, as the GPUs are numbered.
    export SLURM_DISTRIBUTION=${SLURM_DISTRIBUTION:-block:block}
    [ "$gpus" -ne "$tasks_per_node" ] || return 0
    case ${TESSERA_GPUS:-} in
    any) say "$tasks_per_node ranks on a node of $gpus GPUs" ;;
    '')
        die 64 "$tasks_per_node ranks on a node of $gpus GPUs: use sbatch" \
            "--ntasks-per-node=$gpus, or set TESSERA_GPUS=any if it is meant"
        ;;
    *) die 64 "TESSERA_GPUS=$TESSERA_GPUS: only \"any\" has a meaning" ;;
    esac
}

# Threads of a rank: the processors that it has for itself.
share_cpus()
{
    local count counts=${SLURM_JOB_CPUS_PER_NODE:-1} fewest=999999
    cpus_per_task=${SLURM_CPUS_PER_TASK:-}
    if [ -z "$cpus_per_task" ]; then
        # "64(x2),32": the node with the fewest
        for count in ${counts//,/ }; do
            count=${count%%(*}
            [ "$count" -ge "$fewest" ] || fewest=$count
        done
        cpus_per_task=$((fewest / tasks_per_node))
        [ "$cpus_per_task" -gt 0 ] || cpus_per_task=1
    fi
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus_per_task}
}

# Sets mpi: how srun brings the ranks of a step together. OpenMPI finds no other
# rank without PMIx, and each would train alone.
pick_mpi()
{
    local line said names='' kinds
    said=$(srun --mpi=list 2>&1) ||
        die 75 "srun --mpi=list: ${said##*$'\n'}"
    # a line for each, which Slurm 20.11 begins with its name
    while IFS= read -r line; do
        if [[ $line =~ ^(srun:)?[[:space:]]+([a-z0-9_]+)$ ]]; then
            names+=" ${BASH_REMATCH[2]}"
        elif [[ $line == "specific pmix plugin versions available: "* ]]; then
            names+=" ${line##*available: }"
        fi
    done <<<"$said"
    read -r -a kinds <<<"${names//,/ }"
    if [ -n "${TESSERA_MPI:-}" ]; then
        mpi=$TESSERA_MPI
        [[ " ${kinds[*]} " == *" $mpi "* ]] || die 64 "TESSERA_MPI=$mpi: this" \
            "Slurm has ${kinds[*]} (srun --mpi=list)"
        return
    fi
    # pmix itself, else the newest
    while read -r mpi; do
        [[ $mpi == pmix || $mpi == pmix* && " ${kinds[*]} " != *' pmix '* ]] &&
            return
    done < <(printf '%s\n' "${kinds[@]}" | sort -rV)
    die 64 "this Slurm has no PMIx, only ${kinds[*]} (srun --mpi=list): have it" \
        "installed, or set TESSERA_MPI to what the MPI library is built for"
}

# sbatch hands on the TMPDIR of the node that it was called on.
pick_tmp()
{
    local folder=${TMPDIR:-/tmp}
    if ! [ -d "$folder" ] || ! [ -w "$folder" ]; then
        say "TMPDIR=$folder is no folder that can be written on this node:" \
            "/tmp is used"
        export TMPDIR=/tmp
    fi
}

# Before anything is asked of Slurm's controller.
check_shape()
{
    local version
    pick_tmp
    [ "${SLURM_HET_SIZE:-1}" -le 1 ] || die 64 "a heterogeneous job" \
        "($SLURM_HET_SIZE components) cannot be requeued or shrunk as a" \
        "whole: submit one without \":\""
    tasks_per_node=$(task_count) || exit 64
    check_s=$(check_seconds) || exit 64
    start_s=$(number TESSERA_START_S 300 1) || exit 64
    hang_s=$(number TESSERA_HANG_S 600 1) || exit 64
    scavenge_s=$(number TESSERA_SCAVENGE_S 120) || exit 64
    watch_s=$(number TESSERA_WATCH_S 1 1) || exit 64
    controller_s=$(number TESSERA_CONTROLLER_S 1800) || exit 64
    spares=$(number TESSERA_SPARES 0) || exit 64
    share_gpus
    share_cpus
    version=$(srun --version 2>/dev/null)
    version=${version##* }
    if [ -n "$version" ] &&
        [ "$(printf '%s\n' $SLURM_OLDEST "$version" | sort -V |
            head -n 1)" != $SLURM_OLDEST ]; then
        die 64 "Slurm $version is too old: $SLURM_OLDEST is needed"
    fi
    pick_mpi
}
