#!/bin/bash
# What every model card tells a user to type, with what we export: a chat by
# apply_chat_template and generate(**...), a batch that is filled up, a pipeline;
# with transformers, of folders, of GGUF files, and of adapters with peft. Answers,
# ends, padding and sampling are those of the model that went in.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"

python() {
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$VENV/bin/python" "$HERE/cards.py" "$@"
}

# run NAME SETTING...: a run of two steps from the model
run() {
    local name=$1
    shift
    "$BIN/tessera-train" "$HERE/../../jobs/conf/tiny.cfg" "run.dir=$WORK/$name" \
        "data.train=$WORK/data" data.eval= eval.samples=0 scheduler.warmup=0ba \
        "model.weights=$WORK/model" model.preset=weights train.max_duration=2ba \
        train.global_batch=4 checkpoint.interval=2ba data.seq_len=32 \
        hardware.threads=1 log.level=warn "$@"
}

export_of() { # MODEL OUT OPTION...
    "$BIN/tessera-hf" export "$WORK/$1" --out "$WORK/$2" "${@:3}"
}

venv_models || skip "$VENV_MISSING"
work_make
"$HERE/../english-text" 40000 >"$WORK/text"
check "a small chat model is made" python make "$WORK/text" "$WORK/model"
check "data of its tokenizer" "$BIN/tessera-data" tokenize --seq-len 32 \
    --tokenizer "$WORK/model" --out "$WORK/data" "$WORK/text"
check "imported" "$BIN/tessera-hf" import "$WORK/model" --out "$WORK/imported"
check "exported" export_of imported out
check "the export is used as the model was" python same "$WORK/out" "$WORK/model"
check "a run from it" run run optimizer.lr=1e-30
check "exported" export_of run run-out
check "the run's export is used as the model was" \
    python same "$WORK/run-out" "$WORK/model"
check "exported as GGUF" export_of run m.gguf --format gguf
check "the file's keys say the same, its model is used as the folder" \
    python gguf "$WORK/m.gguf" "$WORK/run-out"
check "read again and exported" export_of m.gguf again
check "the folder of the file is used as the model was" \
    python same "$WORK/again" "$WORK/model"
check "a run of adapters" run lora lora.rank=2 lora.alpha=8 optimizer.lr=0.02
check "its adapters" export_of lora adapter --adapter
check "all of it" export_of lora merged
check "peft with the adapters is used as the merged export" \
    python adapter "$WORK/model" "$WORK/adapter" "$WORK/merged"
check "a vocabulary is learned" "$BIN/tessera-data" train-tokenizer \
    --vocab-size 300 --out "$WORK/learned" "$WORK/text"
check "a tokenizer of ours" "$VENV/bin/python" -c "
import sys, transformers
t = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
b = t(['a', 'a longer one'], padding=True)
assert sorted(b) == ['attention_mask', 'input_ids'], sorted(b)
print(t.pad_token)" "$WORK/learned"
if venv_smollm2; then
    check "SmolLM2 is exported" "$BIN/tessera-hf" export "$SMOLLM2" \
        --out "$WORK/smollm2"
    check "SmolLM2 is used as it was" python usable "$WORK/smollm2"
else
    COUNT=$((COUNT + 1))
    echo "ok $COUNT - SmolLM2 # SKIP $VENV_MISSING"
fi
finish_points
