#!/bin/bash
# Data sets, both ways, between tessera-data and Python's Streaming library. PyTorch
# is not installed: see mds.py.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=mds.py
DATA=$BIN/tessera-data
COLUMNS=$BIN/../interop/columns
HASHES=sha256,xxh3_64,xxh64

# reads_ours DIR: Streaming, which unpacks shards first, sees the tokens that
# tessera-data shows
reads_ours() {
    "$DATA" head --tokens "$1" >"$WORK/ours" && python read "$1" >"$WORK/theirs" &&
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

# all encodings, ours and theirs
same_columns() {
    "$COLUMNS" "$WORK/ours.set" "$HASHES" 20000 &&
        python columns "$WORK/theirs.set" - "$HASHES" 20000 &&
        diff -r "$WORK/ours.set" "$WORK/theirs.set"
}

# same_column NAME: of their set, before Streaming unpacks it
same_column() {
    "$DATA" head --column "$1" "$WORK/theirs.set" >"$WORK/ours" &&
        python column "$WORK/theirs.set" "$1" >"$WORK/theirs" &&
        cmp "$WORK/ours" "$WORK/theirs" && [ -s "$WORK/ours" ]
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
[ -x "$COLUMNS" ] || skip "$COLUMNS was not built: make tests"
venv_streaming || skip "$VENV_MISSING"

work_make
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
for packed in zstd gz bz2 br snappy; do
    check "... compressed with $packed" reads_theirs $packed 1000
done
check "... with several dimensions" reads_theirs cube 1000
check "... with 40 pickled columns beside tokens" reads_theirs beside 1000
check "pickled tokens are refused" refuses pickle 1000 "a pickle"
check "a changed byte of a packed shard is found" refuses damaged 1000 \
    "its sha1 should"
check "every checksum of Streaming is checked" all_checksums
check "a changed byte is found by xxh64" refuses changed 1000 "its xxh64 should"

# every encoding, by columns.c and by columns of mds.py
check "MDSWriter makes the same files of all encodings" same_columns
rm -rf "$WORK/theirs.set"
python columns "$WORK/theirs.set" br:5 md5 20000
while read -r name; do
    check "both read column $name alike" same_column "$name"
done < <(python names)
# best COMMAND...: of three, each of which unpacks anew
best() {
    local most=0 rate
    for _ in 1 2 3; do
        [ "$PACKED" = - ] || rm -f "$BIG"/*.mds
        rate=$("$@") || return 1
        most=$(awk "BEGIN { print ($rate > $most ? $rate : $most) }")
    done
    echo "$most"
}

times() {
    awk "BEGIN { printf \"%.2f times\", $1 / $2 }"
}

# rates DIR COMPRESSION HASH: both read 64 MiB, of which one processor has to do
# all. Of what is packed we check every hash before and after, and have our own
# (SHA-256) where the index has none; Streaming checks none unless it is told to,
# and then those of the packed files. Raw files of a folder neither checks here.
rates() {
    local ours theirs checked alone
    BIG=$WORK/$1 PACKED=$2
    python big "$BIG" "$2" "$3" && "$DATA" adopt --vocab-size 257 \
        --tokenizer x "$BIG" || return 1
    ours=$(best "$COLUMNS" rate "$BIG") &&
        theirs=$(best python rate "$BIG") || return 1
    echo "# $1: $ours MB/s, Streaming $theirs MB/s:" \
        "$(times "$ours" "$theirs")" >&3
    [ "$2" != - ] || return 0
    alone=$(best "$COLUMNS" unpack "$BIG"/*.zstd) || return 1
    echo "# $1: libzstd alone $alone MB/s:" \
        "$(times "$alone" "$theirs") Streaming" >&3
    [ "$3" != - ] || return 0
    checked=$(best python rate "$BIG" "$3") || return 1
    echo "# $1: Streaming with validate_hash=$3 $checked MB/s:" \
        "$(times "$ours" "$checked")" >&3
}

exec 3>&1
check "both read raw shards" rates raw - xxh64
check "both read shards packed with zstd" rates packed zstd:3 xxh64
check "... without hashes in the index" rates unsummed zstd:3 -
check "columns are listed" "$DATA" info --columns "$WORK/theirs.set"

finish_points
