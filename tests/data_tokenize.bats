#!/usr/bin/env bats
# tessera-data tokenize: kinds of input, threads, and going on after kills.

load data_helpers

# records N: lines of JSON with texts of words, about N bytes, on stdout
records() {
    awk -v n="$1" 'BEGIN {
        for (i = 0; n > 0; i++) {
            line = sprintf("{\"id\": %d, \"text\": \"", i)
            for (w = i % 37; w < 60; w++)
                line = line sprintf("word%d\\n\\u00e4 ", (i * 7 + w * w) % 1000)
            print line "\"}"
            n -= length(line)
        }
    }'
}

# same A B: the same files with the same bytes
same() {
    diff -r "$1" "$2" >difference || { head -5 difference; return 1; }
}

@test "killed at random times, it goes on, and the bytes are the same" {
    mkdir in
    records 2500000 | tee in/a.jsonl | gzip -1 >in/b.jsonl.gz
    "$BATS_TEST_DIRNAME/english-text" 500000 >in/c.txt
    local options=(--seq-len 300 --shard-bytes 250000 --separator '')
    "$BATS_TEST_DIRNAME/tokenizer-write" tk '<|endoftext|>'
    for kind in "--threads 2 --tokenizer tk" "--threads 1 --no-wrap --bos-id 3" \
        "--threads 2 --eval-fraction 0.2"; do
        # shellcheck disable=SC2086
        "$DATA" tokenize --out whole "${options[@]}" $kind in
        # shellcheck disable=SC2086
        until_done out 60 "$DATA" tokenize --out out "${options[@]}" $kind in
        echo "$kind: $kills kills"
        same whole out
        "$DATA" verify out || "$DATA" verify out/train
        [ "$(ls -A)" = "$(printf 'difference\nin\nlog\nout\ntk\nwhole')" ]
        rm -r out whole
    done
}

@test "an interrupted one says that it goes on, and does" {
    records 4000000 >a.jsonl
    "$DATA" tokenize --out whole --shard-bytes 300000 a.jsonl
    for _ in $(seq 40); do
        "$DATA" tokenize --threads 1 --out out --shard-bytes 300000 a.jsonl >log 2>&1 &
        pid=$!
        for _ in $(seq 200); do
            [ -e .out.tokenize/set/shard.00002.mds ] && break
            sleep 0.005
        done
        kill -TERM $pid 2>/dev/null || true
        code=0
        wait $pid || code=$?
        [ "$code" -eq 75 ] && break
        rm -rf out
    done
    cat log
    [ "$code" -eq 75 ]
    grep -q 'the same command goes on' log
    [ ! -e out ]
    run "$DATA" tokenize --out out --shard-bytes 300000 a.jsonl
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"going on with out: "*" samples are done"* ]]
    same whole out
}

@test "a journal whose numbers cannot be is damaged, and told" {
    records 8000000 >a.jsonl
    "$DATA" tokenize --threads 1 --out out --shard-bytes 100000 a.jsonl \
        >log 2>&1 &
    pid=$!
    for _ in $(seq 400); do
        [ -e .out.tokenize/set/shard.00002.mds ] && break
        sleep 0.002
    done
    kill -KILL $pid
    wait $pid || true
    cp .out.tokenize/journal whole
    for change in 's/"used":/&-/' 's/"samples":\([0-9]*,"eval\)/"samples":-1\1/' \
        's/"file":/&-1/' 's/"file":/&2/' 's/"skip":/&-1/' 's/"offset":/&-1/'; do
        sed "2,\$ $change" whole >.out.tokenize/journal
        run "$DATA" tokenize --threads 1 --out out --shard-bytes 100000 a.jsonl
        echo "$change: $output"
        [ "$status" -eq 93 ]
        [[ "$output" == *"journal:2: is damaged; --fresh begins the data set anew"* ]]
    done
    # an older version counted no records without a text
    sed 's/,"empty":[0-9]*//g' whole >.out.tokenize/journal
    run "$DATA" tokenize --threads 1 --out out --shard-bytes 100000 a.jsonl
    echo "$output"
    [[ "$status" -eq 0 && "$output" == *"journal: an older version began it: records with an empty text, or none, are counted from where"* ]]
    "$DATA" tokenize --fresh --force --out out --shard-bytes 100000 a.jsonl
}

@test "two at a time: the second one is refused" {
    records 8000000 >a.jsonl
    "$DATA" tokenize --out out --shard-bytes 300000 a.jsonl >log 2>&1 &
    pid=$!
    for _ in $(seq 400); do
        [ -e .out.tokenize/journal ] && break
        sleep 0.002
    done
    kill -STOP $pid
    run "$DATA" tokenize --out out --shard-bytes 300000 a.jsonl
    kill -CONT $pid
    wait $pid
    echo "$output"
    [ "$status" -eq 93 ]
    [[ "$output" == *"another process makes this data set"* ]]
    "$DATA" verify out
}

@test "JSON lines by name, by --field, packed, from stdin and in folders" {
    mkdir -p in/sub in/.hidden
    printf '{"text": "a\\n"}\n\n{"text": ""}\n{"text": "\\u00e4"}' >in/b.jsonl
    gzip -c in/b.jsonl >in/sub/c.json.gz
    printf 'plain' >in/a.txt
    printf 'not this' >in/.hidden/x
    run "$DATA" tokenize --seq-len 100 --out set in
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"JSON lines by their names: 2 of 3 files; the text is in the field 'text'"* ]]
    [[ "$output" == *"hidden files and folders that are left out: 1"* ]]
    [ "$("$DATA" head --tokens set)" = "112 108 97 105 110 256 97 10 256 195 164 256 97 10 256 195 164 256" ]
    printf '{"text": 1, "body": "b"}\n' >lines
    "$DATA" tokenize --field body --out other lines
    [ "$("$DATA" head --tokens other)" = "98 256" ]
    for pack in cat gzip "zstd -q"; do
        $pack <lines | "$DATA" tokenize --force --field body --out other -
        [ "$("$DATA" head --tokens other)" = "98 256" ]
    done
}

@test "tokens that begin and end documents" {
    printf 'ab\n%%\nc' >a
    "$DATA" tokenize --separator % --bos-id 1 --eos-id 2 --out set a
    [ "$("$DATA" head --tokens set)" = "1 97 98 10 2 1 99 2" ]
    grep -q '"eos_token": 2' set/tessera.json
    "$DATA" tokenize --force --separator % --bos-id 1 --no-eos --out set a
    [ "$("$DATA" head --tokens set)" = "1 97 98 10 1 99" ]
    grep -q '"bos_token": 1' set/tessera.json
    run grep eos_token set/tessera.json
    [ "$status" -eq 1 ]
    run "$DATA" tokenize --force --separator % --seq-len 3 --no-wrap --out set a
    [[ "$output" == *"1 tokens at the ends of documents are in no sample"* ]]
}

@test "bad JSON lines: file, line and what" {
    printf '{"text": "a"}\n{"text": "b"\n' >a.jsonl
    fails 93 "a.jsonl:2: not valid JSON" tokenize --out set --field text a.jsonl
    printf '{"text": "a"}\n{"texts": "b"}\n' >a.jsonl
    fails 64 "--separator divides text files" tokenize --out set --field text --separator % a.jsonl
    fails 93 "a.jsonl:2: no field 'text'" tokenize --out set --field text a.jsonl
    printf '{"text": "a"}\n' | gzip >b.jsonl.gz
    truncate -s -4 b.jsonl.gz
    fails 93 "b.jsonl.gz" tokenize --out set --field text b.jsonl.gz
    [ "$(ls -A)" = "$(printf 'a.jsonl\nb.jsonl.gz')" ]
}

@test "a tokenizer's file: its end of documents, and its travel with the set" {
    local write=$BATS_TEST_DIRNAME/tokenizer-write
    "$write" tk
    "$write" named '<|endoftext|>'
    printf 'the word' >a
    fails 64 "names no token that ends a document" tokenize --tokenizer tk --out set a
    fails 64 "--eos-id 273 is outside the vocabulary [0, 273) of tk" \
        tokenize --tokenizer tk --eos-id 273 --out set a
    "$DATA" tokenize --tokenizer tk --eos-id 272 --out set a
    [ "$("$DATA" head --tokens set)" = "259 271 272" ]
    cmp tk/tokenizer.json set/tokenizer.json
    printf 'the word the word' >b
    "$DATA" tokenize --tokenizer named/tokenizer.json --seq-len 3 --eval-fraction 0.5 \
        --out both b
    cmp tk/tokenizer.json both/train/tokenizer.json
    cmp tk/tokenizer.json both/eval/tokenizer.json
    grep -q '"eos_token": 272' both/eval/tessera.json
    grep -q '"unicode": "16.0"' both/eval/tessera.json
    run "$DATA" head both/eval
    [[ "$output" == *" word<|endoftext|>"* ]]
    "$DATA" tokenize --force --tokenizer named --out both b
    echo ' ' >>set/tokenizer.json
    fails 93 "set/tokenizer.json has the SHA-256" verify set
    fails 93 "tokenizer 'tk' of this data set has 846eb10a" info set
}

@test "adopt takes what it needs from the tokenizer's file" {
    "$BATS_TEST_DIRNAME/tokenizer-write" tk '<|endoftext|>'
    "$BATS_TEST_DIRNAME/mds-write" set tokens ndarray:int32 259,271,272 259
    cp -r set plain
    "$DATA" adopt --tokenizer tk/tokenizer.json set
    grep -q '"eos_token": 272' set/tessera.json
    grep -q '"vocab_size": 273' set/tessera.json
    cmp tk/tokenizer.json set/tokenizer.json
    run "$DATA" info set
    [[ "$output" == *"documents        2"* ]]
    rm set/tessera.json
    "$DATA" adopt --tokenizer ./tk --vocab-size 300 set
    grep -q '"vocab_size": 300' set/tessera.json
    rm set/tessera.json
    fails 64 "has a vocabulary of 273, not 272" adopt --tokenizer ./tk --vocab-size 272 set
    fails 93 "adopt with --tokenizer set/tokenizer.json" adopt --tokenizer x --vocab-size 300 set
    fails 64 "--vocab-size has to be in" adopt --tokenizer x plain
    "$BATS_TEST_DIRNAME/mds-write" other tokens ndarray:int32 259,271 259
    run "$DATA" adopt --tokenizer ./tk other
    [ "$status" -eq 0 ]
    [[ "$output" == *"documents are not separated"* ]]
}

@test "hostile input: memory stays small" {
    ulimit -v 2000000
    # a line of 100 MB is fine
    { printf '{"text": "'; head -c 100000000 /dev/zero | tr '\0' x; echo '"}'; } >a.jsonl
    "$DATA" tokenize --threads 1 --seq-len 1000 --out set a.jsonl
    grep -q '"tokens": 100000001,' set/tessera.json
    rm a.jsonl
    # a zip bomb is a line that is too long
    head -c 400000000 /dev/zero | tr '\0' x | gzip -1 >bomb.jsonl.gz
    fails 93 "bomb.jsonl.gz:1: a line of more than 256 MiB" \
        tokenize --threads 1 --field text --out new bomb.jsonl.gz
}

@test "a tree of sources: --text, foreign index.json, links to nothing" {
    mkdir -p tree/src tree/web
    printf 'hello' >tree/src/a.c
    printf '{\n "name": 1\n}\n' >tree/src/package.json
    run "$DATA" tokenize --out set tree
    [[ "$status" -eq 93 && "$output" == *"--text: such files are text"*"package.json:1: not valid JSON"* ]]
    printf '{"files": []}' >tree/web/index.json
    "$DATA" tokenize --text --out set tree
    [ "$("$DATA" head --tokens set | tr ' ' '\n' | grep -c 256)" -eq 3 ]
    fails 64 "exclude" tokenize --text --field text --out new tree
    fails 64 "exclude" tokenize --text --mds --out new tree
    "$DATA" train-tokenizer --text --vocab-size 260 --out tk2 tree
    printf '{"text": "a a"}\n' >a.jsonl
    fails 64 "--separator divides" train-tokenizer --separator % --vocab-size 260 --out new a.jsonl
    run "$DATA" train-tokenizer --vocab-size 260 --out tk3 a.jsonl
    [[ "$output" == *"JSON lines by their names: 1 of 1"* ]]
    touch tree/web/shard.00000.mds
    fails 93 "is a data set" tokenize --text --out new tree
    rm -r tree/web
    ln -s nowhere tree/src/link
    fails 93 "tree/src/link is a link to nothing" tokenize --text --out new tree
}

@test "a column of text of MDS data sets" {
    "$BATS_TEST_DIRNAME/mds-write" one body str hello '' 'the world'
    "$BATS_TEST_DIRNAME/mds-write" two body str "$(records 30000)"
    "$DATA" tokenize --mds --field body --no-eos --out set one two
    { printf 'hello%s' 'the world'; printf '%s' "$(records 30000)"; } >a
    "$DATA" tokenize --no-eos --out want a
    same want set
    "$DATA" tokenize --force --mds --field body --out set one two
    run "$DATA" info set
    [[ "$output" == *"documents        3"* ]]
    fails 64 "text" tokenize --mds --out new one
    fails 93 "is no MDS data set" tokenize --mds --field body --out new a
    "$BATS_TEST_DIRNAME/mds-write" numbers body ndarray:int32 1,2
    fails 64 "column 'body' is no text" tokenize --mds --field body --out new numbers
    fails 64 "--separator divides text files" tokenize --mds --separator % --out new one
}
