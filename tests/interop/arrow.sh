#!/bin/bash
# Arrow that pyarrow has written, read by us: 300 small files and streams over types,
# codecs, batches and nulls (TESSERA_ARROW_FILES, _SEED), what is refused, and folders
# as datasets saves them.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PROGRAM=$BIN/../interop/parquet

[ -x "$PROGRAM" ] || skip "$PROGRAM was not built: make interop"
venv_parquet || skip "$VENV_MISSING"
work_make

peer() {
    "$VENV/bin/python" "$HERE/arrow.py" "$PROGRAM" "$@"
}

tokenize() { # OUT ARGUMENT...
    "$BIN/tessera-data" tokenize --out "$WORK/$1" "${@:2}"
}

saved() {
    peer saved "$WORK" && tokenize lines "$WORK/test.jsonl" || return 1
    tokenize none "$WORK/set" && return 1
    tokenize split --split test "$WORK/set" && diff -r "$WORK/lines" "$WORK/split" &&
        tokenize alone "$WORK/set/test" && diff -r "$WORK/lines" "$WORK/alone"
}

check "files of pyarrow" peer many "$WORK" "${TESSERA_ARROW_FILES:-300}" \
    "${TESSERA_ARROW_SEED:-1}"
check "what is refused" peer refused "$WORK"
check "folders of save_to_disk" saved
finish_points
