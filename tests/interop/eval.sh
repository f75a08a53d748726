#!/bin/bash
# Prompts and scores of in-context tasks beside LLM Foundry's own classes.
# TESSERA_FOUNDRY names the folder of its repository's files; without it the test
# is skipped. The Python libraries and the model, SmolLM2, come from the package
# index, as venv.bash says. eval.py tells how many examples are compared.
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
venv_models || skip "$VENV_MISSING"
venv_smollm2 || skip "$VENV_MISSING"

TRANSFORMERS_OFFLINE=1 exec "$VENV/bin/python" -W ignore "$HERE/eval.py" \
    "$TESSERA_FOUNDRY" "$SMOLLM2" "$EVAL"
