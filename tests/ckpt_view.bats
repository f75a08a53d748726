#!/usr/bin/env bats
# checkpoint.h5 shows a sharded checkpoint as one HDF5 file.

MPIRUN=$BATS_TEST_DIRNAME/mpirun
TENSORS="transformer.wte.weight optimizer/exp_avg/transformer.wte.weight
    head.bias counts/tokens loss.sum big"

setup() {
    TEST_PROGRAM=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}/../tests/test_ckpt_n4
    [ -x "$TEST_PROGRAM" ] || skip "test_ckpt_n4 was not built"
    command -v h5dump >/dev/null || skip "h5dump is not installed"
    "$MPIRUN" 2 true || skip "no working mpirun"
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-view.XXXXXX")
    STEP=$DIR/three/checkpoints/step-000000007
    # the same values by one rank, whose shard has every tensor whole
    "$MPIRUN" 3 "$TEST_PROGRAM" save "$DIR/three" 7
    "$TEST_PROGRAM" save "$DIR/one" 7
    ONE=$DIR/one/checkpoints/step-000000007
}

teardown() {
    rm -rf "$DIR"
}

# stored NUMBER ELEMENTS BYTES: the tensor's bytes in the single shard
stored() {
    local offset
    offset=$(grep -o "\[$1,0,$2,[0-9]*" "$ONE/MANIFEST.json" | cut -d, -f4)
    tail -c "+$((offset + 1))" "$ONE/shard-00000-of-00001.h5" | head -c "$3"
}

# shows FILE: every tensor, from another working directory
shows() {
    cd /
    local number=0 elements=(400 400 7 30 1 1740800) bytes=(4 4 2 4 8 4)
    for tensor in $TENSORS; do
        h5dump -d "$tensor" -b LE -o "$DIR/raw" "$1" >/dev/null
        stored $number "${elements[number]}" \
            $((elements[number] * bytes[number])) >"$DIR/want"
        cmp "$DIR/raw" "$DIR/want"
        number=$((number + 1))
    done
}

@test "every whole tensor through checkpoint.h5, bit for bit" {
    shows "$STEP/checkpoint.h5"
}

@test "also after the folder has moved" {
    mv "$DIR/three/checkpoints/step-000000007" "$DIR/elsewhere"
    shows "$DIR/elsewhere/checkpoint.h5"
}

@test "shapes are the tensors' own" {
    run h5dump -H "$STEP/checkpoint.h5"
    [ "$status" -eq 0 ]
    [[ $output == *"( 50, 8 ) / ( 50, 8 )"* ]]
    [[ $output == *"( 3, 5, 2 ) / ( 3, 5, 2 )"* ]]
    [[ $output == *"( 1700, 1024 ) / ( 1700, 1024 )"* ]]
    [[ $output == *"( 0, 4 ) / ( 0, 4 )"* ]]
    run h5dump -a step "$STEP/checkpoint.h5"
    [[ $output == *"(0): 7"* ]]
}

@test "a shard's own checksums lie behind its payload" {
    crcs=$(sed -n 's/.*"block_crc32c":\[\([0-9,]*\)\].*/\1/p' "$ONE/MANIFEST.json")
    shown=$(h5dump -d _crc32c -y -w 500 "$ONE/shard-00000-of-00001.h5" |
        sed -n '/DATA {/,/}/p' | grep -Eo '[0-9]+' | paste -sd,)
    [ "$shown" = "$crcs" ]
}
