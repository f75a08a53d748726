#!/bin/bash
# Models in and out beside transformers and the gguf package: random ones of
# every architecture, and SmolLM2, from a Hugging Face folder and from a GGUF
# file, come out with the same bits, tokens and chats. The environment and the
# model (venv.bash) go into TESSERA_INTEROP_DIR (default build/peers) and stay
# there; TESSERA_GGUF names another file of SmolLM2.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
HF=$BIN/tessera-hf
export OMP_NUM_THREADS=1

python() {
    "$VENV/bin/python" -W ignore "$HERE/models.py" "$@"
}

# both_ways FOLDER...: each through a checkpoint to FOLDER.out
both_ways() {
    local folder
    for folder in "$@"; do
        "$HF" import "$folder" --out "$folder.run" --verify &&
            "$HF" export "$folder.run" --out "$folder.out" --verify || return 1
    done
}

# smaller TYPE FOLDER...: to FOLDER.TYPE, in several files
smaller() {
    local folder type=$1
    shift
    for folder in "$@"; do
        "$HF" export "$folder.run" --out "$folder.$type" --dtype "$type" \
            --max-shard-size 50KiB --verify || return 1
    done
}

# to_gguf TYPE FOLDER...: to FOLDER.TYPE.gguf
to_gguf() {
    local folder type=$1
    shift
    for folder in "$@"; do
        "$HF" export "$folder.run" --out "$folder.$type.gguf" --format gguf \
            --dtype "$type" --verify || return 1
    done
}

# memory COMMAND...: it takes less than 200 MB of it, though the model has 540
memory() {
    local kib
    /usr/bin/time -f %M -o "$WORK/kib" "$@" || return 1
    kib=$(tail -n 1 "$WORK/kib")
    echo "$((kib / 1000)) MB" && [ "$kib" -lt 200000 ]
}

[ -x "$HF" ] || skip "$HF was not built"
venv_models || skip "$VENV_MISSING"
work_make

python make_all "$WORK" >"$WORK/log" 2>&1 || skip "no models: $(tail -n 1 "$WORK/log")"
all=() gguf=()
for name in $(python names); do
    all+=("$WORK/$name")
done
for name in $(python gguf); do
    gguf+=("$WORK/$name")
done
check "all architectures to checkpoints and back" both_ways "${all[@]}"
check "... transformers loads the same bits" python same_all float32 out "${all[@]}"
for type in bf16:bfloat16 fp16:float16; do
    check "... to ${type%:*} in several files" smaller "${type%:*}" "${all[@]}"
    check "... transformers loads the same, rounded" \
        python same_all "${type#*:}" "${type%:*}" "${all[@]}"
done
for type in fp32 bf16 fp16 q8_0; do
    check "GGUF files of $type" to_gguf "$type" "${gguf[@]}"
    check "... the gguf package reads the same" python exported_all "$type" "${gguf[@]}"
done

if venv_smollm2; then
    GGUF=${TESSERA_GGUF:-}
    check "SmolLM2 from its folder" memory "$HF" import "$SMOLLM2" --out "$WORK/hf"
    check "... and back" memory "$HF" export "$WORK/hf" --out "$WORK/hf.out"
    check "... the same bits in transformers" python same float32 "$SMOLLM2" "$WORK/hf.out"
    check "... the same tokens and chats" python texts "$SMOLLM2" "$WORK/hf.out"
    check "... as a GGUF file" memory "$HF" export "$WORK/hf" --out "$WORK/hf.gguf" --format gguf
    check "... transformers reads the same bits" python loads "$SMOLLM2" "$WORK/hf.gguf"
    if [ -n "$GGUF" ]; then
        check "SmolLM2 from its GGUF file" "$HF" import "$GGUF" --out "$WORK/gguf" --verify
        check "... the same as from the folder" "$HF" verify "$WORK/hf" "$WORK/gguf"
        check "... tokens and chats" "$HF" export "$WORK/gguf" --out "$WORK/gguf.out"
        check "... in transformers" python chats "$SMOLLM2" "$WORK/gguf.out"
    else
        echo "# SmolLM2 from its GGUF file: SKIP, TESSERA_GGUF is not set"
    fi
else
    echo "# SmolLM2: SKIP, $VENV_MISSING"
fi

finish_points
