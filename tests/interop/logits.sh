#!/bin/bash
# What our model makes of tokens beside transformers: small models of every
# architecture with random weights, and SmolLM2.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=logits.py
LOGITS=$BIN/../interop/logits

# found NAME: the line that says how a small model went
found() {
    sed -n "s/^$1 [a-z]* //p" "$WORK/found" | grep . || tail -n 5 "$WORK/errors"
    grep -q "^$1 ok " "$WORK/found"
}

[ -x "$LOGITS" ] || skip "$LOGITS was not built: make tests"
venv_models || skip "$VENV_MISSING"

work_make

python small "$LOGITS" "$WORK/models" "$BIN/tessera-hf" >"$WORK/found" 2>"$WORK/errors"
for name in $(python list); do
    check "$name" found "$name"
done
[ "$COUNT" -gt 0 ] || check "there are small models" false
if venv_smollm2; then
    check "SmolLM2" python compare "$LOGITS" "$SMOLLM2" 1e-4
    check "20 greedy continuations" python greedy "$LOGITS" "$SMOLLM2" 64
else
    COUNT=$((COUNT + 1))
    echo "ok $COUNT - SmolLM2, and what it says # SKIP $VENV_MISSING"
fi

finish_points
