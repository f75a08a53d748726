#!/bin/bash
# Files of the safetensors library and configurations of transformers, both ways.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=hf.py
TENSORS=$BIN/../interop/tensors
ENCODE=$BIN/../interop/encode

# both PATH: the two see the same
both() {
    "$TENSORS" list "$1" >"$WORK/ours" && python list "$1" >"$WORK/theirs" &&
        diff "$WORK/ours" "$WORK/theirs" && [ -s "$WORK/ours" ]
}

# copied LIMIT: what we write is what we read
copied() {
    rm -rf "$WORK/copy"
    mkdir "$WORK/copy" &&
        "$TENSORS" copy "$WORK/all.safetensors" "$WORK/copy" "$1" &&
        both "$WORK/copy" &&
        "$TENSORS" list "$WORK/all.safetensors" | diff - "$WORK/ours"
}

rounds() {
    rm -rf "$WORK/halves"
    mkdir "$WORK/halves" &&
        "$TENSORS" convert "$WORK/reals.safetensors" "$WORK/halves" "$1" &&
        python rounded "$WORK/reals.safetensors" "$WORK/halves"
}

# config NAME: transformers reads from our file what was in its own
config() {
    mkdir -p "$WORK/$1.theirs" "$WORK/$1.ours"
    python make_config "$1" "$WORK/$1.theirs" &&
        "$TENSORS" config "$WORK/$1.theirs" >"$WORK/$1.ours/config.json" &&
        python same_config "$WORK/$1.ours" "$WORK/$1.theirs"
}

[ -x "$TENSORS" ] || skip "$TENSORS was not built: make tests"
venv_make hf safetensors==0.8.0 numpy transformers==5.23.0 || skip "$VENV_MISSING"

work_make

python make "$WORK/all.safetensors" && python reals "$WORK/reals.safetensors"
check "we read what safetensors writes, of every dtype" \
    both "$WORK/all.safetensors"
check "safetensors reads what we write" copied 1000000000
check "... in several files with an index" copied 140000
check "... one tensor a file" copied 1
check "fp16 is rounded as numpy does" rounds F16
check "bf16 is rounded to nearest, ties to even" rounds BF16
for name in LlamaConfig LlamaConfig-biases LlamaConfig-linear \
    LlamaConfig-llama3 MistralConfig MistralConfig-window Qwen2Config Qwen2Config-yarn Qwen3Config \
    Qwen3MoeConfig Olmo2Config Olmo3Config Gemma3TextConfig SmolLM3Config GPT2Config GPT2Config-erf \
    MptConfig MixtralConfig DbrxConfig; do
    check "transformers' $name both ways" config $name
done

check "tokens of files beside a tokenizer.json are those of transformers" \
    "$VENV/bin/python" "$HERE/beside.py" "$ENCODE"

finish_points
