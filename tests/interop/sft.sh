#!/bin/bash
# The loss of a batch of fine-tuning data, packed and not, with the weights of a
# Hugging Face folder: a run's first step beside transformers and the mean over the
# learned tokens. TESSERA_MODEL names a folder to use as well.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
RECORDS=24

python() {
    OMP_NUM_THREADS=1 "$VENV/bin/python" "$HERE/sft.py" "$@"
}

# same_loss MODEL PACKING: of one step over the whole set
same_loss() {
    local set=$WORK/set.$2 run=$WORK/run samples theirs ours
    rm -rf "$set" "$run"
    "$BIN/tessera-data" tokenize --tokenizer "$1" --chat --packing "$2" --seq-len 128 \
        --out "$set" "$WORK/records.jsonl" || return 1
    samples=$(sed -nE 's/.*"samples": ([0-9]+).*/\1/p' "$set/tessera.json")
    cat >"$WORK/run.cfg" <<END
run: { dir = "$run"; };
model: { weights = "$1"; max_seq_len = 128; };
data: { train = "$set"; };
train: { max_duration = "1ba"; global_batch = $samples; microbatch = 1; };
parallel: { slots = 1; };
END
    "$BIN/tessera-train" "$WORK/run.cfg" >"$WORK/run.log" 2>&1 || {
        tail -n 3 "$WORK/run.log"
        return 1
    }
    ours=$(sed -nE 's/.*"loss": ([0-9.e+-]+).*/\1/p' "$run/metrics.jsonl" | head -n 1)
    theirs=$(python loss "$1" "$set") && python close "$ours" "$theirs"
}

venv_models || skip "$VENV_MISSING"
work_make

cat "$HERE"/../../*.md >"$WORK/text"
"$BIN/tessera-data" train-tokenizer --vocab-size 512 --out "$WORK/tokenizer" \
    --special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>' \
    "$WORK/text" >"$WORK/log" 2>&1 || skip "no tokenizer: $(tail -n 1 "$WORK/log")"
# lines of README as questions and answers of different lengths
awk -v n=$RECORDS 'length > 40 && !/["\\`\t]/ && k < n {
    k++
    printf "{\"prompt\": \"%s\", \"response\": \"%s\"}\n", substr($0, 1, 10 + k), substr($0, 11 + k)
}' "$HERE/../../README.md" >"$WORK/records.jsonl"
for arch in llama mpt; do
    check "a tiny $arch model of transformers" python make $arch "$WORK/$arch" 512
    cp "$WORK"/tokenizer/tokenizer*.json "$WORK/$arch"
    for packing in off on; do
        check "$arch: the loss of a batch, packing $packing" same_loss "$WORK/$arch" $packing
    done
done
if [ -n "${TESSERA_MODEL:-}" ]; then
    for packing in off on; do
        check "$(basename "$TESSERA_MODEL"): the loss of a batch, packing $packing" \
            same_loss "$TESSERA_MODEL" $packing
    done
fi
finish_points
