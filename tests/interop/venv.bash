# shellcheck shell=bash disable=SC2034 # variables of the scripts beside it
# Virtual environments with what the Python package index has, for the scripts
# beside this file: made once, whole or not at all, and they stay there.

VENV_ROOT=${TESSERA_INTEROP_DIR:-$(dirname "${BASH_SOURCE[0]}")/../../build/interop}

# venv_make NAME ARGUMENT...: one environment, of these arguments of pip install.
# Sets VENV, its folder; or returns 1 with the reason in VENV_MISSING.
venv_make() {
    VENV=$VENV_ROOT/$1
    shift
    [ -e "$VENV/complete" ] && return 0
    VENV_MISSING="no python3"
    command -v python3 >/dev/null || return 1
    rm -rf "$VENV"
    mkdir -p "$VENV_ROOT"
    VENV_MISSING="python3 -m venv does not work here"
    python3 -m venv "$VENV" 2>/dev/null >&2 || return 1
    if ! "$VENV/bin/python" -m pip install -q "$@" >"$VENV.log" 2>&1; then
        rm -rf "$VENV"
        VENV_MISSING="pip cannot install $*: no package index, or no room? See $VENV.log"
        return 1
    fi
    touch "$VENV/complete"
}

# Python's Streaming library; mds.py stands in for PyTorch.
venv_streaming() {
    venv_make streaming --no-deps mosaicml-streaming==0.13.0 numpy brotli \
        python-snappy cramjam zstd xxhash pillow tqdm filelock \
        typing_extensions catalogue
}

# PyTorch, 6 GB.
venv_torch() {
    venv_make torch --no-cache-dir torch==2.15.0 numpy
}
