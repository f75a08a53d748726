# shellcheck shell=bash disable=SC2034 # variables of the scripts beside it
# What the scripts beside this file share: HERE, their folder; BIN, the programs;
# PEER, what `python` runs; WORK, a folder of their own; and test points in TAP.
# Libraries and models come from the Python package index into TESSERA_INTEROP_DIR
# (default build/peers) and stay there (venv.bash); without them a test is skipped.
set -u

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BIN=${TESSERA_BIN:-$HERE/../../build/bin}
# shellcheck source=tests/interop/venv.bash
. "$HERE/venv.bash"

python() {
    "$VENV/bin/python" "$HERE/$PEER" "$@"
}

work_make() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-interop.XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
}

COUNT=0
FAILED=0

skip() { # REASON
    echo "1..0 # SKIP $1"
    exit 0
}

# check NAME COMMAND...: one point; the last line that the command prints is shown
# with it, or the last lines, if it fails.
check() {
    local name=$1 last
    shift
    COUNT=$((COUNT + 1))
    if "$@" >"$WORK/log" 2>&1; then
        last=$(tail -n 1 "$WORK/log")
        echo "ok $COUNT - $name${last:+: $last}"
    else
        echo "not ok $COUNT - $name"
        sed 's/^/# /' "$WORK/log" | cut -c 1-300 | tail -n 20
        FAILED=$((FAILED + 1))
    fi
}

# The plan, and whether all went well: the last line of a script.
finish_points() {
    echo "1..$COUNT"
    [ "$FAILED" -eq 0 ]
}
