#!/bin/bash
# Sample orders beside Python's Streaming library and NumPy: random data sets,
# seeds and settings, each epoch compared sample by sample. The library comes
# from the Python package index as in streaming.sh; without it the test is
# skipped. CASES (2000) of each kind, SEED (1).
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PROGRAM=$BIN/../interop/order
CASES=${CASES:-2000}
SEED=${SEED:-1}

# compare KIND NAME: one test point
compare() {
    local answer
    COUNT=$((COUNT + 1))
    if answer=$("$VENV/bin/python" "$HERE/order.py" "$1" "$PROGRAM" "$CASES" \
        "$SEED" 2>&1); then
        echo "ok $COUNT - $2"
    else
        echo "not ok $COUNT - $2"
        FAILED=$((FAILED + 1))
    fi
    [ -z "$answer" ] || cut -c 1-500 <<<"$answer" | tail -n 20 | sed 's/^/# /'
}

[ -x "$PROGRAM" ] || skip "$PROGRAM was not built"
venv_streaming || skip "$VENV_MISSING"

compare draws "NumPy's draws"
compare epochs "epochs of py1e, py1s, py1br, py2s, naive and unshuffled"
compare batches "the same batches on other nodes, ranks and workers, resumed"

finish_points
