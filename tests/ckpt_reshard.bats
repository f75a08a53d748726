#!/usr/bin/env bats
# A checkpoint written by one number of ranks is read by every other, bit for
# bit, also after a rank was killed in the middle of a save.

load ckpt_helpers

setup() {
    need_saver ranks
}

ranks() { # N save|load STEP
    "$MPIRUN" "$1" "$SAVER" "$2" "$DIR/run" "$3"
}

@test "1 -> 2 -> 3 -> 4 -> 1 ranks" {
    step=1
    for n in 1 2 3 4 1; do
        [ $step -eq 1 ] || ranks $n load $((step - 1))
        ranks $n save $step
        ranks $n load $step
        step=$((step + 1))
    done
}

@test "one step has one digest, whatever wrote it" {
    for n in 1 2 3 4; do
        ranks $n save 1
        "$CKPT" digest "$DIR/run/checkpoints/step-000000001" >>"$DIR/digests"
        [ "$(find "$DIR/run/checkpoints/step-000000001" -name 'shard-*.h5' | wc -l)" -eq "$n" ]
    done
    [ "$(sort -u "$DIR/digests" | wc -l)" -eq 1 ]
}

@test "a rank killed while saving loses nothing" {
    ranks 3 save 1
    for point in begin:0 shard-created:1 shard-half:2 shard-written:1 \
        shard-renamed:0 shards-agreed:2 manifest-written:0; do
        TESSERA_CRASH_AT=$point run ranks 3 save 2
        [ "$status" -ne 0 ]
        ranks 2 load 1
    done
    TESSERA_CRASH_AT=commit-renamed:0 run ranks 3 save 2
    [ "$status" -ne 0 ]
    ranks 4 load 2
    run ls -d "$DIR"/run/checkpoints/.bad-step-*
    [ "$status" -ne 0 ]
}
