#!/usr/bin/env bats
# A run that starts from weights or from another run's checkpoint: which weights,
# the same bits however it is spread and whenever it is killed, and what is said
# of what does not fit.

load run_helpers

setup_file() {
    data_folder
    train 2 "$DIR/base" train.max_duration=6ba parallel.strategy=zero3
}

# other data order and schedule than those of the base; the shape is the weights'
FROM=(train.seed=5 train.max_duration=4ba checkpoint.interval=2ba
    checkpoint.keep=0 eval.interval=4ba model.preset=weights)

# differing A B: the tensors of the model that are not equal, a line each
differing() {
    "$BIN/tessera-ckpt" diff "$(newest "$1")" "$(newest "$2")" |
        sed -n 's/^\(transformer[^:]*\|lm_head[^:]*\): .*/\1/p'
}

event() { # DIR NAME: the last of that name
    grep "\"event\": *\"$2\"" "$1/ledger.jsonl" | tail -n 1
}

uuid() { # DIR
    grep -o '"run_uuid": *"[^"]*"' "$(newest "$1")/MANIFEST.json" | head -n 1
}

@test "the weights are those of the other run, the position is step 0" {
    train 1 "$DIR/still" "${FROM[@]}" "model.weights=$DIR/base" \
        train.max_duration=1ba optimizer.lr=0
    [ -z "$(differing "$DIR/base" "$DIR/still")" ]
    [ "$(basename "$(newest "$DIR/still")")" = step-000000001 ]
    event "$DIR/still" weights
    [[ $(event "$DIR/still" weights) == *'"setting": "model.weights", "path": "'*'/base/checkpoints/step-000000006", "kind": "checkpoint", "dtype": "float32", "sha256": "'*'"step": 6, '* ]]
    # and so on, in one shard then
    train 2 "$DIR/again" "${FROM[@]}" "model.weights=$(newest "$DIR/still")" \
        train.max_duration=1ba optimizer.lr=0
    [ -z "$(differing "$DIR/base" "$DIR/again")" ]
}

@test "the same bits on any ranks, with any strategy, killed and resumed" {
    local want
    train 1 "$DIR/one" "${FROM[@]}" "model.weights=$DIR/base"
    want=$(digest "$DIR/one")
    for way in zero1:2 zero2:4 ddp:2; do
        train "${way#*:}" "$DIR/$way" "${FROM[@]}" "model.weights=$DIR/base" \
            "parallel.strategy=${way%:*}"
        [ "$(digest "$DIR/$way")" = "$want" ]
    done
    [ "$want" != "$(digest "$DIR/base")" ]

    # killed before the first checkpoint and after it, then without the weights
    cp -r "$DIR/base" "$DIR/lent"
    start 2 "$DIR/killed" "${FROM[@]}" "model.weights=$DIR/lent" \
        parallel.strategy=zero3 checkpoint.interval=1ba train.max_duration=400ba
    wait_for 60 steps_logged "$DIR/killed" 3
    # shellcheck disable=SC2046,SC2154 # one pid a word; start sets pid
    kill -9 $(ranks_of "$pid")
    wait "$pid" || true
    rm -rf "$DIR/lent"
    rm -rf "$DIR"/killed/checkpoints/step-00000000[3-9]
    ends 0 "is for the first start only" train 1 "$DIR/killed" "${FROM[@]}" \
        "model.weights=$DIR/lent" log.level=info checkpoint.interval=1ba
    [ "$(digest "$DIR/killed")" = "$want" ]
}

@test "what is ignored stays fresh, and the ledger says so" {
    train 2 "$DIR/part" "${FROM[@]}" "model.weights=$DIR/base" \
        model.weights_ignore='*.norm_f.* *.blocks.0.ffn.*' \
        train.max_duration=1ba optimizer.lr=0 parallel.strategy=zero3
    differing "$DIR/base" "$DIR/part" >"$DIR/differ"
    cat "$DIR/differ"
    [ "$(grep -c 'blocks.0.ffn\|norm_f' "$DIR/differ")" -ge 2 ]
    run grep -v 'blocks.0.ffn\|norm_f' "$DIR/differ"
    [ "$status" -eq 1 ]
    event "$DIR/part" weights
    [ "$(event "$DIR/part" weights | grep -o '"transformer[^"]*"' | wc -l)" -eq 6 ]
    [[ $(event "$DIR/part" weights) == *'"ignore": "*.norm_f.* *.blocks.0.ffn.*"'* ]]
}

@test "what does not match is one list of names and shapes" {
    # settings first, then the first ten tensors
    ends 93 "weights: and 14 more" train 2 "$DIR/wrong" "${FROM[@]}" \
        "model.weights=$DIR/base" model.ffn_width=256 model.n_layers=5
    [[ "$output" == *"weights: model.n_layers is 5, that of the weights 4; "*"model.ffn_width is 256, that of the weights 512"*"blocks.0.ffn.up_proj.weight is [512, 128] there, [256, 128] in the model"* ]]
    [[ "$output" == *"blocks.2.ffn.down_proj.weight is [128, 512] there"* ]]
    [[ "$output" == *"model.weights: model.n_layers is 5, "*"24 tensors do not match"* ]]
    [ "$(grep -c 'weights: transformer' <<<"$output")" -eq 10 ]
    ends 93 "weights: model.n_layers is 1, that of the weights 4" train 1 "$DIR/wrong" \
        "${FROM[@]}" "model.weights=$DIR/base" model.n_layers=1
    [[ "$output" == *"weights 4"*"is [128] there and not in the model"* ]]
    ends 93 "2 settings differ: model.n_heads is 8, that of the weights 4; model.activation is silu" \
        train 1 "$DIR/wrong" "${FROM[@]}" "model.weights=$DIR/base" model.n_heads=8 model.activation=silu
    [ ! -e "$DIR/wrong/metrics.jsonl" ] || [ ! -s "$DIR/wrong/metrics.jsonl" ]
    # a plan says the same
    ends 93 "?512, 128? there, ?256, 128? in the model" \
        "$BIN/tessera-plan" "model.weights=$DIR/base" model.ffn_width=256
    ends 0 "model (weights)" "$BIN/tessera-plan" "model.weights=$DIR/base" data.seq_len=64
}

@test "what may differ does: dropout, a larger vocabulary" {
    train 1 "$DIR/free" "${FROM[@]}" "model.weights=$DIR/base" \
        model.dropout_residual=0.1 model.vocab_size=384 train.max_duration=1ba \
        optimizer.lr=0
    "$BIN/tessera-ckpt" show "$(newest "$DIR/free")" | grep -q 'wte.*384'
    run "$BIN/tessera-train" --print model.d_model "$CONF" \
        "model.weights=$DIR/base" model.preset=weights "run.dir=$DIR/none"
    [ "$output" = 128 ]
}

@test "one rank looks for the shape, none for what needs no model" {
    command -v strace >/dev/null || skip "no strace"
    mkdir "$DIR/bin"
    printf '#!/bin/sh\nexec strace -qq -ff -e trace=open,openat -o "%s/calls" "%s" "$@"\n' \
        "$DIR" "$BIN/tessera-train" >"$DIR/bin/tessera-train"
    chmod 755 "$DIR/bin/tessera-train"
    BIN=$DIR/bin run train 2 "$DIR/long" "${FROM[@]}" "model.weights=$DIR/base" \
        data.seq_len=100000
    echo "$output"
    [ "$status" -eq 64 ]
    [[ "$output" == *"data.seq_len (100000) is larger than model.max_seq_len"* ]]
    [ "$(grep -l 'tiny.*cfg' "$DIR"/calls.* | wc -l)" -eq 2 ]
    [ "$(grep -l "$DIR/base/" "$DIR"/calls.* | wc -l)" -eq 1 ]
}

@test "settings that do nothing, and paths without a model, are errors" {
    ends 64 "model.weights_ignore does nothing without model.weights" \
        train 1 "$DIR/none" model.weights_ignore='*'
    ends 64 checkpoint.load_ignore train 1 "$DIR/none" checkpoint.load_ignore='*'
    ends 64 checkpoint.load_weights_only train 1 "$DIR/none" checkpoint.load_weights_only=true
    ends 64 "from one of them" train 1 "$DIR/none" "model.weights=$DIR/base" \
        "checkpoint.load=$DIR/base"
    ends 64 "give one of them" train 1 "$DIR/none" "${FROM[@]}"
    ends 64 "command line: model.weights: $DIR/nowhere: no such file" \
        train 1 "$DIR/none" "${FROM[@]}" "model.weights=$DIR/nowhere"
    ends 64 "holds no model" train 2 "$DIR/none" "model.weights=$DIR/data"
}

@test "damage in a shard ends the start on all ranks, with its name" {
    cp -r "$DIR/base" "$DIR/damaged"
    local shard
    shard=$(newest "$DIR/damaged")/shard-00001-of-00002.h5
    local size at
    size=$(stat -c %s "$shard")
    for at in $(seq 5000 50000 "$size"); do
        printf 'damage' | dd of="$shard" bs=1 conv=notrunc status=none seek="$at"
    done
    ends 93 "shard-00001-of-00002.h5" train 2 "$DIR/hurt" "${FROM[@]}" \
        "model.weights=$(newest "$DIR/damaged")"
}

@test "data of another tokenizer are refused, or warned of if that is meant" {
    "$BIN/tessera-data" train-tokenizer --vocab-size 300 --out "$DIR/tok" \
        "$DIR/text"
    "$BIN/tessera-data" tokenize --seq-len 64 --tokenizer "$DIR/tok" \
        --out "$DIR/bpe" "$DIR/text"
    local bpe=("${FROM[@]}" "model.weights=$DIR/base" train.max_duration=1ba
        "data.train=$DIR/bpe" data.eval= eval.samples=0)
    ends 93 "model.weights_tokenizer" train 2 "$DIR/bpe-run" "${bpe[@]}"
    [[ "$output" == *"was trained with another tokenizer"* ]]
    ends 0 "was trained with another tokenizer" train 1 "$DIR/bpe-run" "${bpe[@]}" \
        model.weights_tokenizer=any
    [[ "$output" == *"300 tokens, the weights of"*"were trained with 257"* ]]
}

@test "data whose texts end with another token are warned of, once" {
    "$BIN/tessera-hf" export "$DIR/base" --out "$DIR/hf"
    sed -i 's/"eos_token_id": 256/"eos_token_id": 10/' "$DIR"/hf/*.json
    ends 0 "texts of the data end" train 2 "$DIR/ends" "${FROM[@]}" \
        "model.weights=$DIR/hf" train.max_duration=1ba
    [ "$(grep -c "texts of the data end with token 256, those that .*/hf was trained with did with 10" <<<"$output")" -eq 1 ]
    run train 1 "$DIR/same-end" "${FROM[@]}" "model.weights=$DIR/base" \
        train.max_duration=1ba
    [[ "$output" != *"texts of the data end"* ]]
}

@test "experts that nothing balances are warned of" {
    train 1 "$DIR/moe" train.max_duration=1ba model.experts=2 \
        model.experts_top_k=1
    ends 0 "model.balance_weight is 0, and " train 1 "$DIR/moe-on" "${FROM[@]}" \
        "model.weights=$DIR/moe" train.max_duration=1ba
    [[ "$output" == *"does not say otherwise"* ]]
    ends 0 "" train 1 "$DIR/moe-said" "${FROM[@]}" "model.weights=$DIR/moe" \
        train.max_duration=1ba model.balance_weight=0.01
    [[ "$output" != *"balance_weight"* ]]
}

@test "checkpoint.load goes on with everything: the same bits as without a break" {
    train 1 "$DIR/long" train.max_duration=8ba scheduler.t_max=8ba \
        checkpoint.interval=4ba checkpoint.keep=0
    train 2 "$DIR/rest" "checkpoint.load=$DIR/long/checkpoints/step-000000004" \
        train.max_duration=8ba scheduler.t_max=8ba parallel.strategy=zero2
    [ "$(digest "$DIR/rest")" = "$(digest "$DIR/long")" ]
    event "$DIR/rest" load
    [[ $(event "$DIR/rest" load) == *'"setting": "checkpoint.load"'*'"step": 4,'* ]]
    [ "$(uuid "$DIR/rest")" != "$(uuid "$DIR/long")" ]

    # other data and another schedule, then on from its own checkpoint
    "$BIN/tessera-data" tokenize --seq-len 64 --out "$DIR/more" "$DIR/text"
    ends 0 "the data or their order change after step 8 (checkpoint.load)" \
        train 1 "$DIR/changed" "checkpoint.load=$DIR/long" train.max_duration=10ba \
        "data.train=$DIR/more" optimizer.lr=1e-4
    train 2 "$DIR/changed" "checkpoint.load=$DIR/gone" train.max_duration=12ba \
        "data.train=$DIR/more" optimizer.lr=1e-4 model.preset=weights
    [ "$(basename "$(newest "$DIR/changed")")" = step-000000012 ]
    [[ $(head -n 1 "$DIR/changed/metrics.jsonl") == *'"step": 9,'* ]]
}

@test "checkpoint.load: weights only, ignored tensors, what cannot be kept" {
    train 2 "$DIR/only" "${FROM[@]}" "checkpoint.load=$DIR/base" \
        checkpoint.load_weights_only=true
    train 1 "$DIR/same" "${FROM[@]}" "model.weights=$DIR/base"
    [ "$(digest "$DIR/only")" = "$(digest "$DIR/same")" ]

    train 1 "$DIR/fresh" "${FROM[@]}" "checkpoint.load=$DIR/base" \
        checkpoint.load_ignore='optimizer/* *.norm_f.*' optimizer.lr=0 \
        train.max_duration=7ba optimizer.name=lion log.level=info 2>"$DIR/told"
    grep -q "leaves out .* tensors of the optimizer's state: they begin at 0" "$DIR/told"
    differing "$DIR/base" "$DIR/fresh" >"$DIR/differ"
    cat "$DIR/differ"
    run grep -v norm_f "$DIR/differ"
    [ "$status" -eq 1 ]
    ends 93 "is not in the model" train 1 "$DIR/no1" "${FROM[@]}" \
        "checkpoint.load=$DIR/base" optimizer.name=lion
    [[ "$output" == *"optimizer/exp_avg_sq/"* ]]
    ends 93 "train.global_batch = 8, now it is 16" train 1 "$DIR/no2" "${FROM[@]}" \
        "checkpoint.load=$DIR/base" train.global_batch=16
}

# ratio DIR PATTERN: of the largest change from the base's weights of such names,
# in the run's one step, to its rate; with moments of 0 AdamW's is 1
ratio() {
    local rate
    rate=$(sed -n 's/.*"lr": \([^,}]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1)
    "$BIN/tessera-ckpt" diff "$DIR/base/checkpoints/step-000000006" "$(newest "$1")" |
        grep "^$2" | tee /dev/stderr |
        awk -v rate="$rate" '{
                sub(/.*max absolute /, "")
                sub(/,.*/, "")
                if ($0 + 0 > most) most = $0 + 0
            }
            END { printf "%.3f", most / rate }'
}

@test "moments that are left out begin there, and are corrected as in a new run" {
    local on=("${FROM[@]}" "checkpoint.load=$DIR/base" optimizer.lr=1e-3
        optimizer.weight_decay=0) one want at
    one=("${on[@]}" train.max_duration=7ba scheduler.t_max=10ba)
    train 1 "$DIR/with" "${one[@]}"
    train 1 "$DIR/all" "${one[@]}" checkpoint.load_ignore='optimizer/*'
    train 1 "$DIR/some" "${one[@]}" checkpoint.load_ignore='optimizer/*norm_f*'
    [ "$(ratio "$DIR/all" transformer)" = 1.000 ]
    [ "$(ratio "$DIR/some" transformer.norm_f)" = 1.000 ]
    [ "$(ratio "$DIR/with" transformer.norm_f)" != 1.000 ]
    # the rest is as it would be
    differing "$DIR/with" "$DIR/some" >"$DIR/differ"
    grep -q norm_f "$DIR/differ"
    run grep -v norm_f "$DIR/differ"
    [ "$status" -eq 1 ]

    # however it is spread, and however often it is interrupted
    on+=(checkpoint.load_ignore='optimizer/*norm_f* optimizer/exp_avg_sq/*attn*'
        scheduler.t_max=10ba checkpoint.interval=1ba)
    train 1 "$DIR/went" "${on[@]}" train.max_duration=10ba
    want=$(digest "$DIR/went")
    grep -q '"moments_began"' "$(newest "$DIR/went")/MANIFEST.json"
    for at in ddp:2 zero1:3 zero2:2 zero3:3; do
        rm -rf "$DIR/goes"
        train "${at#*:}" "$DIR/goes" "${on[@]}" train.max_duration=8ba
        train "${at#*:}" "$DIR/goes" "${on[@]}" train.max_duration=10ba \
            "parallel.strategy=${at%:*}"
        echo "$at"
        [ "$(digest "$DIR/goes")" = "$want" ]
    done
    # and by who goes on from that in turn
    train 2 "$DIR/next" "${FROM[@]}" train.max_duration=10ba scheduler.t_max=10ba \
        optimizer.lr=1e-3 optimizer.weight_decay=0 \
        "checkpoint.load=$DIR/went/checkpoints/step-000000008"
    [ "$(digest "$DIR/next")" = "$want" ]
}
