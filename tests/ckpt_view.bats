#!/usr/bin/env bats
# checkpoint.h5 shows a sharded checkpoint as one HDF5 file.

load ckpt_helpers

# number in the catalogue, name, elements, bytes of an element
TENSORS="0 transformer.wte.weight 400 4
1 optimizer/exp_avg/transformer.wte.weight 400 4
3 counts/tokens 30 4
4 loss.sum 1 8
5 tokenizer.json 37 1
7 big 1740800 4"

setup() {
    need_saver h5dump ranks
    STEP=$DIR/three/checkpoints/step-000000007
    # the same values by one rank, whose shard has every tensor whole
    "$MPIRUN" 3 "$SAVER" save "$DIR/three" 7
    "$SAVER" save "$DIR/one" 7
    ONE=$DIR/one/checkpoints/step-000000007
}

# stored NUMBER ELEMENTS BYTES: the tensor's bytes in the single shard
stored() {
    local offset
    offset=$(grep -o "\[$1,0,$2,[0-9]*" "$ONE/MANIFEST.json" | cut -d, -f4)
    tail -c "+$((offset + 1))" "$ONE/shard-00000-of-00001.h5" | head -c "$3"
}

# shown NAME: where the view has the tensor
shown() {
    [[ $1 == */* ]] && echo "$1" || echo "weights/$1"
}

# numbers FILE NAME: the values of the tensor of bfloat16
numbers() {
    h5dump -d "$2" -y -m %.9g "$1" | sed -n '/DATA {/,/}/p' |
        tr -d ' DATA{}' | tr ',' '\n' | grep .
}

# shows FILE: every tensor, from another working directory
shows() {
    local number name elements size
    cd /
    while read -r number name elements size; do
        h5dump -d "$(shown "$name")" -b LE -o "$DIR/raw" "$1" >/dev/null
        stored "$number" "$elements" $((elements * size)) >"$DIR/want"
        cmp "$DIR/raw" "$DIR/want"
        [ "$(wc -c <"$DIR/raw")" -eq $((elements * size)) ]
    done <<<"$TENSORS"
    # h5dump writes no bytes of types like bfloat16, but numbers
    diff <(numbers "$1" weights/head.bias) \
        <(numbers "$ONE/shard-00000-of-00001.h5" head.bias)
    [ "$(numbers "$1" weights/head.bias | grep -c '[0-9]')" -eq 7 ]
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
    run h5dump -a format_version "$STEP/checkpoint.h5"
    [[ $output == *"(0): 2"* ]]
    run h5dump -a step -a ranks "$STEP/checkpoint.h5"
    [[ $output == *"(0): 7"*"(0): 3"* ]]
}

@test "what a missing shard holds reads as NaN, or the least integer" {
    name=optimizer/exp_avg/transformer.wte.weight
    [ "$(numbers "$STEP/checkpoint.h5" $name | grep -c nan)" -eq 0 ]
    rm "$STEP/shard-00001-of-00003.h5"
    whole=$(numbers "$STEP/checkpoint.h5" $name | wc -l)
    missing=$(numbers "$STEP/checkpoint.h5" $name | grep -c nan)
    [ "$missing" -gt 0 ] && [ "$missing" -lt "$whole" ]
    mkdir "$DIR/alone"
    cp "$STEP/checkpoint.h5" "$DIR/alone"
    cd "$DIR/alone"
    for name in weights/head.bias weights/loss.sum \
        optimizer/exp_avg/transformer.wte.weight; do
        [ "$(numbers checkpoint.h5 $name | grep -vc nan)" -eq 0 ]
    done
    [ "$(numbers checkpoint.h5 counts/tokens | sort -u)" = -2147483648 ]
}

@test "a shard's own checksums lie behind its payload" {
    offset=$(sed -n 's/.*"crc32c_offset":\([0-9]*\).*/\1/p' "$ONE/MANIFEST.json")
    shown=$(h5dump -d _crc32c -y -w 500 "$ONE/shard-00000-of-00001.h5" |
        sed -n '/DATA {/,/}/p' | grep -Eo '[0-9]+' | paste -sd,)
    count=$(tr -cd , <<<"$shown" | wc -c)
    crcs=$(od -A n -t u4 -w4 -v -j "$offset" -N $((4 * count + 4)) \
        "$ONE/shard-00000-of-00001.h5" | tr -d ' ' | paste -sd,)
    [ "$count" -gt 0 ]
    [ "$shown" = "$crcs" ]
}
