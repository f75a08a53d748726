#!/bin/bash
# Learning-rate schedules against independent ones: the formulas of Composer, LLM
# Foundry and llm.c in plain Python at random points, PyTorch's own schedulers
# where one is the same, and Composer's and LLM Foundry's code (venv.bash; what is
# not there is skipped).
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PROGRAM=$BIN/../interop/schedules

if [ ! -x "$PROGRAM" ]; then
    echo "1..0 # SKIP $PROGRAM was not built: make interop"
    exit 0
fi
if venv_foundry; then
    exec "$VENV/bin/python" "$HERE/schedules.py" "$PROGRAM" torch composer
fi
echo "# $VENV_MISSING"
if venv_models; then
    exec "$VENV/bin/python" "$HERE/schedules.py" "$PROGRAM" torch
fi
echo "# $VENV_MISSING"
command -v python3 >/dev/null || {
    echo "1..0 # SKIP no python3"
    exit 0
}
exec python3 "$HERE/schedules.py" "$PROGRAM"
