#!/usr/bin/env bats
# tessera-train of a part of a model: frozen parameters and adapters (LoRA). The
# same bits under every strategy and after a kill, checkpoints of what trains,
# and what is refused.

load run_helpers

setup_file() {
    data_folder
}

SIX=(train.max_duration=6ba checkpoint.interval=3ba eval.interval=3ba
    hardware.threads=1 train.global_batch=6 parallel.slots=3
    train.microbatch=1)
LORA=(model.preset=llama-tiny lora.rank=4 lora.dropout=0.1)
FREEZE=(model.preset=mpt-tiny
    "model.freeze=transformer.w?e.* *.blocks.0.* *.Wqkv.weight *norm_f.weight")

# What is scored and written during a run, by adapters that matter.
scored() {
    local i
    rm -f "$DIR/lm.jsonl" "$DIR/mc.jsonl"
    for i in 1 2 3 4 5 6 7; do
        echo "{\"context\": \"one $i\", \"continuation\": \"e\"}" >>"$DIR/lm.jsonl"
        echo "{\"query\": \"two $i\", \"choices\": [\"a\", \"th\", \"the\"], \"gold\": $((i % 3))}" >>"$DIR/mc.jsonl"
    done
    printf 'the king\nof\n' >"$DIR/prompts"
    KINDS=("language_modeling:$DIR/lm.jsonl:1" "multiple_choice:$DIR/mc.jsonl")
    SCORED=(optimizer.lr=0.02 "eval.tasks=${KINDS[*]}" eval.tasks_interval=3ba
        "generate.prompts=$DIR/prompts" generate.interval=3ba
        generate.max_tokens=12)
}

# same_scores DIR OTHER
same_scores() {
    [ "$(grep -c '"tasks"' "$1/eval.jsonl")" -eq 2 ]
    [ "$(wc -l <"$1/samples.jsonl")" -eq 4 ]
    cmp <(grep '"tasks"' "$1/eval.jsonl") <(grep '"tasks"' "$2/eval.jsonl")
    cmp "$1/samples.jsonl" "$2/samples.jsonl"
}

# scores_of_checkpoint DIR: what was said last is what its merged weights say
scores_of_checkpoint() {
    "$BIN/tessera-eval" "$1" --task "${KINDS[0]}" --task "${KINDS[1]}" --json >"$DIR/scores"
    grep '"step":6,"tasks"' "$1/eval.jsonl" | grep -o '"right":[0-9]*' >"$DIR/said"
    [ "$(wc -l <"$DIR/said")" -ge 2 ]
    cmp "$DIR/said" <(grep -o '"right": [0-9]*' "$DIR/scores" | tr -d ' ')
    "$BIN/tessera-generate" "$1" --prompt "the king" --max-tokens 12 --json >"$DIR/text"
    grep '"step":6,"number":0' "$1/samples.jsonl" |
        grep -qF "\"text\":$(sed -E 's/.*"completion":("[^}]*"),"prompt_tokens.*/\1/' "$DIR/text"),"
}

@test "tasks and samples: of adapters and frozen parts as of their checkpoints" {
    scored
    train 1 "$DIR/unscored" "${SIX[@]}" "${LORA[@]}" optimizer.lr=0.02
    train 1 "$DIR/scored" "${SIX[@]}" "${LORA[@]}" "${SCORED[@]}"
    [ "$(digest "$DIR/scored")" = "$(digest "$DIR/unscored")" ]
    scores_of_checkpoint "$DIR/scored"
    train 2 "$DIR/scored3" "${SIX[@]}" "${LORA[@]}" "${SCORED[@]}" \
        parallel.strategy=zero3
    [ "$(digest "$DIR/scored3")" = "$(digest "$DIR/unscored")" ]
    same_scores "$DIR/scored3" "$DIR/scored"
    # of frozen blocks nothing is asked of other ranks
    train 1 "$DIR/parts" "${SIX[@]}" "${FREEZE[@]}" "${SCORED[@]}"
    scores_of_checkpoint "$DIR/parts"
    train 2 "$DIR/parts3" "${SIX[@]}" "${FREEZE[@]}" "${SCORED[@]}" \
        parallel.strategy=zero3
    same_scores "$DIR/parts3" "$DIR/parts"
    rm -rf "$DIR/parts" "$DIR/parts3" "$DIR/scored" "$DIR/scored3"
}

@test "tasks and samples where ranks share a sequence" {
    scored
    train 1 "$DIR/alone" "${SIX[@]}" "${LORA[@]}" "${SCORED[@]}" parallel.strategy=zero2 \
        parallel.sequence_chunks=2
    train 2 "$DIR/together" "${SIX[@]}" "${LORA[@]}" "${SCORED[@]}" parallel.strategy=zero3 \
        parallel.sequence_chunks=2 parallel.sequence_degree=2
    [ "$(digest "$DIR/alone")" = "$(digest "$DIR/together")" ]
    same_scores "$DIR/together" "$DIR/alone"
}

@test "a checkpoint has what trains and nothing else" {
    train 1 "$DIR/small" "${SIX[@]}" "${LORA[@]}" lora.targets=v_proj
    local manifest
    manifest=$(newest "$DIR/small")/MANIFEST.json
    grep -q 'v_proj.lora_A.weight"' "$manifest"
    # what does not train has a checksum in the state, and no place as a tensor
    jq -e '[.tensors[].name | select(test("Wqkv.weight$|wte.weight$|norm_1.weight$"))] == []' "$manifest"
}

@test "a run keeps its adapters and what it freezes" {
    train 1 "$DIR/kept" "${SIX[@]}" "${LORA[@]}" train.max_duration=3ba
    ends '!0' "lora.alpha" train 1 "$DIR/kept" "${SIX[@]}" "${LORA[@]}" lora.alpha=8
    ends '!0' "lora.targets" train 1 "$DIR/kept" "${SIX[@]}" "${LORA[@]}" lora.targets=q_proj
    ends '!0' "lora" train 1 "$DIR/kept" "${SIX[@]}" model.preset=llama-tiny
}

@test "adapters of a model that was trained: from its weights, goes on, base gone" {
    local base=$DIR/base
    train 1 "$base" "${SIX[@]}" model.preset=llama-tiny
    train 2 "$DIR/based" "${SIX[@]}" "${LORA[@]}" "model.weights=$base"
    train 1 "$DIR/stages" "${SIX[@]}" "${LORA[@]}" "model.weights=$base" \
        train.max_duration=3ba scheduler.t_max=6ba
    mv "$base" "$DIR/moved"
    ends '!0' '' train 1 "$DIR/stages" "${SIX[@]}" lora.rank=4 lora.dropout=0.1 \
        model.preset=llama-tiny scheduler.t_max=6ba
    [[ $output == *"model.weights"* && $output == *"$base"* ]]
    ends '!0' "not the base" train 1 "$DIR/stages" "${SIX[@]}" "${LORA[@]}" scheduler.t_max=6ba \
        "model.weights=$DIR/kept"
    train 2 "$DIR/stages" "${SIX[@]}" "${LORA[@]}" scheduler.t_max=6ba \
        parallel.strategy=zero3 "model.weights=$DIR/moved"
    [ "$(digest "$DIR/stages")" = "$(digest "$DIR/based")" ]
    # and knows where the base is now
    "$BIN/tessera-hf" export "$DIR/stages" --out "$DIR/stages.hf"
    # another one, of other weights
    train 1 "$DIR/fresh" "${SIX[@]}" "${LORA[@]}"
    [ "$(digest "$DIR/fresh")" != "$(digest "$DIR/based")" ]
}

@test "a run and its base that move together stay together" {
    mkdir "$DIR/project"
    train 1 "$DIR/project/base" "${SIX[@]}" model.preset=llama-tiny
    train 1 "$DIR/project/run" "${SIX[@]}" "${LORA[@]}" "model.weights=$DIR/project/base" \
        train.max_duration=3ba scheduler.t_max=6ba
    mv "$DIR/project" "$DIR/elsewhere"
    "$BIN/tessera-hf" export "$DIR/elsewhere/run" --out "$DIR/exported"
    train 1 "$DIR/elsewhere/run" "${SIX[@]}" lora.rank=4 lora.dropout=0.1 \
        model.preset=llama-tiny scheduler.t_max=6ba
    [ "$(digest "$DIR/elsewhere/run")" = "$(digest "$DIR/based")" ]
    mkdir "$DIR/far"
    mv "$DIR/elsewhere/base" "$DIR/far"
    ends '!0' "$DIR/elsewhere/base*put it, or a link to it, there" \
        "$BIN/tessera-hf" export "$DIR/elsewhere/run" --out "$DIR/gone"
    ln -s "$DIR/far/base" "$DIR/elsewhere/base"
    "$BIN/tessera-hf" export "$DIR/elsewhere/run" --out "$DIR/linked"
}

# eval_loss DIR: the last one
eval_loss() {
    sed -n 's/.*"eval_loss": \([^,}]*\).*/\1/p' "$1/eval.jsonl" | tail -n 1
}

# near A B: within 1e-6
near() {
    echo "$1 and $2"
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d * d <= 1e-12 * a * a) }'
}

@test "merged weights have the loss of the model with its adapters" {
    local still=("${SIX[@]}" model.preset=llama-tiny train.max_duration=1ba
        eval.interval=1ba optimizer.lr=0)
    train 1 "$DIR/first" "${SIX[@]}" "${LORA[@]}" optimizer.lr=0.02 lora.dropout=0
    train 2 "$DIR/merged" "${still[@]}" "model.weights=$DIR/first"
    near "$(eval_loss "$DIR/first")" "$(eval_loss "$DIR/merged")"
    train 1 "$DIR/base0" "${still[@]}"
    [ "$(eval_loss "$DIR/base0")" != "$(eval_loss "$DIR/first")" ]
    # adapters of what adapters gave, and then frozen parts of that
    train 1 "$DIR/second" "${SIX[@]}" "${LORA[@]}" optimizer.lr=0.02 \
        lora.targets=down_proj "model.weights=$DIR/first"
    train 1 "$DIR/third" "${SIX[@]}" model.preset=llama-tiny \
        "model.freeze=*attn* *ffn*" "model.weights=$DIR/second"
    train 1 "$DIR/all" "${still[@]}" "model.weights=$DIR/third"
    near "$(eval_loss "$DIR/third")" "$(eval_loss "$DIR/all")"
    rm -rf "$DIR/first"
    ends '!0' "$DIR/first" train 1 "$DIR/gone" "${still[@]}" "model.weights=$DIR/third"
}

# whole DIR [key=value ...]: the evaluation of what is read of a run as a model
whole() {
    rm -rf "$DIR/whole"
    train 1 "$DIR/whole" "${SIX[@]}" model.preset=llama-tiny "model.weights=$1" train.max_duration=1ba \
        eval.interval=1ba optimizer.lr=0 "${@:2}"
    eval_loss "$DIR/whole"
}

@test "another run's state: adapters by these settings, fresh weights by its seed" {
    local half=("${SIX[@]}" train.max_duration=3ba scheduler.t_max=6ba)
    train 1 "$DIR/l1" "${half[@]}" "${LORA[@]}" lora.alpha=16
    train 1 "$DIR/l2" "${SIX[@]}" "${LORA[@]}" lora.alpha=64 "checkpoint.load=$DIR/l1"
    "$BIN/tessera-hf" export "$DIR/l2" --adapter --out "$DIR/l2.adapter"
    grep -q '"lora_alpha": 64' "$DIR/l2.adapter/adapter_config.json"
    near "$(whole "$DIR/l2")" "$(eval_loss "$DIR/l2")"
    train 1 "$DIR/f1" "${half[@]}" model.preset=llama-tiny "model.freeze=*attn*"
    train 1 "$DIR/f2" "${SIX[@]}" model.preset=llama-tiny "model.freeze=*attn*" \
        train.seed=99 "checkpoint.load=$DIR/f1"
    near "$(whole "$DIR/f2")" "$(eval_loss "$DIR/f2")"
    # freezing alone, then adapters too
    train 1 "$DIR/f3" "${SIX[@]}" model.preset=llama-tiny "model.freeze=*attn*" \
        lora.rank=4 "lora.targets=q_proj" "checkpoint.load=$DIR/f1" \
        "checkpoint.load_ignore=*lora*"
    near "$(whole "$DIR/f3")" "$(eval_loss "$DIR/f3")"
}

# as_phi3 FOLDER: a Llama's folder, whose matrices lie together as Phi-3's do
as_phi3() {
    sed -i 's/LlamaForCausalLM/Phi3ForCausalLM/; s/"llama"/"phi3"/; /"mlp_bias"/d' "$1/config.json"
    perl -MJSON::PP -0777 -i -pe '
        my $n = unpack("Q<", $_);
        my $data = substr($_, 8 + $n);
        my ($old, $new, $out) = (decode_json(substr($_, 8, $n)), {}, "");
        for my $name (sort { $a =~ s/k_proj/r_proj/r cmp $b =~ s/k_proj/r_proj/r } keys %$old) {
            my $t = $old->{$name}; # q, k, v and gate, up in this order
            my ($begin, $end) = @{ $t->{data_offsets} // next };
            my $to = $name =~ s/[qkv]_proj/qkv_proj/r =~ s/(gate|up)_proj/gate_up_proj/r;
            my $at = length $out;
            $new->{$to}{dtype} = $t->{dtype};
            $new->{$to}{shape}[0] += $t->{shape}[0];
            $new->{$to}{shape}[1] = $t->{shape}[1] if @{ $t->{shape} } > 1;
            $new->{$to}{data_offsets} = [ $new->{$to}{data_offsets}[0] // $at, $at + $end - $begin ];
            $out .= substr($data, $begin, $end - $begin);
        }
        my $head = encode_json($new);
        $_ = pack("Q<", length $head) . $head . $out' "$1/model.safetensors"
}

@test "adapters beside Phi-3, whose modules are others, are exported with the whole model" {
    train 1 "$DIR/plain" "${SIX[@]}" model.preset=llama-tiny
    "$BIN/tessera-hf" export "$DIR/plain" --out "$DIR/phi"
    as_phi3 "$DIR/phi"
    "$BIN/tessera-hf" verify "$DIR/plain" "$DIR/phi"
    train 1 "$DIR/beside" "${SIX[@]}" "${LORA[@]}" "model.weights=$DIR/phi"
    run "$BIN/tessera-hf" export "$DIR/beside" --adapter --out "$DIR/beside.adapter"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output == *"a module of Phi-3 is several"* ]]
    "$BIN/tessera-hf" export "$DIR/beside" --out "$DIR/beside.hf"
}

@test "a base whose run goes on is still the base" {
    local half=("${SIX[@]}" train.max_duration=3ba scheduler.t_max=6ba)
    train 1 "$DIR/grows" "${half[@]}" model.preset=llama-tiny
    train 1 "$DIR/leaf" "${half[@]}" "${LORA[@]}" "model.weights=$DIR/grows"
    train 1 "$DIR/grows" "${SIX[@]}" model.preset=llama-tiny scheduler.t_max=6ba
    train 1 "$DIR/leaf" "${SIX[@]}" "${LORA[@]}" scheduler.t_max=6ba \
        "model.weights=$DIR/grows"
    mkdir "$DIR/both"
    mv "$DIR/grows" "$DIR/leaf" "$DIR/both"
    train 1 "$DIR/after" "${SIX[@]}" "${LORA[@]}" train.max_duration=8ba \
        "checkpoint.load=$DIR/both/leaf"
    near "$(whole "$DIR/after")" "$(eval_loss "$DIR/after")"
}

# swap_last FILE: another last number; again gives the first one back
swap_last() {
    local at byte
    at=$(($(stat -c %s "$1") - 3))
    byte=$(od -An -tu1 -j "$at" -N 1 "$1")
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\x$(printf %x $((byte ^ 64)))" |
        dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

@test "a base with another number is noticed, a tokenizer beside it is nothing new" {
    local half=("${SIX[@]}" "${LORA[@]}" scheduler.t_max=6ba) from=$DIR/folder
    local files=$from/model.safetensors
    train 1 "$DIR/grown" "${SIX[@]}" model.preset=llama-tiny
    "$BIN/tessera-hf" export "$DIR/grown" --out "$from"
    mkdir "$DIR/aside"
    mv "$from"/tokenizer* "$DIR/aside"
    train 2 "$DIR/held" "${half[@]}" "model.weights=$from" train.max_duration=3ba
    cp "$DIR/aside"/* "$from"
    cp -r "$DIR/held" "$DIR/held2"
    swap_last "$files"
    ends 93 "1 tensors have other values than when the run was started: lm_head.weight" \
        train 2 "$DIR/held" "${half[@]}" parallel.strategy=zero3
    ends 93 "$from" train 1 "$DIR/held" "${half[@]}"
    ends 93 "has other values" "$BIN/tessera-hf" export "$DIR/held" --out "$DIR/no"
    ends 93 "has other values" "$BIN/tessera-hf" export "$DIR/held" --adapter \
        --out "$DIR/no"
    [ ! -e "$DIR/no" ]
    ends 93 "has other values" train 2 "$DIR/start" "${SIX[@]}" model.preset=llama-tiny \
        "model.weights=$DIR/held"
    swap_last "$files"
    train 3 "$DIR/held" "${half[@]}" parallel.strategy=zero3
    rm "$from"/tokenizer*
    train 1 "$DIR/held2" "${half[@]}"
    [ "$(digest "$DIR/held")" = "$(digest "$DIR/held2")" ]
    "$BIN/tessera-hf" export "$DIR/held" --out "$DIR/held.hf"
}

# without_sums DIR: its newest checkpoint as versions without checksums wrote it
without_sums() {
    python3 - "$(newest "$1")/MANIFEST.json" <<'END'
import re, sys

def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff

text = open(sys.argv[1]).read()
text, count = re.subn(r',?"crc32c": ?\{[^}]*\}', '', text)
assert count == 1
head = text[:text.rindex('"crc32c": "') + 11]
open(sys.argv[1], 'w').write(head + '%08x"\n}\n' % crc32c(head.encode()))
END
}

@test "a checkpoint without checksums of its base goes on with a warning, once" {
    command -v python3 >/dev/null || skip "python3 is not installed"
    local half=("${SIX[@]}" "${LORA[@]}" scheduler.t_max=6ba)
    train 1 "$DIR/older" "${half[@]}" "model.weights=$DIR/grown" train.max_duration=3ba
    without_sums "$DIR/older"
    ends 0 "has no checksums of*can't be checked" \
        "$BIN/tessera-hf" export "$DIR/older" --out "$DIR/older.hf"
    ends 0 "has checksums of 0 of the*can't be checked" train 2 "$DIR/older" "${half[@]}"
    ends 0 '' train 1 "$DIR/older" "${half[@]}" train.max_duration=8ba
    [[ $output != *checksums* ]]
    grep -q '"crc32c": *{"transformer' "$(newest "$DIR/older")/MANIFEST.json"
}

@test "an adapter whose base was not all of the model is not exported alone" {
    train 1 "$DIR/mixed" "${SIX[@]}" "${LORA[@]}" "model.weights=$DIR/grown" \
        "model.weights_ignore=*norm_f*" train.max_duration=1ba
    ends 64 "1 tensors that did not train, such as transformer.norm_f.weight" \
        "$BIN/tessera-hf" export "$DIR/mixed" --adapter --out "$DIR/no"
    [ ! -e "$DIR/no" ]
    "$BIN/tessera-hf" export "$DIR/mixed" --out "$DIR/mixed.hf"
}

@test "what goes out names the base, and no path of this machine" {
    "$BIN/tessera-hf" import "$DIR/folder" --out "$DIR/imported"
    "$BIN/tessera-hf" export "$DIR/imported" --out "$DIR/named.again"
    train 1 "$DIR/named" "${SIX[@]}" "${LORA[@]}" "model.weights=$DIR/imported" \
        train.max_duration=1ba
    "$BIN/tessera-hf" export "$DIR/named" --out "$DIR/named.hf"
    "$BIN/tessera-hf" export "$DIR/named" --adapter --out "$DIR/named.adapter"
    "$BIN/tessera-hf" export "$DIR/held" --format gguf --out "$DIR/held.gguf-folder"
    grep -qx 'base_model: "folder"' "$DIR/named.again/README.md"
    grep -qx 'base_model: "folder"' "$DIR/named.hf/README.md"
    grep -qx 'base_model: "folder"' "$DIR/held.gguf-folder/README.md"
    grep -q '"base_model_name_or_path": "folder"' "$DIR/named.adapter/adapter_config.json"
    ends 1 '' grep -rl "$DIR" "$DIR/named.again" "$DIR/named.hf" "$DIR/named.adapter" \
        "$DIR/held.gguf-folder"
    grep -q '^| data from step 0 | `' "$DIR/named.hf/README.md"
}

@test "what was imported is no run, and adapters are of some model" {
    ends 93 "holds imported weights (of $DIR/folder), not a run*model.weights = $DIR/imported" \
        train 2 "$DIR/imported" "${SIX[@]}" model.preset=llama-tiny
    ends 64 "lora.rank is 16 and model.weights is empty" \
        "$BIN/tessera-train" "$BATS_TEST_DIRNAME/../jobs/conf/lora-smollm2.cfg" \
        "run.dir=$DIR/none" model.weights= "data.train=$DIR/data/train" "data.eval=$DIR/data/eval"
}

@test "the plan counts frozen weights, and a checkpoint without them" {
    ends 0 '' "$BIN/tessera-plan" --json "${LORA[@]}" train.global_batch=8
    local params trained frozen
    params=$(sed -n 's/^  "params": \([0-9]*\).*/\1/p' <<<"$output")
    trained=$(sed -n 's/^  "trained_params": \([0-9]*\).*/\1/p' <<<"$output")
    frozen=$(sed -n 's/.*"frozen": \([0-9]*\).*/\1/p' <<<"$output")
    [ "$trained" -gt 0 ] && [ "$trained" -lt "$((params / 10))" ]
    [ "$frozen" -ge "$((4 * params))" ]
}

@test "the recipe of adapters trains, from prompts with answers to a merged model" {
    local i
    for i in $(seq 60); do
        printf '{"prompt": "%d and one", "response": "%d"}\n' "$i" $((i + 1))
    done >"$DIR/talk.jsonl"
    train 1 "$DIR/llama" "${SIX[@]}" model.preset=llama-tiny
    "$BIN/tessera-data" tokenize --tokenizer "$DIR/llama" --chat --packing on --seq-len 128 \
        --eval-fraction 0.1 --out "$DIR/talk" "$DIR/talk.jsonl"
    "$BIN/tessera-train" "$BATS_TEST_DIRNAME/../jobs/conf/lora-smollm2.cfg" \
        "run.dir=$DIR/recipe" "model.weights=$DIR/llama" data.seq_len=128 \
        "data.train=$DIR/talk/train" "data.eval=$DIR/talk/eval" train.max_duration=4ba
    "$BIN/tessera-hf" export "$DIR/recipe" --out "$DIR/recipe.hf" --verify
    "$BIN/tessera-hf" verify "$DIR/recipe" "$DIR/recipe.hf"
    "$BIN/tessera-hf" export "$DIR/recipe" --adapter --out "$DIR/recipe.adapter"
    [ -s "$DIR/recipe.adapter/adapter_model.safetensors" ]
}
