#!/bin/bash
# Tokens beside those of the Hugging Face tokenizers library, which comes from the
# Python package index into a virtual environment under TESSERA_INTEROP_DIR (default
# build/peers) and stays there; without it the test is skipped. It trains files of
# several kinds; TESSERA_TOKENIZERS names more, such as a released model's. Rates
# are printed: ten times the library's or more, per core, on the same text.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=tokens.py
DATA=$BIN/tessera-data
ENCODE=$BIN/../interop/encode

# command FILE TEXT: tessera-data encode and decode
command_line() {
    python ids "$1" "$2" >"$WORK/theirs" &&
        "$DATA" encode --tokenizer "$1" <"$2" >"$WORK/ours" &&
        cmp "$WORK/theirs" "$WORK/ours" &&
        "$DATA" decode --tokenizer "$1" <"$WORK/ours" | cmp - "$2" &&
        wc -w <"$WORK/ours"
}

[ -x "$ENCODE" ] || skip "$ENCODE was not built"
venv_make tokenizers tokenizers==0.23.3 ||
    skip "$VENV_MISSING"

work_make
export TOKENIZERS_PARALLELISM=false
cat "$HERE"/../../src/*/*.[ch] >"$WORK/code"
if [ -r /usr/share/dictd/gcide.dict.dz ]; then
    gzip -dc </usr/share/dictd/gcide.dict.dz 2>/dev/null | head -c 8000000 |
        iconv -cf UTF-8 -t UTF-8 >"$WORK/english"
else
    cat "$HERE"/../../*.md "$HERE"/../../docs/*.md >"$WORK/english"
fi
head -c 400000 "$WORK/english" >"$WORK/sample"

mkdir "$WORK/files"
check "the library trains files" python make "$WORK/files" "$WORK/code" "$WORK/english"
for file in "$WORK"/files/pairs-*.json; do
    check "words of $(basename "$file" .json)" python patterns "$ENCODE" "$file"
    rm "$file"
done
for file in "$WORK"/files/points-*.json; do
    check "code points of $(basename "$file" .json)" python points "$ENCODE" "$file"
    rm "$file"
done
# shellcheck disable=SC2086
for file in "$WORK"/files/*.json ${TESSERA_TOKENIZERS:-}; do
    check "tokens of $(basename "$file" .json)" \
        python compare "$ENCODE" "$file" 1500 "$WORK/code" "$WORK/english"
done
check "tessera-data encode and decode" \
    command_line "$WORK/files/digits.json" "$WORK/sample"
# shellcheck disable=SC2086
for file in "$WORK"/files/{gpt2,digits,llama3,gpt4o,characters-llama2}.json ${TESSERA_TOKENIZERS:-}; do
    for text in english code; do
        check "rate of $(basename "$file" .json), $text" \
            python speed "$ENCODE" "$file" "$WORK/$text"
    done
done

finish_points
