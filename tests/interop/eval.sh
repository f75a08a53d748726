#!/bin/bash
# Prompts and scores of in-context tasks beside LLM Foundry's own classes.
# TESSERA_FOUNDRY names the folder of its repository's files, TESSERA_MODEL_DIR
# that of a Hugging Face model whose tokenizer has <|endoftext|>, such as
# SmolLM2-135M-Instruct; without them the test is skipped. The Python libraries
# come from the package index, as venv.bash says. eval.py tells how many examples
# are compared.
set -u

HERE=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/interop/venv.bash
. "$HERE/venv.bash"
# shellcheck source=tests/interop/points.bash
. "$HERE/points.bash"
EVAL=${TESSERA_BIN:-$HERE/../../build/bin}/tessera-eval

[ -x "$EVAL" ] || skip "$EVAL was not built: make"
[ -n "${TESSERA_FOUNDRY:-}" ] ||
    skip "TESSERA_FOUNDRY does not name a folder of LLM Foundry's repository"
[ -n "${TESSERA_MODEL_DIR:-}" ] ||
    skip "TESSERA_MODEL_DIR does not name a Hugging Face model's folder"
venv_models || skip "$VENV_MISSING"

TRANSFORMERS_OFFLINE=1 exec "$VENV/bin/python" -W ignore "$HERE/eval.py" \
    "$TESSERA_FOUNDRY" "$TESSERA_MODEL_DIR" "$EVAL"
