#!/bin/bash
# Optimizers against independent ones on random gradients: torch.optim, the
# transformers library, and Composer's and LLM Foundry's formulas in NumPy
# (venv.bash; skipped without them).
set -u

HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${TESSERA_BIN:-$HERE/../../build/bin}
PROGRAM=$BIN/../interop/optimizers

# shellcheck source=tests/interop/venv.bash
. "$HERE/venv.bash"

skip() {
    echo "1..0 # SKIP $1"
    exit 0
}

[ -x "$PROGRAM" ] || skip "$PROGRAM was not built: make interop"
venv_models || skip "$VENV_MISSING"
exec "$VENV/bin/python" "$HERE/optimizers.py" "$PROGRAM"
