#!/bin/bash
# Parquet that pyarrow has written, read by us: 2,000 small files over types,
# encodings, codecs, pages, row groups and nulls (TESSERA_PARQUET_FILES, _SEED), what
# is refused, and a race to tokens with pyarrow in front of the same tokenizer.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PROGRAM=$BIN/../interop/parquet

[ -x "$PROGRAM" ] || skip "$PROGRAM was not built: make interop"
venv_parquet || skip "$VENV_MISSING"
work_make

peer() {
    "$VENV/bin/python" "$HERE/parquet.py" "$PROGRAM" "$@"
}

# seconds COMMAND...: of the processor, with those of its children
seconds() {
    local TIMEFORMAT='%U %S'
    { time "$@" >/dev/null 2>&1; } 2>&1 | awk '{ print $1 + $2 }'
}

tokenize() { # FILE OUT
    "$BIN/tessera-data" tokenize --threads 1 --seq-len 2048 --out "$2" "$1"
}

by_pyarrow() {
    peer lines "$WORK/race.parquet" "$WORK/race.jsonl" &&
        tokenize "$WORK/race.jsonl" "$WORK/theirs"
}

race() {
    local ours theirs read
    "$HERE/../english-text" 2000000 | peer write "$WORK/race.parquet" 64
    ours=$(seconds tokenize "$WORK/race.parquet" "$WORK/ours")
    theirs=$(seconds by_pyarrow)
    cmp "$WORK"/{ours,theirs}/shard.00000.mds || return 1
    read=$(peer rate "$WORK/race.parquet") || return 1
    awk -v ours="$ours" -v theirs="$theirs" -v read="$read" 'BEGIN {
        printf "64 MB to tokens in %.1f s of the processor, by pyarrow and JSON lines " \
               "in %.1f s: %.1f x; %s\n", ours, theirs, theirs / ours, read }'
}

check "files of pyarrow" peer many "$WORK" "${TESSERA_PARQUET_FILES:-2000}" \
    "${TESSERA_PARQUET_SEED:-1}"
check "what is refused" peer refused "$WORK"
check "a race" race
finish_points
