#!/bin/bash
# docs/examples/wandb_offline.py makes an offline run of Weights & Biases of a run that was
# killed and did steps again, and their program sends it to a double of their server, which
# gets each step once. It comes from the Python package index (100 MB) into
# TESSERA_INTEROP_DIR and stays there; without it the test is skipped.
# shellcheck disable=SC2317 # functions that check calls
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PEER=wandb_peer.py

train() {
    "$BIN/tessera-train" "$HERE/../../jobs/conf/tiny.cfg" "run.dir=$WORK/run" \
        "data.train=$WORK/set/train" "data.eval=$WORK/set/eval" data.seq_len=64 \
        train.global_batch=8 scheduler.warmup=3ba scheduler.t_max=12ba checkpoint.interval=3ba \
        eval.interval=3ba eval.samples=8 log.level=warn "hooks.on_fit_end=: a-token" "$@"
}

run_again() {
    "$HERE/../english-text" 200000 >"$WORK/text"
    "$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.05 --out "$WORK/set" "$WORK/text" &&
        train train.max_duration=8ba checkpoint.keep=0 || return 1
    # as after a death behind step 8: steps 4 to 8 come again
    rm -r "$WORK"/run/checkpoints/step-00000000[68]
    train train.max_duration=12ba || return 1
    [ "$(grep -c '"step": 5,' "$WORK/run/metrics.jsonl")" -eq 2 ]
}

offline() {
    (cd "$WORK" && "$VENV/bin/python" "$HERE/../../docs/examples/wandb_offline.py" run)
}

sent() {
    cd "$WORK" && python wandb/offline-run-* run/metrics.jsonl
}

venv_make wandb wandb==0.31.0 || skip "$VENV_MISSING"
work_make
check "a run that does steps again" run_again
check "an offline run of it" offline
check "wandb sync sends it, each step once" sent
finish_points
