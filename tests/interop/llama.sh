#!/bin/bash
# Beside llama.cpp, by its Python package: the greedy tokens of SmolLM2 in fp32,
# from one GGUF file, and the rates of decoding and of prompts in fp32, bf16 and
# eight bits, on two threads each, one after the other. Rates are shown, not
# judged. The package is compiled for this machine, in half an hour of one core;
# where that or the model cannot be had, the test is skipped.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
TYPES="fp32 bf16 q8_0"

python() {
    "$LLAMA/bin/python" "$HERE/llama.py" "$@"
}

export_file() { # TYPE
    "$BIN/tessera-hf" export "$SMOLLM2" --format gguf --dtype "$1" \
        --out "$WORK/$1.gguf"
}

# Ours, theirs, ours.
measure() {
    local type
    ours before && for type in $TYPES; do
        python rates "$WORK/$type.gguf" "$SECONDS_EACH" >"$WORK/$type" || return
    done && ours after
}

ours() { # FILE
    "$BIN/../bench/tessera-bench" infer --json --threads 2 --seconds "$SECONDS_EACH" \
        --model "$WORK/fp32.gguf" >"$WORK/$1"
}

SECONDS_EACH=${TESSERA_LLAMA_SECONDS:-12}
[ -x "$BIN/tessera-generate" ] || skip "$BIN/tessera-generate was not built: make"
venv_models || skip "$VENV_MISSING"
venv_smollm2 || skip "$VENV_MISSING"
venv_llama || skip "$VENV_MISSING"
LLAMA=$VENV

work_make
for type in $TYPES; do
    check "a GGUF file of $type" export_file "$type"
done
check "greedy, 64 tokens behind 20 prompts are llama.cpp's" \
    python greedy "$BIN/tessera-generate" "$WORK/fp32.gguf" "$WORK"
check "it answers in a chat" python chat "$WORK/fp32.gguf"
check "rates are measured" measure
check "fp32" python table fp32 "$WORK/before" "$WORK/fp32" "$WORK/after"
check "bf16" python table bf16 "$WORK/before" "$WORK/bf16" "$WORK/after"
check "eight bits" python table int8 "$WORK/before" "$WORK/q8_0" "$WORK/after"
finish_points
