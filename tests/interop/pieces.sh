#!/bin/bash
# tokenizer.model beside the sentencepiece library, which comes from the Python
# package index into a virtual environment (venv.bash) and trains models of
# several kinds: the same tokens and texts, or refused by name.
# TESSERA_SENTENCEPIECE names more models, such as a released one's.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=pieces.py
ENCODE=$BIN/../interop/encode

# refused MODEL TEXT
refused() {
    "$ENCODE" "$WORK/$1.model" </dev/null 2>"$WORK/said" && return 1
    grep -q "$2" "$WORK/said"
}

[ -x "$ENCODE" ] || skip "$ENCODE was not built"
venv_make sentencepiece sentencepiece==0.2.1 || skip "$VENV_MISSING"
work_make
cat "$HERE"/../../*.md "$HERE"/../../docs/*.md >"$WORK/english"
cat "$HERE"/../../src/text/*/*.[ch] >"$WORK/code"
check "the library trains models" python make "$WORK" "$WORK/english"
# shellcheck disable=SC2086
for model in "$WORK"/{llama,no-prefix,across,no-bytes,names}.model ${TESSERA_SENTENCEPIECE:-}; do
    check "tokens of $(basename "$model" .model)" \
        python compare "$ENCODE" "$model" "$WORK/english" "$WORK/code"
done
check "unigram is refused" refused unigram "the type unigram can't be done here"
check "nmt_nfkc is refused" refused nmt "a normalizer that changes characters"
check "fewer blanks are refused" refused squeezed "remove_extra_whitespaces"
check "pieces of users are refused" refused users "'<sep>': pieces of users"
check "blanks behind words are refused" refused suffix treat_whitespace_as_suffix

finish_points
