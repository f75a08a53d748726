#!/bin/bash
# Checkpoints as h5py sees them: every tensor through checkpoint.h5, bfloat16
# included, and a shard's own checksums. h5py is the system's, or comes from the
# Python package index into a virtual environment under TESSERA_INTEROP_DIR
# (default build/peers) and stays there; without either the test is skipped.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
PROGRAM=$BIN/../tests/test_ckpt_n1234
PYTHON=/usr/bin/python3

[ -x "$PROGRAM" ] || skip "test_ckpt_n1234 was not built"
"$HERE/../mpirun" 2 true 2>/dev/null || skip "no working mpirun"
if ! "$PYTHON" -c 'import h5py' 2>/dev/null; then
    venv_make h5py h5py numpy || skip "$VENV_MISSING"
    PYTHON=$VENV/bin/python
fi

work_make
STEP=checkpoints/step-000000007
ONE=$WORK/1/$STEP/shard-00000-of-00001.h5
for ranks in 1 2 3 4; do
    "$HERE/../mpirun" $ranks "$PROGRAM" save "$WORK/$ranks" 7 || exit 1
done
cd / || exit 1
for ranks in 1 2 3 4; do
    check "h5py reads what $ranks ranks have written" \
        "$PYTHON" "$HERE/ckpt.py" same "$WORK/$ranks/$STEP/checkpoint.h5" "$ONE"
done
cp -r "$WORK/3/$STEP" "$WORK/lost"
rm "$WORK/lost/shard-00001-of-00003.h5"
check "what a missing shard holds is NaN" "$PYTHON" "$HERE/ckpt.py" lost \
    "$WORK/lost/checkpoint.h5" "$WORK/1/$STEP/checkpoint.h5"
mkdir "$WORK/alone" && cp "$WORK/3/$STEP/checkpoint.h5" "$WORK/alone"
check "also all of it" "$PYTHON" "$HERE/ckpt.py" lost \
    "$WORK/alone/checkpoint.h5" "$WORK/1/$STEP/checkpoint.h5"
mv "$WORK/3/$STEP" "$WORK/moved"
check "also after the folder has moved" \
    "$PYTHON" "$HERE/ckpt.py" same "$WORK/moved/checkpoint.h5" "$ONE"
check "a shard's checksums can be verified with h5py" \
    "$PYTHON" "$HERE/ckpt.py" crc "$WORK/moved/shard-00001-of-00003.h5"

cd "$WORK" || exit 1
"$HERE/../english-text" 60000 >text
cat >run.cfg <<'END'
run: { dir = "run"; };
model: { preset = "mpt-tiny"; n_layers = 1; };
data: { train = "data"; seq_len = 64; };
train: { max_duration = "2ba"; global_batch = 4; };
END
"$BIN/tessera-data" tokenize --seq-len 64 --out data text >/dev/null 2>&1 &&
    "$BIN/tessera-train" run.cfg >/dev/null 2>&1
check "a run's checkpoint says what it is" "$PYTHON" "$HERE/ckpt.py" about \
    run/checkpoints/step-000000002/checkpoint.h5 2

finish_points
