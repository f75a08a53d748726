#!/usr/bin/env bats
# Adapters of peft as a MODEL: what it computes is what the run that they were
# exported of computes; what would not be read is refused by name.

load run_helpers

SIX=(train.max_duration=6ba hardware.threads=1 train.global_batch=6
    model.preset=llama-tiny)

setup_file() {
    data_folder
    train 1 "$DIR/llama" "${SIX[@]}"
    "$BIN/tessera-hf" export "$DIR/llama" --out "$DIR/folder"
    train 1 "$DIR/tuned" "${SIX[@]}" "model.weights=$DIR/folder" lora.rank=4 lora.alpha=24 \
        "lora.targets=q_proj v_proj out_proj gate_proj down_proj" optimizer.lr=0.05
    "$BIN/tessera-hf" export "$DIR/tuned" --adapter --out "$DIR/adapter"
}

# changed SED TEXT: with its configuration changed so, the adapter is refused
changed() {
    rm -rf "$DIR/changed"
    cp -r "$DIR/adapter" "$DIR/changed"
    sed -i "$1" "$DIR/changed/adapter_config.json"
    ! cmp -s "$DIR/changed/adapter_config.json" "$DIR/adapter/adapter_config.json"
    ends '!0' "$2" "$BIN/tessera-generate" "$DIR/changed" --prompt a --max-tokens 1
}

@test "an adapter with its base is the run that it was exported of, to the bit" {
    ends 0 '' "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/adapter"
    [[ $output == *equal* ]]
    ends '!0' '' "$BIN/tessera-hf" verify "$DIR/folder" "$DIR/adapter"
    "$BIN/tessera-hf" import "$DIR/adapter" --out "$DIR/merged" --verify
    "$BIN/tessera-hf" export "$DIR/adapter" --out "$DIR/merged.hf" --verify
    "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/merged.hf"
    local of
    for of in tuned adapter; do
        "$BIN/tessera-generate" "$DIR/$of" --prompt 'the king' --greedy --max-tokens 8 >"$DIR/$of.text"
    done
    cmp "$DIR/tuned.text" "$DIR/adapter.text"
    train 1 "$DIR/further" "${SIX[@]}" "model.weights=$DIR/adapter" train.max_duration=1ba
}

@test "its numbers may be said in other ways" {
    cp -r "$DIR/adapter" "$DIR/ways"
    sed -i 's/"lora_alpha": 24/"lora_alpha": 12, "use_rslora": true/' "$DIR/ways/adapter_config.json"
    sed -i 's/"r": 4/"r": 4, "news": null/' "$DIR/ways/adapter_config.json"
    "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/ways"
    cp "$DIR/adapter/adapter_config.json" "$DIR/ways"
    sed -i 's/"lora_alpha": 24/"lora_alpha": 9/
        s/"alpha_pattern": {}/"alpha_pattern": {"self_attn.q_proj": 24, "v_proj": 24, "o_proj": 24, "mlp.gate_proj": 24, "down_proj": 24}/' \
        "$DIR/ways/adapter_config.json"
    "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/ways"
}

@test "the base is found beside it, in the hub's cache, or named" {
    mkdir -p "$DIR/far/hub/models--some--base/refs" "$DIR/far/hub/models--some--base/snapshots"
    cp -r "$DIR/adapter" "$DIR/far/adapter"
    ends 64 "is an adapter of folder, which is not on this machine*$DIR/far/adapter/base" \
        "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/far/adapter"
    ln -s "$DIR/folder" "$DIR/far/adapter/base"
    "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/far/adapter"
    rm "$DIR/far/adapter/base"
    sed -i 's|"folder"|"some/base"|' "$DIR/far/adapter/adapter_config.json"
    ends 64 "is an adapter of some/base" "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/far/adapter"
    ln -s "$DIR/folder" "$DIR/far/hub/models--some--base/snapshots/abc"
    echo abc >"$DIR/far/hub/models--some--base/refs/main"
    HF_HOME=$DIR/far "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/far/adapter"
    ln -s "$DIR/far/adapter" "$DIR/far/adapter/base"
    ends '!0' "more than 16 bases" "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/far/adapter"
}

@test "what would be another model is refused by name" {
    changed 's/"LORA"/"LOHA"/' "peft_type is \"LOHA\""
    changed 's/"r": 4/"r": 4, "use_dora": true/' "use_dora is true"
    changed 's/"r": 4/"r": 4, "modules_to_save": ["lm_head"]/' "modules_to_save is \[\"lm_head\"\]"
    changed 's/"r": 4/"r": 4, "init_lora_weights": "pissa"/' "init_lora_weights is \"pissa\""
    changed 's/"r": 4/"r": 4, "news": {}/' "news is not known"
    changed 's/"r": 4/"r": 8/' "is not of rank 8"
    changed 's/"rank_pattern": {}/"rank_pattern": {".*q_proj": 4}/' "regular expression .*q_proj"
    changed 's/"alpha_pattern": {}/"alpha_pattern": []/' "alpha_pattern is no object"
    changed 's/"lora_alpha": 24/"lora_alpha": 0/' "lora_alpha of * is no number above 0"
    rm "$DIR/changed/adapter_model.safetensors"
    cp "$DIR/adapter/adapter_config.json" "$DIR/changed"
    touch "$DIR/changed/adapter_model.bin"
    ends 64 "adapter_model.bin, Python's own format" "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/changed"
    cp "$DIR/folder/model.safetensors" "$DIR/changed/adapter_model.safetensors"
    ends '!0' "is no adapter of a linear layer" "$BIN/tessera-hf" verify "$DIR/tuned" "$DIR/changed"
    cp -r "$DIR/folder" "$DIR/both"
    cp "$DIR/adapter/"adapter_* "$DIR/both"
    ends 0 "has an adapter beside its weights, which is not read" \
        "$BIN/tessera-hf" verify "$DIR/folder" "$DIR/both"
}
