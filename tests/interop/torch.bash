# PyTorch from the Python package index, for dcp.sh and torch_step.sh: one
# virtual environment, ROOT/torch, 6 GB that stay there.

# torch_install ROOT: sets TORCH_PYTHON; or returns 1 with the reason in
# TORCH_MISSING.
torch_install() {
    local venv=$1/torch
    TORCH_PYTHON=$venv/bin/python
    [ -e "$venv/complete" ] && return 0
    TORCH_MISSING="no python3"
    command -v python3 >/dev/null || return 1
    rm -rf "$venv"
    mkdir -p "$1"
    TORCH_MISSING="python3 -m venv does not work here"
    python3 -m venv "$venv" 2>/dev/null >&2 || return 1
    if ! "$TORCH_PYTHON" -m pip install -q --no-cache-dir torch==2.15.0 numpy \
        >"$venv/log" 2>&1; then
        rm -rf "$venv"
        TORCH_MISSING="PyTorch cannot be installed: no package index, or no room?"
        return 1
    fi
    touch "$venv/complete"
}
