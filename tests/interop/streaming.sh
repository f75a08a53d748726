#!/bin/bash
# Data sets, both ways, between tessera-data and Python's Streaming library. The
# library comes from the Python package index into a virtual environment under
# TESSERA_INTEROP_DIR (default build/interop) and stays there; without it the
# test is skipped. PyTorch is not installed: see mds.py.
set -u

HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${TESSERA_BIN:-$HERE/../../build/bin}
DATA=$BIN/tessera-data
VENV=${TESSERA_INTEROP_DIR:-$HERE/../../build/interop}/streaming
PACKAGES="mosaicml-streaming==0.13.0 numpy brotli python-snappy cramjam zstd
    xxhash pillow tqdm filelock typing_extensions"
COUNT=0
FAILED=0

skip() {
    echo "1..0 # SKIP $1"
    exit 0
}

# check NAME COMMAND...: one test point
check() {
    local name=$1
    shift
    COUNT=$((COUNT + 1))
    if "$@" >"$WORK/log" 2>&1; then
        echo "ok $COUNT - $name"
    else
        echo "not ok $COUNT - $name"
        sed 's/^/# /' "$WORK/log" | cut -c 1-300 | head -n 20
        FAILED=$((FAILED + 1))
    fi
}

python() {
    "$VENV/bin/python" "$HERE/mds.py" "$@"
}

# reads_ours DIR: Streaming sees the tokens that tessera-data shows
reads_ours() {
    python read "$1" >"$WORK/theirs" && "$DATA" cat "$1" >"$WORK/ours" &&
        cmp "$WORK/theirs" "$WORK/ours" && [ -s "$WORK/ours" ]
}

# same_bytes DIR LIMIT: MDSWriter's copy has the same files
same_bytes() {
    python copy "$1" "$WORK/copy" "$2" &&
        diff -r --exclude=tessera.json "$1" "$WORK/copy"
}

# reads_theirs KIND VOCABULARY: we read what MDSWriter wrote
reads_theirs() {
    python write "$WORK/$1" "$1" &&
        "$DATA" adopt --vocab-size "$2" --tokenizer some-bpe "$WORK/$1" &&
        "$DATA" verify "$WORK/$1" && reads_ours "$WORK/$1"
}

# refuses KIND VOCABULARY TEXT: exit 93 and the reason
refuses() {
    local status
    rm -rf "${WORK:?}/$1"
    python write "$WORK/$1" "$1" || return 1
    "$DATA" adopt --vocab-size "$2" --tokenizer x "$WORK/$1" \
        >"$WORK/answer" 2>&1
    status=$?
    cat "$WORK/answer"
    [ "$status" -eq 93 ] && grep -q "$3" "$WORK/answer"
}

# all_checksums: none is left to be believed
all_checksums() {
    local checked
    reads_theirs hashed 1000 || return 1
    checked=$("$DATA" verify "$WORK/hashed")
    echo "$checked"
    [[ $checked != *"not checked"* ]] || return 1
    checked=${checked##*: }
    checked=${checked//[^,]/}
    [ ${#checked} -eq 16 ]
}

[ -x "$DATA" ] || skip "$DATA was not built"
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

WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-interop.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
FILES=("$HERE/mds.py" "$HERE/streaming.sh" "$HERE/../tap.c")
LIMIT=4000

"$DATA" tokenize --out "$WORK/set" --seq-len 100 --shard-bytes $LIMIT \
    "${FILES[@]}" >"$WORK/made" 2>&1 || cat "$WORK/made"
python text 100 "${FILES[@]}" >"$WORK/expected"
check "Streaming reads our data set" reads_ours "$WORK/set"
check "its tokens are the text's bytes" cmp "$WORK/ours" "$WORK/expected"
check "MDSWriter makes the same files" same_bytes "$WORK/set" $LIMIT

check "we read MDSWriter's data set" reads_theirs plain 1000
check "... with other columns beside tokens" reads_theirs columns 1000
check "... with the type in the data" reads_theirs dynamic 1000
check "... with the shape in the index" reads_theirs shaped 1000
check "... with empty shards" reads_theirs empty 1000
check "tokens outside the vocabulary are refused" \
    refuses plain 900 "outside the vocabulary"
for type in int8 uint8 int16 uint16 uint32 int64 uint64; do
    check "... with $type" reads_theirs $type 1000
done
check "... with int64 in the data" reads_theirs dynamic64 1000
check "... with bytes, as LLM Foundry has them" reads_theirs bytes 1000
check "... with one token a sample" reads_theirs scalar 1000
check "... unpacked beside compressed shards" reads_theirs unpacked 1000
check "compression is refused" refuses zstd 1000 "zstd -dc"
check "... of any kind" refuses gz 1000 "gzip -dc"
check "every checksum of Streaming is checked" all_checksums
check "a changed byte is found by xxh64" refuses changed 1000 "its xxh64 should"

echo "1..$COUNT"
[ "$FAILED" -eq 0 ]
