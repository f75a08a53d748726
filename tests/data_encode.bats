#!/usr/bin/env bats
# tessera-data encode and decode: text to tokens and back, in pipes.
bats_require_minimum_version 1.5.0

load data_helpers

prepare() {
    cat >small.json <<'END'
{"added_tokens": [{"id": 4, "content": "<|e|>", "special": true,
  "normalized": false}],
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
 "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "E", "type_id": 0}},
             {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
  "special_tokens": {"E": {"id": "E", "ids": [4], "tokens": ["<|e|>"]}}},
 "decoder": {"type": "ByteLevel"},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3},
  "merges": ["a b"]}}
END
}

# tokens TEXT OPTION...: of the text by small.json
tokens() {
    local text=$1
    shift
    printf '%s' "$text" | "$DATA" encode --tokenizer small.json "$@" 2>err
}

@test "bytes there and back, all of them" {
    head -c 100000 /dev/urandom >random
    "$DATA" encode --binary <random >tokens
    [ "$(wc -l <tokens)" -eq 1 ]
    "$DATA" decode <tokens | cmp - random
    [ -z "$(printf '' | "$DATA" encode)" ]
}

@test "a file's tokens, on one line, and back" {
    [ "$(tokens $'aab <|e|>ba')" = "0 2 3 4 1 0" ]
    tokens 'aab <|e|>ba' | "$DATA" decode --tokenizer small.json 2>err >back
    [ "$(cat back)" = 'aab <|e|>ba' ]
    [ "$(tokens 'ab' --template)" = "4 2" ]
    # what it lacks does not matter here, and is not told
    run ! grep "no token" err
}

@test "what has no token is left out, and that is told" {
    [ "$(tokens 'a<b' --no-special)" = "0 1" ]
    grep -q "small.json: 240 bytes have no token, the first is 0x00" err
    grep -q "1 bytes of the text have no token and are left out" err
}

@test "wrong files, tokens and usage" {
    run "$DATA" encode --tokenizer none.json </dev/null
    [ "$status" -eq 64 ] && [[ "$output" == *"unknown tokenizer 'none.json'"* ]]
    sed 's/"a b"/"a c"/' small.json >wrong.json
    run "$DATA" encode --tokenizer wrong.json </dev/null
    [ "$status" -eq 93 ]
    [[ "$output" == *"wrong.json: model.merges[0]: 'c' is not in the vocab"* ]]
    run "$DATA" decode --tokenizer small.json <<<"1 2 99"
    [ "$status" -eq 93 ] && [[ "$output" == *"token 99 is outside the vocab"* ]]
    run "$DATA" decode <<<"1 x"
    [ "$status" -eq 93 ] && [[ "$output" == *"byte 2: 'x' is not a token"* ]]
    run "$DATA" encode text
    [ "$status" -eq 64 ] && [[ "$output" == *"reads standard input"* ]]
}
