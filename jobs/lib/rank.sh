#!/bin/bash
# rank.sh RUN_DIR ATTEMPT COMMAND...: a rank of an attempt. Where a signal has ended it
# the other ranks would wait for its signs of life: so what it died of is written as
# ranks write why they leave, and the step ends on all nodes at once: by the first of
# them, since all may die of one fault.
run_dir=$1 attempt=$2
# what asks the ranks to stop must not end who waits for one
trap : USR1 USR2 TERM INT HUP
"${@:3}"
code=$?
[ "$code" -gt 128 ] || exit "$code"
name=$(kill -l $((code - 128)))
mkdir -p "$run_dir/reasons"
printf '75 comm %s: rank %d was ended by signal %d (%s)\n' "$SLURMD_NODENAME" \
    "$SLURM_PROCID" $((code - 128)) "$name" >"$run_dir/reasons/$(printf \
    'attempt-%04d.rank-%04d' "$attempt" "$SLURM_PROCID")"
mkdir "$run_dir/reasons/$(printf 'attempt-%04d.ended' "$attempt")" 2>/dev/null &&
    timeout 5 scancel --signal=KILL "$SLURM_JOB_ID.$SLURM_STEP_ID" 2>/dev/null
exit "$code"
