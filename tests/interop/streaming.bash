# Python's Streaming library from the package index, for streaming.sh and
# order.sh: one virtual environment, ROOT/streaming, that stays there. PyTorch is
# not installed: mds.py stands in for it.

# the variables are its callers'
# shellcheck disable=SC2034
# streaming_install ROOT: sets STREAMING_PYTHON; or returns 1 with the reason in
# STREAMING_MISSING.
streaming_install() {
    local venv=$1/streaming
    STREAMING_PYTHON=$venv/bin/python
    [ -e "$venv/complete" ] && return 0
    STREAMING_MISSING="no python3"
    command -v python3 >/dev/null || return 1
    rm -rf "$venv"
    mkdir -p "$1"
    STREAMING_MISSING="python3 -m venv does not work here"
    python3 -m venv "$venv" 2>/dev/null >&2 || return 1
    if ! "$STREAMING_PYTHON" -m pip install -q --no-deps \
        mosaicml-streaming==0.13.0 numpy brotli python-snappy cramjam zstd \
        xxhash pillow tqdm filelock typing_extensions catalogue \
        >"$venv/log" 2>&1; then
        rm -rf "$venv"
        STREAMING_MISSING="the Streaming library cannot be installed: no package index?"
        return 1
    fi
    touch "$venv/complete"
}
