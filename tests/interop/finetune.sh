#!/bin/bash
# Fine-tuning data and learned tokenizers beside the Hugging Face libraries: chat
# templates beside transformers' apply_chat_template, masks and packing beside LLM
# Foundry's rules, restated in finetune.py, and vocabularies beside BpeTrainer's.
# TESSERA_FINETUNE names a folder with JSON lines to use as well, such as LLM
# Foundry's scripts/data_prep.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=finetune.py
DATA=$BIN/tessera-data

# same_vocabulary PATTERN SIZE TEXT: our file has BpeTrainer's tokens and merges
same_vocabulary() {
    "$DATA" train-tokenizer --pattern "$1" --vocab-size "$2" --force \
        --out "$WORK/learned.json" "$3" && python vocabulary "$@" "$WORK/learned.json"
}

# same_examples FILE TEMPLATE OPTION...: examples and masks by the rules
same_examples() {
    local file=$1 template=$2 how=(--chat)
    shift 2
    if [ "$template" = prompts ]; then
        how=(--prompts)
    else
        how+=(--template "$template")
    fi
    rm -rf "$WORK/set"
    "$DATA" tokenize "${how[@]}" "$@" --tokenizer "$WORK/tokenizer" \
        --out "$WORK/set" "$file" &&
        python examples "$WORK/set" "$WORK/tokenizer" "$file" "$template" "$@"
}

[ -x "$DATA" ] || skip "$DATA was not built"
venv_make finetune transformers==5.23.0 tokenizers==0.23.3 \
    jinja2==3.1.6 numpy ||
    skip "$VENV_MISSING"

work_make
"$HERE/../english-text" 6000000 | iconv -cf UTF-8 -t UTF-8 >"$WORK/english"
cat "$HERE"/../../src/*/*.[ch] >"$WORK/code"
for text in english code; do
    for pattern in gpt2 digits llama3; do
        check "BpeTrainer learns the same of $text with $pattern" \
            same_vocabulary $pattern 8000 "$WORK/$text"
    done
done
check "short texts, merged to the end" python short "$DATA" "$WORK"

"$DATA" train-tokenizer --vocab-size 4000 --out "$WORK/tokenizer" \
    --special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>' \
    --special '<|begin_of_text|>' --special '<|start_header_id|>' \
    --special '<|end_header_id|>' --special '<|eot_id|>' "$WORK/code" \
    >"$WORK/made" || cat "$WORK/made"
python make "$WORK"
check "templates render as with Jinja" python render "$DATA" "$WORK"
FILES=("$WORK/talk.jsonl")
for file in "${TESSERA_FINETUNE:-/nonexistent}"/*.jsonl; do
    [ -e "$file" ] && FILES+=("$file")
done
for file in "${FILES[@]}"; do
    name=$(basename "$file")
    for template in chatml llama3 none "$WORK/smollm2.jinja"; do
        check "$name in $(basename "$template"), as LLM Foundry has it" \
            same_examples "$file" "$template" --seq-len 300
        check "... packed, all responses" same_examples "$file" "$template" \
            --seq-len 1024 --packing on --target-responses all
        check "... and long prompts" same_examples "$file" "$template" \
            --seq-len 512 --target-prompts 'length>=20' --packing on
    done
done
for file in "$WORK/pairs.jsonl" "${FILES[@]:1}"; do
    check "$(basename "$file"), joined" same_examples "$file" prompts --seq-len 200
done

finish_points
