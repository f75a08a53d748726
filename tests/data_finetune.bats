#!/usr/bin/env bats
# Fine-tuning data, from JSON lines to a run that is killed and goes on.

load run_helpers

setup_file() {
    new_folder
    for i in $(seq 300); do
        printf '{"messages": [{"role": "user", "content": "%d"}, {"role": "assistant", "content": "%d"}, {"role": "user", "content": "and more?"}, {"role": "assistant", "content": "%d"}]}\n' \
            "$i" $((i + 1)) $((i * i))
    done >"$DIR/talk.jsonl"
}

setup() {
    DATA=$BIN/tessera-data
    cd "$DIR" || return 1
}

fails() { # CODE TEXT ARGUMENT...
    ends "$1" "$2" "$DATA" tokenize "${@:3}"
    [[ "$output" == "tessera-data: "* && "${#lines[@]}" -eq 1 ]]
}

# kill_and_resume: the digest of packed conversations, undisturbed and killed
@test "packed conversations train, and a killed run goes on with the same bits" {
    "$DATA" tokenize --chat --target-responses all --packing on --seq-len 512 \
        --eval-fraction 0.1 --out data talk.jsonl >made
    grep -q '270 examples' made
    SHORT=(train.max_duration=8ba train.global_batch=4 data.seq_len=512
        model.max_seq_len=512
        scheduler.warmup=2ba checkpoint.interval=2ba eval.interval=4ba
        eval.samples=2 log.level=warn)
    train 1 "$DIR/ref"
    held 4 1 "$DIR/killed"
    wait_for 60 test -e "$DIR/killed/checkpoints/step-000000002"
    kill -KILL $pid
    wait $pid || true
    train 2 "$DIR/killed"
    grep -q "\"attempt\": 2" "$DIR/killed/metrics.jsonl"
    [ "$(digest "$DIR/killed")" = "$(digest "$DIR/ref")" ]
    run train 1 "$DIR/joined" model.attn_uses_sequence_id=false
    [ "$status" -eq 93 ]
    [[ "$output" == *"packed"*"attn_uses_sequence_id"* ]]
    run train 1 "$DIR/short" data.seq_len=300
    [ "$status" -eq 93 ]
    [[ "$output" == *"data.seq_len"* ]]
}

@test "a model gives its tokenizer and its chat template" {
    yes 'one two three four' | head -n 200 >words
    "$DATA" train-tokenizer --vocab-size 300 --out folder words >/dev/null
    "$DATA" tokenize --tokenizer folder --seq-len 32 --out text words >/dev/null
    train 1 "$DIR/model" data.train="$DIR/text" data.eval="$DIR/text" train.max_duration=1ba \
        data.seq_len=32 model.max_seq_len=32 model.vocab_size=300
    "$DATA" tokenize --tokenizer model --chat --template none --seq-len 126 --out of_run \
        talk.jsonl >made
    run grep 'chat template' made
    [ "$status" -eq 1 ]
    cmp of_run/tokenizer.json folder/tokenizer.json
    echo '{% for m in messages %}({{ m.role }}: {{ m.content }}){% endfor %}' \
        >folder/chat_template.jinja
    "$DATA" tokenize --tokenizer folder --chat --seq-len 126 --out of_folder talk.jsonl >made
    grep -q "chat template: folder's own" made
    "$DATA" head --count 1 of_folder | grep -q '(user: '
    [ "$(echo one | "$DATA" encode --tokenizer model)" = \
        "$(echo one | "$DATA" encode --tokenizer folder)" ]
    mkdir nothing
    fails 64 nothing --tokenizer nothing --out x talk.jsonl
    fails 64 "unknown tokenizer 'missing'" --tokenizer missing --out x talk.jsonl
}

@test "what was made is told, and the same lines give the same set" {
    for out in a b; do
        "$DATA" tokenize --chat --seq-len 126 --out $out talk.jsonl >$out.made
    done
    diff -r a b
    cat a.made
    grep -q '^a: [0-9]* samples of [0-9]* examples, ' a.made
    grep -q 'were left out: their first 126 tokens' a.made
    printf '{"prompt": "a", "response": "b", "id": 7}' |
        "$DATA" tokenize --prompts --out c - >c.made
    grep -q '^c: 1 samples of 1 examples, 3 tokens, 2 of them learned' c.made
    grep -q 'fields that are not used: id' c.made
    [ "$("$DATA" head --tokens c)" = "97 98 256" ]
    "$DATA" verify c
}

@test "wrong usage and bad records: one line that says where" {
    fails 64 "give one of them" --chat --prompts --out x talk.jsonl
    fails 64 "--packing is for fine-tuning" --packing on --out x talk.jsonl
    fails 64 "--template is for --chat" --prompts --template none --out x talk.jsonl
    fails 64 "--separator" --chat --separator '' --out x talk.jsonl
    fails 64 "'on'" --chat --packing 'on' --packing "'on'" --out x talk.jsonl
    fails 64 "--no-wrap is for text" --chat --no-wrap --out x talk.jsonl
    fails 64 "--mds is for text" --chat --mds --out x talk.jsonl
    fails 64 "--eos-id 257" --chat --eos-id 257 --out x talk.jsonl
    fails 64 "length>=N" --chat --target-prompts 'length>=0' --out x talk.jsonl
    fails 64 "no chat template 'chatlm'" --chat --template chatlm --out x talk.jsonl
    fails 93 "talk.jsonl:1: 'messages' need" --prompts --out x talk.jsonl
    printf '{{ raise_exception("not today") }}' >no.jinja
    fails 93 "no.jinja: line 1: raise_exception: not today" --chat \
        --template no.jinja --out x talk.jsonl
    printf '{"messages": [{"role": "user", "content": "a"}, {"role": "bot", "content": "b"}]}' >bad.jsonl
    fails 93 "bad.jsonl:1: 'messages?1?.role' is 'bot'" --chat --out x bad.jsonl
    fails 93 "too-long" --chat --too-long refuse --out x talk.jsonl
    [ ! -e x ]
}
