#!/usr/bin/env bats
# tessera-data info, head, merge, split: what is in data sets, and others of them.

load data_helpers

# words N SEED: text of N lines, divided by lines of %
words() {
    awk -v n="$1" -v seed="$2" 'BEGIN {
        srand(seed)
        for (i = 0; i < n; i++) {
            print rand() * 1000000
            if (rand() < 0.1) print "%"
        }
    }'
}

@test "info: documents and their lengths, loss, padding, text" {
    printf 'abc\n%%\nd\n%%\nefghi' >a
    "$DATA" tokenize --out set --seq-len 5 --separator % a
    run "$DATA" info --json set
    echo "$output"
    [ "$status" -eq 0 ]
    # tokens: a b c \n E d \n E e f g h i E
    for line in '"samples": 3,' '"tokens": 14,' '"documents": 3,' '"p0": 3,' '"p50": 5,' \
        '"p100": 6' '"loss_tokens": 11,' '"loss_mask": false,' '"text_bytes": 11'; do
        [[ "$output" == *"$line"* ]]
    done
    [[ "$output" == *'"padding_share": 0.0666666666666'* ]]
    run "$DATA" info set
    [[ "$output" == *"documents        3"* ]]
    [[ "$output" == *"text             11 bytes, 0.786 a token"* ]]
}

@test "info and head: masks and lengths of a set with marks, no tokenizer" {
    "$BATS_TEST_DIRNAME/mds-write" set tokens ndarray:int32 1,2,9,3,4 5,9,6
    "$DATA" adopt --vocab-size 10 --tokenizer x set
    run "$DATA" info set
    echo "$output"
    [[ "$output" == *"documents        not told apart"* ]]
    [[ "$output" == *"text             unknown"* ]]
    fails 93 "--tokens shows numbers" head set
    run "$DATA" head --tokens set
    [ "$output" = "1 2 9 3 4
5 9 6" ]
}

@test "head: text, borders of documents, nothing that steers a terminal" {
    printf 'abc\n%%\n\x1b[31md\x9b\xc2\x9b\xc3\xa4' >a
    "$DATA" tokenize --binary --out set --seq-len 100 --separator % a
    run "$DATA" head set
    echo "$output"
    printf '==== sample 0: 17 tokens ====\nabc\n---- end of a document ----\n' >want
    printf '\\x1b[31md\x9b\xc2\\x9b\xc3\xa4\n---- end of a document ----\n' >>want
    "$DATA" head set | cmp - want
    run "$DATA" head --tokens --count 1 set
    [[ "$output" == "97 98 99 10 256 "* ]]
    fails 64 "no sample 1" head --from 1 set
}

@test "merge: the samples of all sets, in order, and links in place of copies" {
    words 3000 1 >a
    words 2000 2 >b
    "$DATA" tokenize --out one --shard-bytes 8000 --separator % a
    "$DATA" tokenize --out two --shard-bytes 9000 --separator % b
    run "$DATA" merge --out all one two one
    echo "$output"
    [ "$status" -eq 0 ]
    { "$DATA" head --tokens one && "$DATA" head --tokens two && "$DATA" head --tokens one; } >want
    "$DATA" head --tokens all >got
    cmp want got
    "$DATA" verify all
    [ one/shard.00001.mds -ef all/shard.00001.mds ]
    "$DATA" merge --out alone one
    cmp one/index.json alone/index.json
    cmp one/tessera.json alone/tessera.json
    fails 64 "exists already" merge --out all one
    fails 93 "nowhere" merge --out new one nowhere
    "$DATA" tokenize --out three --eos-id 7 a
    fails 64 "different tokens that end or begin documents" merge --out new one three
    truncate -s -1 two/shard.00000.mds
    fails 93 "two/shard.00000.mds" merge --out new one two
    sed -i 's/"basename": "shard.00000.mds"/"basename": "..\/b"/' one/index.json
    fails 93 "basename" merge --out new one
    [ ! -e new ]
    [ "$(ls -A)" = "$(printf 'a\nall\nalone\nb\ngot\none\nthree\ntwo\nwant')" ]
}

@test "merge: sets that Streaming wrote keep their digests" {
    "$BATS_TEST_DIRNAME/mds-write" one tokens ndarray:int32 1,2,9,3,4 5,9,6
    "$BATS_TEST_DIRNAME/mds-write" two tokens ndarray:int32 4,4,9
    "$DATA" adopt --vocab-size 10 --tokenizer x --eos-token-id 9 one
    "$DATA" adopt --vocab-size 10 --tokenizer x --eos-token-id 9 two
    "$DATA" merge --out all one two
    run "$DATA" verify all
    [ "$output" = "all: good, 3 samples, 11 tokens; checksums: sha256" ]
    cp --remove-destination two/shard.00000.mds all/shard.00001.mds
    printf x | dd of=all/shard.00001.mds bs=1 seek=20 conv=notrunc status=none
    fails 93 "all/shard.00001.mds" verify all
}

@test "split: the same samples, and tokenize's own division" {
    words 4000 3 >a
    "$DATA" tokenize --out set --shard-bytes 8000 --separator % a
    "$DATA" tokenize --out divided --shard-bytes 8000 --separator % --eval-fraction 0.17 a
    "$DATA" split --out same --shard-bytes 8000 --fraction 0.17 set
    diff -r divided same
    "$DATA" split --out parts --parts 7 set
    for part in parts/part.*; do
        "$DATA" verify "$part"
        "$DATA" head --tokens "$part" >>got
    done
    "$DATA" head --tokens set | cmp - got
    "$DATA" merge --out again parts/part.*
    "$DATA" head --tokens again | cmp - got
    fails 64 "one of --parts N and --fraction F" split --out x set
    fails 64 "one of --parts N and --fraction F" split --out x --parts 2 --fraction 0.5 set
    fails 64 "too few for 9999 parts" split --out x --parts 9999 set
    fails 64 "exists already" split --out parts --parts 2 set
    echo hello >hello
    "$DATA" tokenize --seq-len 32 --out one hello >one.made
    fails 64 "one sample" split --out x --fraction 0.3 one
    [ ! -e x ]
}
