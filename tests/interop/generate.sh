#!/bin/bash
# Tokens and texts beside transformers: the distributions that its logits processors
# leave of random logits; what it makes of 20 prompts, of chats and of a text with
# SmolLM2-135M-Instruct in fp32.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PROGRAM=$BIN/../interop/sample

python() {
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$VENV/bin/python" \
        "$HERE/generate_peer.py" "$@"
}

[ -x "$PROGRAM" ] || skip "$PROGRAM was not built"
venv_models || skip "$VENV_MISSING"
work_make
check "distributions are those of transformers" \
    python distributions "$PROGRAM" 400
if venv_smollm2; then
    check "greedy, 64 tokens behind 20 prompts are those of transformers" \
        python greedy "$BIN/tessera-generate" "$SMOLLM2" "$WORK"
    check "scores are those of transformers" \
        python score "$BIN/tessera-generate" "$SMOLLM2"
    check "answers in chats are those of transformers" \
        python chat "$BIN/tessera-generate" "$SMOLLM2" "$WORK"
else
    COUNT=$((COUNT + 1))
    echo "ok $COUNT - SmolLM2 # SKIP $VENV_MISSING"
fi
finish_points
