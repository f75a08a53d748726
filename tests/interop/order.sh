#!/bin/bash
# Sample orders beside Python's Streaming library and NumPy: random data sets,
# seeds and settings, each epoch compared sample by sample. The library comes
# from the Python package index as in streaming.sh; without it the test is
# skipped. CASES (2000) of each kind, SEED (1).
set -u

HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${TESSERA_BIN:-$HERE/../../build/bin}
PROGRAM=$BIN/../interop/order
VENV=${TESSERA_INTEROP_DIR:-$HERE/../../build/interop}/streaming
PACKAGES="mosaicml-streaming==0.13.0 numpy brotli python-snappy cramjam zstd
    xxhash pillow tqdm filelock typing_extensions"
CASES=${CASES:-2000}
SEED=${SEED:-1}
COUNT=0
FAILED=0

skip() {
    echo "1..0 # SKIP $1"
    exit 0
}

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
command -v python3 >/dev/null || skip "no python3"
if ! [ -e "$VENV/complete" ]; then
    rm -rf "$VENV"
    mkdir -p "$(dirname "$VENV")"
    python3 -m venv "$VENV" 2>/dev/null >&2 ||
        skip "python3 -m venv does not work here"
    # shellcheck disable=SC2086
    if ! "$VENV/bin/python" -m pip install -q --no-deps $PACKAGES \
        >"$VENV/log" 2>&1; then
        rm -rf "$VENV"
        skip "the Streaming library cannot be installed: no package index?"
    fi
    touch "$VENV/complete"
fi

compare draws "NumPy's draws"
compare epochs "epochs of py1e, py1s, py1br, py2s, naive and unshuffled"
compare batches "the same batches on other nodes, ranks and workers, resumed"

echo "1..$COUNT"
[ "$FAILED" -eq 0 ]
