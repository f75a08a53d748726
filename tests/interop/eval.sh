#!/bin/bash
# Prompts and scores of in-context tasks beside LLM Foundry's package. The tasks
# are no part of it: TESSERA_FOUNDRY names the folder of its repository's files;
# without it the test is skipped. The package, its libraries and the model,
# SmolLM2, come from the package index, as venv.bash says. eval.py tells how many
# examples are compared.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
EVAL=$BIN/tessera-eval

[ -x "$EVAL" ] || skip "$EVAL was not built: make"
[ -n "${TESSERA_FOUNDRY:-}" ] ||
    skip "TESSERA_FOUNDRY does not name a folder of LLM Foundry's repository"
venv_models || skip "$VENV_MISSING"
venv_smollm2 || skip "$VENV_MISSING"
venv_foundry || skip "$VENV_MISSING"

work_make
HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 HF_HOME=$WORK TMPDIR=$WORK \
    "$VENV/bin/python" -W ignore \
    "$HERE/eval.py" "$TESSERA_FOUNDRY" "$SMOLLM2" "$EVAL"
