#!/bin/bash
# Chat templates beside Jinja with the settings of the Hugging Face library: those
# released templates that llama.cpp tests with, out of the source package of
# llama-cpp-python (70 MB), in conversations without tools. TESSERA_TEMPLATES names
# a folder with others.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
CHAT=$BIN/../interop/chat

[ -x "$CHAT" ] || skip "$CHAT was not built"
venv_make jinja jinja2==3.1.6 || skip "$VENV_MISSING"
TEMPLATES=$VENV_ROOT/templates
if [ ! -d "$TEMPLATES" ]; then
    rm -rf "$TEMPLATES.parts"
    mkdir -p "$TEMPLATES.parts"
    if ! "$VENV/bin/python" -m pip download -q --no-binary :all: --no-deps \
        -d "$TEMPLATES.parts" llama-cpp-python==0.3.36 >"$TEMPLATES.log" 2>&1 ||
        ! tar xzf "$TEMPLATES.parts"/*.tar.gz -C "$TEMPLATES.parts" --wildcards \
            --strip-components=4 '*/models/templates/*' ||
        ! mv "$TEMPLATES.parts/templates" "$TEMPLATES"; then
        skip "no source of llama-cpp-python: see $TEMPLATES.log"
    fi
    rm -rf "$TEMPLATES.parts"
fi

work_make
export SOURCE_DATE_EPOCH=1763856000
check "released templates" "$VENV/bin/python" "$HERE/chat.py" "$CHAT" 66 "$TEMPLATES"
if [ -n "${TESSERA_TEMPLATES:-}" ]; then
    check "other templates" "$VENV/bin/python" "$HERE/chat.py" "$CHAT" 0 "$TESSERA_TEMPLATES"
fi

finish_points
