#!/bin/bash
# Adapters (LoRA) beside peft's: gradients of the first step and losses of 20 on
# small models with random weights, whether peft loads what we export, and we what
# it saves.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=lora.py
LORA=$BIN/../interop/lora

[ -x "$LORA" ] || skip "$LORA was not built: make tests"
venv_models || skip "$VENV_MISSING"

work_make

# run NAME: adapters of all layers of the model, trained for a few steps
run() {
    "$BIN/tessera-train" "$HERE/../../jobs/conf/tiny.cfg" \
        "run.dir=$WORK/$1-run" "data.train=$WORK/data" data.eval= \
        eval.samples=0 scheduler.warmup=0ba \
        "model.weights=$WORK/$1" model.preset=weights train.max_duration=4ba \
        train.global_batch=4 checkpoint.interval=4ba lora.rank=3 lora.alpha=8 \
        optimizer.lr=0.05 data.seq_len=32 hardware.threads=1 log.level=warn
}

for name in $(python list); do
    mkdir -p "$WORK/$name" "$WORK/$name-out"
    check "$name: made" python make "$name" "$WORK/$name"
    check "$name: training as peft's" python compare "$LORA" "$name" \
        "$WORK/$name" "$WORK/$name-out"
    check "$name: what peft saves is a MODEL" python saves "$LORA" "$name" \
        "$WORK/$name" "$WORK/$name-saved"
done

"$HERE/../english-text" 40000 >"$WORK/text"
"$BIN/tessera-data" tokenize --seq-len 32 --out "$WORK/data" "$WORK/text" \
    >"$WORK/log" 2>&1
for name in llama mpt; do
    check "$name: a run" run "$name"
    check "$name: exported" "$BIN/tessera-hf" export "$WORK/$name-run" \
        --out "$WORK/$name-adapter" --adapter
    check "$name: peft loads it" python loads "$LORA" "$WORK/$name" \
        "$WORK/$name-adapter" "$WORK/$name-run"
done

finish_points
