#!/usr/bin/env bats
# tessera-hf: a trained model goes out as a Hugging Face folder and as a GGUF
# file, comes back with every bit, and what does not fit is refused.

load run_helpers

LLAMA=(model.positions=rope model.norm=rmsnorm model.ffn=glu model.activation=silu
    model.bias=false model.n_kv_heads=1 eval.interval=0ba)

setup_file() {
    data_folder
    # as Llama, and as GPT-2
    train 1 "$DIR/llama" train.max_duration=2ba "${LLAMA[@]}"
    train 1 "$DIR/gpt2" train.max_duration=2ba eval.interval=0ba
    "$BIN/tessera-hf" export "$DIR/llama" --out "$DIR/out"
}

setup() {
    load run_helpers
    HF=$BIN/tessera-hf
}

# refused CODE PATTERN COMMAND...: says so, and leaves nothing behind
refused() {
    local code=$1 pattern=$2
    shift 2
    run "$@"
    echo "$output"
    [ "$status" -eq "$code" ]
    [[ "$output" =~ $pattern ]]
    [ ! -e "$DIR/no" ]
    [ -z "$(find "$DIR" -maxdepth 1 -name '.no*')" ]
}

copy() { # what is in the folder may be changed then
    rm -rf "$DIR/copy"
    cp -r "$DIR/out" "$DIR/copy"
}

@test "a run goes out and comes back, bit for bit" {
    for name in llama gpt2; do
        rm -rf "$DIR/hf" "$DIR/back"
        "$HF" export "$DIR/$name" --out "$DIR/hf" --verify
        "$HF" import "$DIR/hf" --out "$DIR/back" --verify
        run "$HF" verify "$DIR/$name" "$DIR/back"
        [ "$status" -eq 0 ]
        [[ "$output" == *"equal, bit for bit"* ]]
        "$BIN/tessera-ckpt" verify "$DIR/back"
    done
    rm -rf "$DIR/hf" "$DIR/back"
}

@test "the folder says what the model is and where it comes from" {
    cd "$DIR/out"
    [ "$(find . -type f | sort | tr '\n' ' ')" = "./README.md ./config.json \
./generation_config.json ./model.safetensors ./tokenizer.json \
./tokenizer_config.json " ]
    grep -q '"LlamaForCausalLM"' config.json
    grep -q '"eos_token_id": 256' config.json generation_config.json
    grep -q '"eos_token": "<|endoftext|>"' tokenizer_config.json
    grep -q '| step | 2 |' README.md
    grep -q '| data from step 0 |' README.md
    # without padding of its own it is the end, and no embedding that stays
    grep -q '"pad_token_id": 256' generation_config.json
    grep -q '"pad_token": "<|endoftext|>"' tokenizer_config.json
    "$HF" export "$DIR/out" --out "$DIR/again"
    diff -r "$DIR/out" "$DIR/again" --exclude=README.md
    ! grep pad_token_id "$DIR/again/config.json"
    rm -rf "$DIR/again"
}

@test "the tokenizer of bytes is a tokenizer.json that does the same" {
    "$BIN/tessera-data" encode --tokenizer bytes <<<"Grüße 12" >"$DIR/ours"
    "$BIN/tessera-data" encode --tokenizer "$DIR/out" <<<"Grüße 12" >"$DIR/theirs"
    [ -s "$DIR/ours" ]
    cmp "$DIR/ours" "$DIR/theirs"
}

@test "smaller types, in several files" {
    for type in bf16 fp16; do
        rm -rf "$DIR/small"
        "$HF" export "$DIR/llama" --out "$DIR/small" --dtype $type \
            --max-shard-size 100KiB --verify
        [ "$(find "$DIR/small" -name 'model-*.safetensors' | wc -l)" -gt 1 ]
        run "$HF" verify "$DIR/llama" "$DIR/small"
        [ "$status" -eq 0 ]
        [[ "$output" == *"equal, rounded to $type"* ]]
        run "$HF" verify "$DIR/small" "$DIR/llama"
        [ "$status" -eq 1 ]
    done
}

@test "GGUF files and back" {
    for name in llama gpt2; do
        for type in fp32 bf16 fp16 q8_0; do
            rm -f "$DIR/m.gguf"
            "$HF" export "$DIR/$name" --out "$DIR/m.gguf" --format gguf \
                --dtype $type --verify
        done
        rm -rf "$DIR/folder" "$DIR/back"
        "$HF" export "$DIR/$name" --out "$DIR/folder" --format gguf
        "$HF" import "$DIR/folder/model.gguf" --out "$DIR/back" --verify
        "$HF" verify "$DIR/$name" "$DIR/back" | grep -q "equal, bit for bit"
    done
    rm -rf "$DIR/folder" "$DIR/back" "$DIR/m.gguf"
}

@test "wide heads and Llama 3's angles: the same on 2 ranks, and by GGUF files" {
    local shape=(train.max_duration=2ba "${LLAMA[@]}" model.head_dim=48
        model.rope_scaling=llama3 model.rope_factor=8 model.rope_low_freq_factor=1
        model.rope_high_freq_factor=4 model.rope_original_len=16)
    train 1 "$DIR/wide" "${shape[@]}"
    train 2 "$DIR/wide2" "${shape[@]}" parallel.strategy=zero3
    "$HF" verify "$DIR/wide" "$DIR/wide2" | grep -q "equal, bit for bit"
    "$HF" export "$DIR/wide" --format gguf --out "$DIR/wide.gguf" --verify
    "$HF" export "$DIR/wide.gguf" --out "$DIR/wide.hf" --verify
    grep -q '"head_dim": 48' "$DIR/wide.hf/config.json"
    grep -q '"low_freq_factor": 1.0' "$DIR/wide.hf/config.json"
    rm -rf "$DIR"/wide*
}

@test "windows: the same bits on 2 ranks, out and in, but not as GGUF" {
    local shape=(train.max_duration=2ba "${LLAMA[@]}" model.window=12
        model.window_interval=3 model.norm_place=after model.qk_norm=full)
    train 1 "$DIR/win" "${shape[@]}"
    train 2 "$DIR/win2" "${shape[@]}" parallel.strategy=zero3
    "$HF" verify "$DIR/win" "$DIR/win2" | grep -q "equal, bit for bit"
    "$HF" export "$DIR/win" --out "$DIR/win.hf" --verify
    grep -q '"sliding_window": 12' "$DIR/win.hf/config.json"
    grep -q Olmo3ForCausalLM "$DIR/win.hf/config.json"
    "$HF" import "$DIR/win.hf" --out "$DIR/win.back" --verify
    "$BIN/tessera-generate" "$DIR/win.back" --prompt 'the king and the queen' --greedy --max-tokens 40 >"$DIR/win.text"
    "$BIN/tessera-generate" "$DIR/win" --prompt 'the king and the queen' --greedy --max-tokens 40 | cmp - "$DIR/win.text"
    refused 93 "model.window is not written as GGUF" "$HF" export "$DIR/win" --format gguf --out "$DIR/no.gguf"
    rm -rf "$DIR"/win*
}

@test "gemma3: the same bits on 2 ranks, out and in, but not as GGUF" {
    local shape=(train.max_duration=2ba "${LLAMA[@]}" model.window=12
        model.window_interval=3 model.window_rope_theta=500 model.norm_place=around
        model.norm_plus_one=true model.qk_norm=head model.activation=gelu_tanh
        model.tied=true model.embedding_scale=11.313708498984761 model.attention_scale=0.125)
    train 1 "$DIR/gem" "${shape[@]}"
    train 2 "$DIR/gem2" "${shape[@]}" parallel.strategy=zero3
    "$HF" verify "$DIR/gem" "$DIR/gem2" | grep -q "equal, bit for bit"
    "$HF" export "$DIR/gem" --out "$DIR/gem.hf" --verify
    grep -q '"query_pre_attn_scalar": 64' "$DIR/gem.hf/config.json"
    grep -q Gemma3ForCausalLM "$DIR/gem.hf/config.json"
    "$HF" import "$DIR/gem.hf" --out "$DIR/gem.back" --verify
    "$BIN/tessera-generate" "$DIR/gem.back" --prompt 'the king and the queen' --greedy --max-tokens 40 >"$DIR/gem.text"
    "$BIN/tessera-generate" "$DIR/gem" --prompt 'the king and the queen' --greedy --max-tokens 40 | cmp - "$DIR/gem.text"
    refused 93 "model.window is not written as GGUF" "$HF" export "$DIR/gem" --format gguf --out "$DIR/no.gguf"
    train 1 "$DIR/gem3" "${shape[@]}" model.window=0 model.window_interval=0 model.window_rope_theta=0
    refused 93 "Gemma3ForCausalLM is not written as GGUF" "$HF" export "$DIR/gem3" --format gguf --out "$DIR/no.gguf"
    train 1 "$DIR/gem4" "${shape[@]}" model.embedding_scale=7
    refused 93 "Gemma3ForCausalLM cannot express model.embedding_scale" "$HF" export "$DIR/gem4" --out "$DIR/no.hf"
    rm -rf "$DIR"/gem*
}

@test "a folder with a tokenizer.model alone: in, and out as tokenizer.json" {
    cp -r "$DIR/out" "$DIR/spm"
    rm "$DIR"/spm/tokenizer*.json
    cp "$BATS_TEST_DIRNAME/fuzz/corpus/sentencepiece/bytes" "$DIR/spm/tokenizer.model"
    "$HF" import "$DIR/spm" --out "$DIR/spm.run" --verify
    "$HF" export "$DIR/spm.run" --out "$DIR/spm.hf" --verify
    jq -e '.model.vocab["▁abc"] == 261' "$DIR/spm.hf/tokenizer.json"
    for name in spm spm/tokenizer.model spm.hf spm.run; do
        printf 'abc bc' | "$BIN/tessera-data" encode --tokenizer "$DIR/$name" | tr -s '\n' ' ' | grep -q '261 263 260'
    done
    cp "$BATS_TEST_DIRNAME/fuzz/corpus/sentencepiece/unigram" "$DIR/spm/tokenizer.model"
    "$HF" import "$DIR/spm" --out "$DIR/spm.none" 2>&1 | grep -q "the type unigram can't be done here"
    # what begins texts otherwise, and another thing by that name: none, with a word
    cp "$BATS_TEST_DIRNAME/fuzz/corpus/sentencepiece/bytes" "$DIR/spm/tokenizer.model"
    for key in legacy add_prefix_space; do
        echo "{\"$key\": false}" >"$DIR/spm/tokenizer_config.json"
        "$HF" import "$DIR/spm" --out "$DIR/spm.$key" 2>&1 | grep -q 'texts begin otherwise'
    done
    # tokens that a file beside it adds: a piece is one from then on, wherever it is read
    echo '{"additional_special_tokens": ["<s>", "▁abc"]}' >"$DIR/spm/special_tokens_map.json"
    rm "$DIR/spm/tokenizer_config.json"
    "$HF" import "$DIR/spm" --out "$DIR/spm.added"
    "$HF" export "$DIR/spm.added" --out "$DIR/spm.added.hf"
    jq -e '.added_tokens | any(.id == 261 and .special)' "$DIR/spm.added.hf/tokenizer.json"
    echo '{"additional_special_tokens": ["<none>"]}' >"$DIR/spm/special_tokens_map.json"
    # one that is nowhere is no reason to lose the weights, but the tokenizer is none to use
    ends 0 "adds the token '<none>', which it lacks*that can be used: texts can't be read*verified" \
        "$HF" import "$DIR/spm" --out "$DIR/spm.nowhere" --verify
    "$HF" export "$DIR/spm" --out "$DIR/spm.again" --verify
    ends 0 'does not say which tokenizer' train 1 "$DIR/spm.run2" train.max_duration=1ba "${LLAMA[@]}" \
        model.weights="$DIR/spm"
    ends 64 "no tokenizer with the model that can be used*'<none>', which it lacks" \
        "$BIN/tessera-generate" "$DIR/spm" --prompt the
    ends 93 "'<none>', which it lacks" "$BIN/tessera-data" encode --tokenizer "$DIR/spm" </dev/null
    echo '{"eos_token": "<none>"}' >"$DIR/spm/special_tokens_map.json"
    cp "$DIR/spm/special_tokens_map.json" "$DIR/spm/tokenizer_config.json"
    ends 0 "eos_token is '<none>', which is no token*that can be used" \
        "$HF" import "$DIR/spm" --out "$DIR/spm.end"
    rm "$DIR"/spm/{special_tokens_map,tokenizer_config}.json
    echo 'IQ== 0' >"$DIR/spm/tokenizer.model"
    ends 0 'tokenizer.model: *verified' \
        "$HF" import "$DIR/spm" --out "$DIR/spm.tiktoken" --verify
    rm -rf "$DIR"/spm*
}

@test "a run starts from what was imported, with its tokenizer" {
    rm -rf "$DIR/back" "$DIR/start"
    "$HF" import "$DIR/out" --out "$DIR/back/step-000000000"
    train 1 "$DIR/start" train.max_duration=1ba "${LLAMA[@]}" \
        model.weights="$DIR/back/step-000000000" optimizer.lr=1e-30 model.weights_tokenizer=any
    run "$HF" verify "$DIR/llama" "$DIR/start"
    echo "$output"
    [[ "$output" == *"equal, bit for bit"* ]]
    rm -rf "$DIR/back" "$DIR/start"
}

@test "GGUF: what programs that run it would compute otherwise is refused" {
    local kind
    for kind in "model.positions=rope model.norm=rmsnorm model.ffn=glu gelu llama silu" \
        "model.positions=rope model.norm=rmsnorm model.ffn=glu gelu_tanh llama silu" \
        "model.positions=learned model.norm=layernorm model.ffn=mlp silu gpt2 gelu_tanh"; do
        set -- $kind
        rm -rf "$DIR/act"
        train 1 "$DIR/act" train.max_duration=1ba eval.interval=0ba \
            model.bias=$([ "$5" = gpt2 ] && echo true || echo false) "$1" "$2" "$3" model.activation="$4"
        refused 93 "model.activation = \"$4\" is not written as GGUF, where $5 always has $6: export --format hf" \
            "$HF" export "$DIR/act" --format gguf --out "$DIR/no.gguf"
        "$HF" export "$DIR/act" --out "$DIR/act.hf"
        rm -rf "$DIR/act.hf"
    done
}

# says MODEL: what a text of it is made with, and the text
says() {
    "$BIN/tessera-generate" "$1" --prompt "the king" --json --max-tokens 40 \
        2>"$DIR/log"
    grep -o "temperature.*\|tokens: greedy.*" "$DIR/log"
}

@test "how a model's makers would have it talk goes through runs and exports" {
    copy
    echo '{"do_sample": true, "temperature": 0.2, "top_p": 0.9, "top_k": 7,
        "repetition_penalty": 1.1, "eos_token_id": [256, 101, 115],
        "my_key": ["x"]}' >"$DIR/copy/generation_config.json"
    sed -i 's/"bos_token_id"/"pad_token_id": 35, &/; t; s/"eos_token_id"/"pad_token_id": 35, &/' \
        "$DIR/copy/config.json"
    sed -i 's/"eos_token": "[^"]*"/"eos_token": "e"/; /pad_token/d' \
        "$DIR/copy/tokenizer_config.json"
    run "$HF" import "$DIR/copy" --out "$DIR/back"
    echo "$output"
    [ "$status" -eq 0 ]
    train 1 "$DIR/start" train.max_duration=1ba "${LLAMA[@]}" \
        model.weights="$DIR/back" optimizer.lr=1e-30 model.weights_tokenizer=any
    run "$HF" export "$DIR/start" --out "$DIR/hf"
    [[ "$output" == *'the pad_token, token 35, is a piece of texts for the tokenizer'* ]]
    [[ "$output" == *'takes it as special, and texts with "e" get other tokens'* ]]
    "$HF" export "$DIR/hf" --out "$DIR/again"
    "$HF" export "$DIR/start" --format gguf --out "$DIR/m.gguf"
    "$HF" export "$DIR/m.gguf" --out "$DIR/ofgguf"
    diff -r "$DIR/hf" "$DIR/again" --exclude=README.md --exclude=tokenizer.json
    # who reads a folder has its named tokens added, as transformers has
    [ "$(grep -c '"special": true' "$DIR/hf/tokenizer.json")" -eq 1 ]
    [ "$(grep -c '"special": true' "$DIR/again/tokenizer.json")" -eq 3 ]
    for folder in hf ofgguf; do
        tr -d ' \n' <"$DIR/$folder/generation_config.json" >"$DIR/flat"
        cat "$DIR/flat"
        for part in '"do_sample":true' '"temperature":0.2' '"top_p":0.9' \
            '"top_k":7' '"repetition_penalty":1.1' '"pad_token_id":35'; do
            grep -qF "$part" "$DIR/flat"
        done
        tr -d ' \n' <"$DIR/$folder/config.json" | grep -qF '"pad_token_id":35'
        tr -d ' \n' <"$DIR/$folder/tokenizer_config.json" |
            grep -qF '"model_input_names":["input_ids","attention_mask"]'
        grep -q '"pad_token": "#"' "$DIR/$folder/tokenizer_config.json"
    done
    grep -q my_key "$DIR/hf/generation_config.json"
    says "$DIR/copy" >"$DIR/want"
    cat "$DIR/want"
    grep -q "top-k 7" "$DIR/want"
    for model in start back hf ofgguf m.gguf; do
        says "$DIR/$model" | diff "$DIR/want" -
        ! grep "latter is taken" "$DIR/log"
    done
    rm -rf "$DIR/back" "$DIR/start" "$DIR/hf" "$DIR/again" "$DIR/ofgguf" "$DIR/m.gguf"
}

@test "tokens that are named and numbered differently are told where it lasts" {
    copy
    rm -rf "$DIR/back"
    sed -i 's/"eos_token": "[^"]*"/"eos_token": "e"/' \
        "$DIR/copy/tokenizer_config.json"
    run "$HF" import "$DIR/copy" --out "$DIR/back"
    [ "$(grep -c "eos_token is token 101, but eos_token_id is 256" <<<"$output")" -eq 1 ]
    run "$BIN/tessera-data" encode --tokenizer "$DIR/copy" <<<"the"
    [ "$(grep -c "eos_token is token 101, but" <<<"$output")" -eq 1 ]
    for model in copy back; do
        run "$BIN/tessera-generate" "$DIR/$model" --prompt a --max-tokens 2
        [ "$status" -eq 0 ]
        [[ "$output" != *"eos_token is"* ]]
    done
    rm -rf "$DIR/back"
}

@test "nothing is overwritten, and the command line is checked" {
    mkdir -p "$DIR/there"
    for command in "export $DIR/llama" "import $DIR/out"; do
        # shellcheck disable=SC2086 # two words
        refused 64 "exists" "$HF" $command --out "$DIR/there"
        # shellcheck disable=SC2086
        refused 64 "needs --out" "$HF" $command
    done
    [ -z "$(ls -A "$DIR/there")" ]
    refused 64 "no command" "$HF" convert "$DIR/out"
    refused 64 "takes 2 paths" "$HF" verify "$DIR/out"
    refused 64 "--dtype takes fp32, bf16, fp16, q8_0, not 'int4'" "$HF" export "$DIR/llama" --out "$DIR/no" --dtype int4
    refused 64 "gguf" "$HF" export "$DIR/llama" --out "$DIR/no" --dtype q8_0
    refused 64 "already" "$HF" import "$DIR/llama" --out "$DIR/no"
    refused 64 "step 0" "$HF" import "$DIR/out" --out "$DIR/no/step-000000007"
    refused 64 "no such file" "$HF" import "$DIR/nothing" --out "$DIR/no"
    refused 64 "holds no model" "$HF" import "$DIR/there" --out "$DIR/no"
}

@test "files that are cut short or missing" {
    copy
    truncate -s -1 "$DIR/copy/model.safetensors"
    refused 93 "model.safetensors" "$HF" import "$DIR/copy" --out "$DIR/no"
    rm "$DIR/copy/model.safetensors"
    refused 93 "has neither" "$HF" import "$DIR/copy" --out "$DIR/no"
    rm -rf "$DIR/copy" "$DIR/m.gguf"
    "$HF" export "$DIR/llama" --out "$DIR/copy" --max-shard-size 100KiB
    rm "$DIR/copy/model-00002-of-"*
    refused 93 "model-00002-of-" "$HF" import "$DIR/copy" --out "$DIR/no"
    "$HF" export "$DIR/llama" --out "$DIR/m.gguf" --format gguf
    truncate -s -1 "$DIR/m.gguf"
    refused 93 "m.gguf" "$HF" import "$DIR/m.gguf" --out "$DIR/no"
    rm -f "$DIR/m.gguf"
}

@test "configurations that do not fit" {
    copy
    sed -i 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 1/' \
        "$DIR/copy/config.json"
    refused 93 "do not match" "$HF" import "$DIR/copy" --out "$DIR/no"
    copy
    sed -i 's/"hidden_size": [0-9]*/"hidden_size": 99999999999/' \
        "$DIR/copy/config.json"
    refused 93 "hidden_size" "$HF" import "$DIR/copy" --out "$DIR/no"
    copy
    sed -i 's/"model_type"/"more": 1, "model_type"/' "$DIR/copy/config.json"
    refused 93 "more is not known" "$HF" import "$DIR/copy" --out "$DIR/no"
}

@test "a tokenizer that does not fit the vocabulary" {
    copy
    sed -i 's/"<|endoftext|>": 256/"<|endoftext|>": 99999/' \
        "$DIR/copy/tokenizer.json"
    refused 93 "vocab_size" "$HF" import "$DIR/copy" --out "$DIR/no"
    copy
    sed -i 's/"eos_token_id": 256/"eos_token_id": 300/' \
        "$DIR/copy/generation_config.json"
    refused 93 "token 300" "$HF" import "$DIR/copy" --out "$DIR/no"
}

@test "an export that is cut off leaves nothing of that name" {
    run bash -c "ulimit -f 64; '$HF' export '$DIR/llama' --out '$DIR/no'"
    [ "$status" -ne 0 ]
    [ ! -e "$DIR/no" ]
    rm -rf "$DIR"/.no.*
}
