#!/bin/bash
# Each algorithm (src/train/settings/algorithm_settings.h) beside the same in
# PyTorch: losses and weights of 20 steps of a small model, within 1e-5.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"

venv_models || skip "$VENV_MISSING"
work_make
export OMP_NUM_THREADS=1
"$VENV/bin/python" "$HERE/algorithms.py" "$BIN" "$WORK" "$@"
