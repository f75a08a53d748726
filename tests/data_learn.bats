#!/usr/bin/env bats
# tessera-data train-tokenizer, and what it learns in use.

load data_helpers
SUBCOMMAND=train-tokenizer

prepare() {
    cat "$BATS_TEST_DIRNAME"/*.c >text
}

@test "a learned tokenizer encodes, decodes and makes data sets" {
    "$DATA" train-tokenizer --vocab-size 2000 --pattern llama3 --out tok \
        --special '<|end|>' --special '<|pad|>' text >made
    grep -q '^tok: 2000 tokens of [0-9]* words in [0-9]* bytes of text$' made
    "$DATA" encode --tokenizer tok <text >ids
    "$DATA" decode --tokenizer tok <ids | cmp - text
    [ "$(wc -w <ids)" -lt $(($(wc -c <text) / 2)) ]
    [ "$(printf '<|pad|>' | "$DATA" encode --tokenizer tok)" = 1 ]
    "$DATA" tokenize --tokenizer tok --seq-len 128 --out set text
    [ "$("$DATA" head --tokens set | tail -n 1 | awk '{ print $NF }')" = 0 ]
    cmp tok/tokenizer.json set/tokenizer.json
}

@test "packed text, JSON lines, stdin and any number of threads: the same" {
    gzip -k text
    "$DATA" train-tokenizer --vocab-size 900 --out a.json --threads 1 text
    "$DATA" train-tokenizer --vocab-size 900 --out b.json --threads 4 text.gz
    "$DATA" train-tokenizer --vocab-size 900 --out c.json - <text
    cmp a.json b.json
    cmp a.json c.json
    printf '{"body": "low lower lowest"}\n{"body": "low new newer"}\n' >l.jsonl
    "$DATA" train-tokenizer --vocab-size 900 --out d.json --field body l.jsonl >made
    grep -q 'the text has no more than these' made
    grep -q '"low"' d.json
    printf 'lower' | "$DATA" encode --tokenizer d.json
}

@test "wrong usage: one line, and nothing is written" {
    fails 64 "--vocab-size N, --out PATH" --vocab-size 900 text
    fails 64 "--vocab-size N, --out PATH" --out x text
    fails 64 "--vocab-size has to be in [257," --vocab-size 256 --out x text
    fails 64 "gpt2, llama3, digits" --vocab-size 900 --out x --pattern bert text
    fails 64 "given twice" --vocab-size 900 --out x --special a --special a text
    fails 64 "--min-frequency" --vocab-size 900 --out x --min-frequency 0 text
    fails 93 "missing" --vocab-size 900 --out x missing
    : >empty
    fails 93 "no text" --vocab-size 900 --out x empty
    echo kept >there.json
    fails 64 "there.json exists" --vocab-size 900 --out there.json text
    [ "$(cat there.json)" = kept ]
    [ ! -e x ]
    "$DATA" train-tokenizer --vocab-size 900 --out there.json --force text
    [ "$(ls -A)" = "$(printf 'empty\ntext\nthere.json')" ]
}
