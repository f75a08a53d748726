#!/usr/bin/env bats
# tessera-ckpt, and that the shards are ordinary HDF5.

load ckpt_helpers

setup() {
    need_saver
    RUN=$DIR/run
    STEP=$RUN/checkpoints/step-000000007
    SHARD=$STEP/shard-00000-of-00001.h5
    "$SAVER" save "$RUN" 5
    "$SAVER" save "$RUN" 7
}

@test "--help, --version and wrong usage" {
    run "$CKPT" --help
    [ "$status" -eq 0 ]
    [[ $output == usage:* ]]
    run "$CKPT" --version
    [ "$status" -eq 0 ]
    [[ $output == "tessera "* ]]
    for wrong in "" "frob x" "ls" "ls $RUN --xml" "verify" "verify a b" "--x"; do
        # shellcheck disable=SC2086
        run "$CKPT" $wrong
        [ "$status" -eq 64 ]
    done
}

@test "ls lists what is there, oldest first" {
    run "$CKPT" ls "$RUN"
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 3 ]
    [[ ${lines[1]} =~ ^5\ .*good ]]
    [[ ${lines[2]} =~ ^7\ .*good.*step-000000007$ ]]
    run "$CKPT" ls "$RUN" --json
    [ "$status" -eq 0 ]
    [[ $output == *'"step": 7,'* ]]
    [[ $output == *'"state": "good"'* ]]
    truncate -s -1 "$SHARD"
    run "$CKPT" ls "$RUN"
    [ "$status" -eq 0 ]
    [[ ${lines[2]} =~ ^7\ .*bad ]]
    [[ ${lines[3]} == *"must have"* ]]
    run "$CKPT" ls "$DIR/none"
    [ "$status" -eq 64 ]
    mkdir -p "$DIR/empty/checkpoints"
    run "$CKPT" ls "$DIR/empty"
    [ "$status" -eq 0 ]
    [ "$output" = "$DIR/empty: no checkpoint yet" ]
    [ "$("$CKPT" ls "$DIR/empty" 2>/dev/null --json)" = "[]" ]
}

@test "verify and digest read every byte" {
    run "$CKPT" verify "$STEP/"
    [ "$status" -eq 0 ]
    [[ $output == *good ]]
    run "$CKPT" digest "$STEP"
    [ "$status" -eq 0 ]
    [[ $output =~ ^[0-9a-f]{64}$ ]]
    damage "$SHARD" 100000
    run "$CKPT" verify "$STEP"
    [ "$status" -eq 93 ]
    [[ $output == *"tensor big damaged"* ]]
    "$CKPT" digest "$STEP" >"$DIR/out" 2>"$DIR/err" && false
    [ ! -s "$DIR/out" ]
    [ -s "$DIR/err" ]
    run "$CKPT" verify "$DIR/none"
    [ "$status" -eq 64 ]
}

@test "show names the tensors" {
    run "$CKPT" show "$STEP"
    [ "$status" -eq 0 ]
    [[ $output == *"step    7"* ]]
    [[ $output == *"ranks   1"* ]]
    [[ $output == *"optimizer/exp_avg/transformer.wte.weight f32 [50, 8]"* ]]
    [[ $output == *"head.bias bf16 [7]"* ]]
    [[ $output == *"loss.sum f64 []"* ]]
    damage "$STEP/MANIFEST.json" 20
    run "$CKPT" show "$STEP"
    [ "$status" -eq 93 ]
}

# raw NAME TYPE: the bytes of a dataset as h5dump writes them, through od
raw() {
    h5dump -d "$1" -b LE -o "$DIR/raw" "$SHARD" >/dev/null
    od -An -v -t "$2" "$DIR/raw" | tr -s ' \n' ' '
}

@test "h5dump shows the exact values of a tensor" {
    command -v h5dump >/dev/null || skip "h5dump is not installed"
    # i32: as numbers, against the bytes at the offset that the manifest names
    h5dump -d counts/tokens -y -w 200 "$SHARD" >"$DIR/text"
    grep -q H5T_STD_I32LE "$DIR/text"
    shown=$(sed -n '/DATA {/,/}/p' "$DIR/text" | grep -Eo -e '-?[0-9]+')
    offset=$(grep -o '\[3,0,30,[0-9]*' "$STEP/MANIFEST.json" | cut -d, -f4)
    stored=$(od -An -v -td4 -j "$offset" -N 120 "$SHARD" | grep -Eo -e '-?[0-9]+')
    [ "$shown" = "$stored" ]
    [ "$(wc -l <<<"$shown")" -eq 30 ]
    # f32 in a group and f64: bit for bit
    for tensor in "1 optimizer/exp_avg/transformer.wte.weight 400 4" \
        "4 loss.sum 1 8"; do
        read -r number name count size <<<"$tensor"
        offset=$(grep -o "\[$number,0,$count,[0-9]*" "$STEP/MANIFEST.json" |
            cut -d, -f4)
        [ "$(raw "$name" x1)" = "$(od -An -v -tx1 -j "$offset" \
            -N $((count * size)) "$SHARD" | tr -s ' \n' ' ')" ]
    done
}

@test "bfloat16 values read as numbers" {
    command -v h5dump >/dev/null || skip "h5dump is not installed"
    offset=$(grep -o '\[2,0,7,[0-9]*' "$STEP/MANIFEST.json" | cut -d, -f4)
    # 1.0, -2.5, 0.15625 as bfloat16
    printf '\x80\x3f\x20\xc0\x20\x3e' |
        dd of="$SHARD" bs=1 seek="$offset" conv=notrunc status=none
    run h5dump -d head.bias -y -s 0 -c 3 "$SHARD"
    [ "$status" -eq 0 ]
    [[ $output == *"1, -2.5, 0.15625"* ]]
}

@test "a shard explains itself" {
    command -v h5dump >/dev/null || skip "h5dump is not installed"
    run h5dump -a step -a ranks -d _index "$SHARD"
    [ "$status" -eq 0 ]
    [[ $output == *"(0): 7"* ]]
    [[ $output == *optimizer/exp_avg/transformer.wte.weight* ]]
    [[ $output == *bf16* ]]
}

@test "of what ranks say as they leave the gravest counts, then the lowest rank's" {
    run_dir=$DIR/said
    mkdir -p "$run_dir"/{reasons,checkpoints,health}
    echo '{"event":"start","time":1.0,"attempt":1,"job":1}' >"$run_dir/ledger.jsonl"
    for rank in 0003 0001 $(seq 10000 10300); do
        echo "75 comm n$rank: of $rank" >"$run_dir/reasons/attempt-0001.rank-$rank"
    done
    decides() {
        "$BIN/tessera-ckpt" next "$run_dir" ended=itself code=75 state=RUNNING \
            room=yes may_requeue=yes scavenged=yes --job 1 --attempt 1
    }
    decides | grep -x 'say going on: comm n0001: of 0001'
    echo "93 numeric n9: diverged" >"$run_dir/reasons/attempt-0001.rank-0009"
    decides | grep 'n9: diverged'
}
