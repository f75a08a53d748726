#!/usr/bin/env bats
# Every style of model trains, on documents that share samples and on whole
# text. The same bits for any number of threads and ranks and whatever is computed
# again: tests/matrix.table.

load run_helpers

setup_file() {
    data_folder
    mv "$DIR/data" "$DIR/whole"
    # a document per line, most of them shorter than a sample
    fold -s -w 40 "$DIR/text" | grep . | sed G >"$DIR/lines"
    "$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.05 \
        --separator '' --out "$DIR/packed" "$DIR/lines"
}

# style RANKS DIR PRESET DATA [key=value ...]: 20 steps on one thread
style() {
    local ranks=$1 dir=$2 preset=$3 data=$4
    shift 4
    train "$ranks" "$dir" "model.preset=$preset" train.max_duration=20ba \
        "data.train=$DIR/$data/train" "data.eval=$DIR/$data/eval" \
        checkpoint.interval=20ba hardware.threads=1 "$@"
    [ "$(basename "$(newest "$dir")")" = step-000000020 ]
}

losses() { # DIR: what does not depend on time
    grep -o '"loss": [^,]*\|"grad_norm": [^,]*' "$1/metrics.jsonl"
}

loss_falls() { # DIR
    awk -F'"loss": ' '{ split($2, a, ","); if (NR <= 4) first += a[1]; if (NR > 16) last += a[1] }
        END { exit !(NR == 20 && last < first - 1) }' "$1/metrics.jsonl"
}

@test "packed samples have documents, whole text has none" {
    "$BIN/tessera-data" head --tokens --count 20 "$DIR/packed/train" >"$DIR/cat"
    [ "$(grep -c '\b256\b' "$DIR/cat")" -ge 19 ]
    "$BIN/tessera-data" head --tokens --count 20 "$DIR/whole/train" >"$DIR/cat"
    ! grep -q '\b256\b' "$DIR/cat"
}

@test "every style learns, on whole text and packed" {
    local preset data
    for preset in mpt-tiny llama-tiny moe-tiny; do
        for data in whole packed; do
            style 1 "$DIR/$preset-$data" $preset $data
            loss_falls "$DIR/$preset-$data"
        done
    done
}

@test "moe-tiny: the load-balance loss counts" {
    style 1 "$DIR/free" moe-tiny whole model.balance_weight=0
    [ "$(digest "$DIR/free")" != "$(digest "$DIR/moe-tiny-whole")" ]
}

@test "fewer bits of what is kept: it trains, to other bits" {
    local preset packing
    for packing in mpt-tiny:int8 llama-tiny:bf16 moe-tiny:int8; do
        preset=${packing%:*}
        style 1 "$DIR/kept" $preset packed "memory.compression=${packing#*:}"
        loss_falls "$DIR/kept"
        [ "$(digest "$DIR/kept")" != "$(digest "$DIR/$preset-packed")" ]
        rm -rf "$DIR/kept"
    done
}

@test "dropout: other bits, and a smaller leaf has the same mask" {
    drop=(model.dropout_embedding=0.1 model.dropout_attention=0.1
        model.dropout_residual=0.1)
    style 1 "$DIR/drop" mpt-tiny whole "${drop[@]}"
    [ "$(digest "$DIR/drop")" != "$(digest "$DIR/mpt-tiny-whole")" ]
    style 1 "$DIR/drop-half" mpt-tiny whole "${drop[@]}" train.microbatch=1
    # a leaf is another order of sums, not another mask
    [ "$(losses "$DIR/drop-half" | head -n 1 | cut -c 1-14)" = \
        "$(losses "$DIR/drop" | head -n 1 | cut -c 1-14)" ]
}
