#!/bin/bash
# node_check.sh BIN FOLDER PHASE BUDGET_S: runs once on every node, before each
# attempt. Ends what an attempt that was cut off has left here, makes an empty
# folder for the shared memory of the next one, as the environment of MPI names it,
# and writes the verdict on this node to FOLDER/NODE.json. A node where that folder
# is somebody else's gives no verdict: MPI would put its memory there.
set -u

# ours PID: a process of an attempt of this job. What such a process submits has
# the first of the variables as well, but is another job.
ours()
{
    [ "$(grep -zcxE "(TESSERA_ATTEMPT_OF|SLURM_JOB_ID)=$SLURM_JOB_ID" \
        "/proc/$1/environ")" = 2 ]
}

# Only processes of this user can be read, so no others are ended.
for tries in {1..50}; do
    left=
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        if ours "$pid" && [ "$(cut -d' ' -f3 "$process/stat")" != Z ]; then
            kill -KILL "$pid"
            left+=" $pid"
        fi
    done 2>/dev/null
    [ -n "$left" ] || break
    [ "$tries" -lt 50 ] && sleep 0.1
done
[ -z "$left" ] || echo "$SLURMD_NODENAME: cannot end process$left" >&2

# shellcheck disable=SC2154 # of nodes.sh
folder=$OMPI_MCA_btl_vader_backing_directory
# with those of earlier starts of this job; what is somebody else's stays
rm -rf "/dev/shm/tessera.$SLURM_JOB_ID".* 2>/dev/null
# A name that is there already, even a link, makes mkdir fail.
if ! mkdir -m 700 "$folder" &&
    { [ -e "$folder" ] || [ -L "$folder" ]; }; then
    printf '{"schema":"tessera-health/1","host":"%s","phase":"%s","job":%d,' \
        "$SLURMD_NODENAME" "$3" "$SLURM_JOB_ID" >"$2/$SLURMD_NODENAME.json"
    printf '"verdict":"unknown","code":"SHM_TAKEN","reason":"tessera: %s"}\n' \
        "SHM_TAKEN $folder belongs to $(stat -c %U "$folder")" \
        >>"$2/$SLURMD_NODENAME.json"
    exit 3
fi

exec "$1/tessera-health" "$3" --json --budget "$4" \
    </dev/null >"$2/$SLURMD_NODENAME.json"
