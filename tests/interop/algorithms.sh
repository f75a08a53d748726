#!/bin/bash
# Each algorithm (src/train/settings/algorithm_settings.h) beside the same in PyTorch:
# losses and weights of 20 steps of a small model, within 1e-5. The libraries
# come from the Python package index into TESSERA_INTEROP_DIR (default
# build/interop) and stay there; without them the test is skipped.
set -u

HERE=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/interop/venv.bash
. "$HERE/venv.bash"
# shellcheck source=tests/interop/points.bash
. "$HERE/points.bash"
BIN=${TESSERA_BIN:-$HERE/../../build/bin}

venv_models || skip "$VENV_MISSING"
WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-interop.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
export OMP_NUM_THREADS=1
"$VENV/bin/python" "$HERE/algorithms.py" "$BIN" "$WORK" "$@"
