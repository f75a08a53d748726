#!/bin/bash
# Checkpoints side by side with torch.distributed.checkpoint (DCP): two processes
# on this machine save and load the same 1.5 GB (mpt-125m and both moments, half
# of each tensor in each process), in turns, and then one bit of a file is
# flipped. PyTorch comes from the Python package index (venv.bash) into
# TESSERA_INTEROP_DIR (default build/peers); without it the test is skipped.
# ROUNDS (5) of about a minute; DCP_WORK is where the checkpoints go, 7 GB
# (default: beside the environment).
#
#   return   from the call until training may change its tensors
#   durable  until every rank's files are synced and the checkpoint is complete;
#            what a sync(2) right after that still takes is printed too
#   load     from the disk: the files were dropped from the page cache
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
SIDE=$BIN/../interop/side
ROOT=${TESSERA_INTEROP_DIR:-$HERE/../../build/peers}
ROUNDS=${ROUNDS:-5}
KINDS="ours-sync dcp-sync ours-async dcp-async"
BACKWARDS="dcp-async ours-async dcp-sync ours-sync"

# ours COMMAND ..., dcp COMMAND ...: one line on stdout
ours() {
    "$HERE/../mpirun" 2 "$SIDE" "$@" 2>>"$WORK/errors"
}

dcp() {
    local command=$1
    shift
    "$PYTHON" "$HERE/dcp.py" "$command" "$WORK/shapes" "$@" 2>>"$WORK/errors"
}

# measure KIND: its line goes to its file; the checkpoint stays in $WORK/KIND
measure() {
    local side=${1%-*} line
    rm -rf "${WORK:?}/$1"
    sync
    line=$($side times "$WORK/$1" "${1#*-}")
    if ! [[ $line =~ ^([0-9.]+\ ){3}[0-9.]+$ ]]; then
        echo "Bail out! $1: $line"
        tail -n 5 "$WORK/errors" | sed 's/^/# /'
        exit 1
    fi
    echo "$line" >>"$WORK/$1.times"
}

# median FILE COLUMN
median() {
    cut -d ' ' -f "$2" "$1" | sort -n | awk '{ v[NR] = $1 }
        END { low = int((NR + 1) / 2); high = int(NR / 2) + 1
            printf "%.3f", (v[low] + v[high]) / 2 }'
}

table() {
    local kind
    echo "# medians of $ROUNDS rounds, s: return | durable | sync after | load"
    for kind in $KINDS; do
        echo "# $kind | $(median "$WORK/$kind.times" 1)" \
            "| $(median "$WORK/$kind.times" 2)" \
            "| $(median "$WORK/$kind.times" 3)" \
            "| $(median "$WORK/$kind.times" 4)"
    done
}

# flip FILE: one bit in its middle
flip() {
    "$PYTHON" - "$1" <<'END'
import os
import sys
with open(sys.argv[1], 'r+b') as file:
    middle = os.path.getsize(sys.argv[1]) // 2
    file.seek(middle)
    byte = file.read(1)[0]
    file.seek(middle)
    file.write(bytes([byte ^ 4]))
END
}

[ -x "$SIDE" ] || skip "$SIDE was not built: make interop-dcp"
"$HERE/../mpirun" 2 true 2>/dev/null || skip "no working mpirun"
venv_torch || skip "$VENV_MISSING"
PYTHON=$VENV/bin/python

WORK=$(mktemp -d "${DCP_WORK:-$ROOT}/tessera-dcp.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
export OMP_NUM_THREADS=1 # a core for each process, as torchrun sets it
"$SIDE" shapes >"$WORK/shapes" || exit 1
for round in $(seq "$ROUNDS"); do
    order=$KINDS
    [ $((round % 2)) = 1 ] || order=$BACKWARDS
    for kind in $order; do
        measure "$kind"
        echo "# round $round $kind $(tail -n 1 "$WORK/$kind.times")"
        case $kind in # what the flips need stays
        ours-sync | dcp-sync) ;;
        *) rm -rf "${WORK:?}/$kind" ;;
        esac
    done
done
echo "# PyTorch $("$PYTHON" -c 'import torch; print(torch.__version__)')"
table

rm -rf "$WORK/ours-sync/checkpoints/step-000000001"
check "ours: the same bytes" test "$(ours load "$WORK/ours-sync")" = same
check "DCP: the same bytes" test "$(dcp load "$WORK/dcp-sync")" = same
flip "$WORK/ours-sync/checkpoints/step-000000002/shard-00000-of-00002.h5"
flip "$WORK/dcp-sync/2/__0_0.distcp"
OURS=$(ours load "$WORK/ours-sync")
DCP=$(dcp load "$WORK/dcp-sync")
echo "# one bit flipped, ours: $OURS"
echo "# one bit flipped, DCP: $DCP"
check "ours: one flipped bit is noticed" test -n "$OURS" -a "$OURS" != same \
    -a "$OURS" != differs

finish_points
