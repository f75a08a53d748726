#!/bin/bash
# Optimizers against independent ones on random gradients: torch.optim, the
# transformers library, and Composer's and LLM Foundry's formulas in NumPy
# (venv.bash; skipped without them).
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PROGRAM=$BIN/../interop/optimizers

skip() {
    echo "1..0 # SKIP $1"
    exit 0
}

[ -x "$PROGRAM" ] || skip "$PROGRAM was not built: make interop"
venv_models || skip "$VENV_MISSING"
exec "$VENV/bin/python" "$HERE/optimizers.py" "$PROGRAM"
