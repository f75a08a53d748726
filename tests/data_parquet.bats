#!/usr/bin/env bats
# tessera-data with data as they are published: Parquet, Arrow, folders of the hub, splits,
# conversations of other shapes, a held-out sample of documents, encodings.

load data_helpers
SUBCOMMAND=tokenize

prepare() {
    FILES=$BATS_TEST_DIRNAME/fuzz/corpus/parquet
    ARROW=$BATS_TEST_DIRNAME/fuzz/corpus/arrow
    printf '{"text": "%s"}\n' one 'two two' one \
        'a longer text, a longer text, a longer text' >four.jsonl
}

# documents N SEED: lines of JSON with different texts
documents() {
    awk -v n="$1" 'BEGIN {
        for (i = 0; i < n; i++) {
            line = "text " i
            for (w = 0; w < i * 7919 % 97; w++)
                line = line " word" (i * 31 + w * w) % 1000
            print "{\"text\": \"" line "\"}"
        }
    }'
}

@test "Parquet gives the tokens of the same texts in JSON lines" {
    "$DATA" tokenize --out lines four.jsonl
    for file in plain dictionary length delta delta-plain zstd; do
        cp "$FILES/$file" "$file.parquet"
        run "$DATA" tokenize --out "$file" "$file.parquet"
        echo "$file: $output"
        [[ "$status" -eq 0 && "$output" == *" 4 documents, 56 bytes"*"2 records with an empty text, or none, are"* ]]
        diff -r lines "$file"
    done
    cat four.jsonl four.jsonl >eight.jsonl
    "$DATA" tokenize --out eight eight.jsonl
    "$DATA" tokenize --out both plain.parquet zstd.parquet
    diff -r eight both
    "$DATA" train-tokenizer --vocab-size 270 --out p.json zstd.parquet | grep '^2 records with an empty'
    "$DATA" train-tokenizer --vocab-size 270 --out j.json four.jsonl
    cmp p.json j.json
}

@test "what of a Parquet file is not read is refused by name" {
    cp "$FILES/talk" talk.parquet
    head -c 300 "$FILES/plain" >short.parquet
    fails 93 "talk.parquet: no column 'text' in this file, which has: id, messages.list" \
        --out set talk.parquet
    fails 93 "column 'id' has int64 numbers, no text" --out set --field id talk.parquet
    fails 93 "column 'messages.list.element.role' is in a list" --out set \
        --field messages talk.parquet
    fails 93 "short.parquet does not end as Parquet does: it is cut short" --out set \
        short.parquet
    sed 's/Hi/H\xff/' talk.parquet >latin.parquet
    fails 93 "latin.parquet: row 0: column 'messages.list.element.content' is no text" \
        --chat --out set latin.parquet
    run bash -c "'$DATA' tokenize --out set - <'$FILES/plain'"
    [[ "$status" -eq 93 && "$output" == *"stdin is not text but Parquet"* ]]
    cp "$FILES/twice" twice.parquet
    fails 93 "twice.parquet: column 'text' is there twice; write it once" --out set \
        twice.parquet
    cp "$FILES/endless" endless.parquet # 20 million objects in 427 bytes
    fails 93 "endless.parquet: row 0: column 'messages.list.element.role' has a list of more than 65536" \
        --chat --out set endless.parquet
    fails 64 "--split is for folders, and none is named" --out set --split test \
        twice.parquet
    fails 64 "--mds and --split exclude each other" --out set --split test --mds .
    mkfifo pipe.parquet # which is not waited for
    fails 93 "pipe.parquet: is a pipe" --out set pipe.parquet
    [ ! -e set ]
}

@test "a folder as the hub has it: files in order, one split, no card" {
    mkdir -p hub/data hub/.git mixed
    cp "$FILES/plain" hub/data/train-00001-of-00002.parquet
    cp "$FILES/talk" hub/data/test-00000-of-00001.parquet
    cp "$FILES/zstd" hub/data/train-00000-of-00002.parquet
    echo '# A card' >hub/README.md
    echo '{}' >hub/dataset_infos.json
    fails 64 "hub has the splits test,train: name one with --split" --out set hub
    fails 64 "hub has no files of the split 'dev', but of: test,train" \
        --split dev --out set hub
    "$DATA" tokenize --out set --split training hub
    "$DATA" tokenize --out by-hand hub/data/train-*
    diff -r set by-hand
    cp "$FILES/zstd" hub/data/german-00000-of-00001.parquet
    cp "$FILES/zstd" hub/data/train_ge-00000-of-00001.parquet # two that begin alike
    fails 64 "hub has the splits german,test,train,train_ge: name" --out set2 hub
    "$DATA" tokenize --out german --split german hub
    cat four.jsonl >one.jsonl
    "$DATA" tokenize --out lines one.jsonl
    diff -r lines german
    mkdir dev && cp "$FILES/zstd" dev/a.parquet && cp "$FILES/plain" dev/b.parquet
    "$DATA" tokenize --out all --split all dev
    "$DATA" tokenize --out none dev
    diff -r all none
    # Spark's, of which a mark of its own is no text
    touch dev/_SUCCESS
    "$DATA" tokenize --out spark dev
    diff -r all spark
    # in a tree of other texts it is passed over, unless it is most of it
    mkdir few && cp "$FILES/plain" few/x.parquet && echo '{}' >few/stats.json
    run "$DATA" tokenize --out few.out few
    [[ "$status" -eq 64 && "$output" == *"few has more in Parquet than in the texts beside it"* ]]
    cp "$FILES/plain" mixed/x.parquet
    sed "s/}\$/, \"more\": \"$(printf '%400s' x)\"}/" four.jsonl >mixed/four.jsonl
    run "$DATA" tokenize --out tree mixed
    echo "$output"
    [[ "$status" -eq 0 && "$output" == *"passed over: 1 Parquet"* && "$output" != *--binary* ]]
    diff -r lines tree
}

@test "a folder of which a file is missing, or that has files of two times, is refused" {
    mkdir set3 old
    cp "$FILES/plain" set3/train-00000-of-00003.parquet
    cp "$FILES/zstd" set3/train-00002-of-00003.parquet
    fails 93 "train-00000-of-00003.parquet: of the 3 files of this kind 2 are there" --out set set3
    cp "$FILES/plain" set3/train-00001-of-00003.parquet
    "$DATA" tokenize --out whole set3
    cp "$FILES/plain" set3/train-00001-of-00002.parquet
    fails 93 "3 are there, and 1 of another number" --out set set3
    "$DATA" tokenize --out named set3/train-*-of-00003.parquet
    diff -r whole named
    # a file of no split beside a split's
    cp "$FILES/plain" old/part-0.parquet
    cp "$FILES/plain" old/test.parquet
    fails 64 "old has the splits test, and files of none" --out set old
    "$DATA" tokenize --out some --split test old
}

@test "Arrow: files and streams, and folders as datasets saves them" {
    "$DATA" tokenize --out lines four.jsonl
    for file in stream file bytes-zstd large-lz4 dictionary dictionary-zstd; do
        cp "$ARROW/$file" "$file.arrow"
        run "$DATA" tokenize --out "$file" "$file.arrow"
        echo "$file: $output"
        [[ "$status" -eq 0 && "$output" == *" 4 documents, 56 bytes"*"2 records with an empty text, or none, are"* ]]
        diff -r lines "$file"
    done
    cp "$ARROW/file" x.feather
    "$DATA" tokenize --out feather x.feather
    diff -r lines feather
    fails 93 "column 'n' has whole numbers, no text" --out set --field n file.arrow
    head -c 400 "$ARROW/stream" >short.arrow
    fails 93 "short.arrow: as Arrow it is cut short" --out set short.arrow
    cp "$ARROW/talk" talk.arrow
    fails 93 "talk.arrow: row 1: 'messages' has 0 of them" --chat --out set talk.arrow
    run bash -c "'$DATA' tokenize --out set - <'$ARROW/stream'"
    [[ "$status" -eq 93 && "$output" == *"stdin is not text but Arrow stream"*NAME.arrow* ]]
    # a Dataset, with what map() leaves in it, and a DatasetDict
    mkdir -p saved dict/german dict/valid
    cp "$ARROW/stream" saved/data-00000-of-00001.arrow
    echo '{}' | tee saved/state.json >saved/dataset_info.json
    cp "$ARROW/stream" saved/cache-0123456789abcdef.arrow
    run "$DATA" tokenize --out saved.out saved
    echo "$output"
    [[ "$status" -eq 0 && "$output" == *"passed over: 1 caches of datasets, 2 beside the tables"* && "$output" != *--binary* ]]
    diff -r lines saved.out
    cp saved/* dict/german && cp saved/* dict/valid
    echo '{"splits": ["german", "valid"]}' >dict/dataset_dict.json
    fails 64 "dict has the splits german,validation: name one with --split" --out set dict
    "$DATA" tokenize --split german --out german dict
    diff -r lines german
    "$DATA" tokenize --split validation --out valid dict
    diff -r lines valid
}

@test "conversations in Parquet and in JSON lines, by the names that they have" {
    cat >chat.jsonl <<'END'
{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
{"prompt": "Add\n\n1 2", "response": "3"}
END
    cat >sharegpt.jsonl <<'END'
{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}], "id": 1}
END
    echo '{"instruction": "Add", "input": "1 2", "output": "3", "text": ""}' >alpaca.jsonl
    head -1 chat.jsonl >one.jsonl
    tail -1 chat.jsonl >two.jsonl
    "$DATA" tokenize --chat --out one one.jsonl
    "$DATA" tokenize --prompts --out two two.jsonl
    run "$DATA" tokenize --chat --fields sharegpt --out sharegpt sharegpt.jsonl
    [[ "$status" -eq 0 && "$output" == *"fields that are not used: id"* ]]
    diff -r one sharegpt
    "$DATA" tokenize --prompts --fields alpaca --out alpaca alpaca.jsonl
    diff -r two alpaca
    "$DATA" tokenize --prompts --fields prompt=instruction+input,completion=output \
        --out again alpaca.jsonl
    diff -r two again
    # a column whose name has a dot is another one
    cp "$FILES/dots" dots.parquet
    printf '{"prompt": "%s", "response": "%s"}\n' a r c s >dots.jsonl
    "$DATA" tokenize --prompts --out dots dots.parquet
    "$DATA" tokenize --prompts --out no-dots dots.jsonl
    diff -r no-dots dots
    cp "$FILES/talk" talk.parquet
    fails 93 "talk.parquet: row 1: 'messages' has 0 of them" --chat --out set talk.parquet
    fails 93 "neither 'prompt' with 'response' or 'completion' nor 'messages', but: conversations, id; of ShareGPT's: --fields sharegpt" \
        --chat --out set sharegpt.jsonl
    fails 93 "'conversations[1].from' is 'robot'" --chat --fields sharegpt --out set \
        <(sed 's/gpt/robot/' sharegpt.jsonl)
    fails 64 "--fields: 'question' is none of messages, role" --chat --out set \
        --fields question=prompt one.jsonl
    fails 64 "--fields names no prompt, or no response" --prompts --out set \
        --fields prompt=instruction alpaca.jsonl
    fails 64 "--fields is for fine-tuning data" --out set --fields alpaca one.jsonl
}

@test "a sample of the documents is held out, whatever their order, and after kills" {
    documents 3000 >a.jsonl
    shuf --random-source=a.jsonl a.jsonl >b.jsonl
    local options=(--seq-len 200 --shard-bytes 100000 --holdout 0.05)
    run "$DATA" tokenize "${options[@]}" --seed 7 --out whole a.jsonl
    echo "$output"
    [[ "$status" -eq 0 ]]
    held=$(sed -n 's/.*eval: .* samples of \([0-9]*\) documents, by --seed 7$/\1/p' <<<"$output")
    [ "$held" -gt 90 ] && [ "$held" -lt 220 ]
    "$DATA" verify whole/train && "$DATA" verify whole/eval
    # the same documents of another order, others with another seed
    lines() { "$DATA" decode <<<"$("$DATA" head --tokens "$1" | sed 's/\b256\b/10/g')" | sort; }
    "$DATA" tokenize "${options[@]}" --seed 7 --out b b.jsonl
    "$DATA" tokenize "${options[@]}" --seed 8 --out c a.jsonl
    lines whole/eval >a.txt && lines b/eval >b.txt && lines c/eval >c.txt
    [ "$(wc -l <a.txt)" -eq "$held" ]
    cmp a.txt b.txt && ! cmp a.txt c.txt
    lines whole/train >train.txt
    sort a.txt train.txt >both.txt
    sed 's/{"text": "//; s/"}//' a.jsonl | sort >all.txt
    cmp both.txt all.txt
    # killed, on one file twice, of text, and of standard input
    cat a.jsonl b.jsonl >twice.jsonl
    "$DATA" tokenize "${options[@]}" --out once twice.jsonl a.jsonl
    until_done out 60 "$DATA" tokenize "${options[@]}" --out out twice.jsonl a.jsonl
    echo "$kills kills"
    diff -r once out
    "$DATA" tokenize "${options[@]}" --field text --out pipe - <a.jsonl
    "$DATA" tokenize "${options[@]}" --out file a.jsonl
    diff -r pipe file
    # of text by the name of its file, wherever that lies
    mkdir -p else where
    for i in {1..400}; do printf 'text %d\n---\n' "$i"; done | tee else/a.txt >where/a.txt
    for i in else ./where; do
        "$DATA" tokenize "${options[@]}" --separator --- --out "${i#./}/out" "$i/a.txt"
    done
    diff -r else/out where/out
    fails 64 "--holdout and --eval-fraction exclude each other" --out set \
        --eval-fraction 0.1 --holdout 0.1 a.jsonl
    fails 64 "--seed is for --holdout" --out set --seed 1 a.jsonl
    fails 93 "none of 1 documents is held out" --out set --holdout 0.1 <(head -1 a.jsonl) \
        --field text
}

@test "Parquet that is killed goes on, and examples are held out" {
    for i in $(seq 60); do cp "$FILES/zstd" "$i.parquet"; done
    local options=(--seq-len 20 --shard-bytes 400)
    "$DATA" tokenize "${options[@]}" --out once ./*.parquet
    until_done out 30 "$DATA" tokenize "${options[@]}" --threads 1 --out out ./*.parquet
    echo "$kills kills"
    diff -r once out
    for i in $(seq 100); do
        echo "{\"prompt\": \"p$i\", \"response\": \"r$i\"}"
    done >p.jsonl
    run "$DATA" tokenize --prompts --holdout 0.2 --seed 3 --out held p.jsonl
    echo "$output"
    [[ "$status" -eq 0 && "$output" == *"held/eval: "*" examples, by --seed"* ]]
    fails 93 "none of 1 examples are held out" --prompts --out set --holdout 0.01 \
        <(head -1 p.jsonl)
}

@test "a stop is heard among billions of rows without a text" {
    cp "$FILES/nothing" nothing.parquet
    "$DATA" tokenize --out out nothing.parquet >log 2>&1 &
    pid=$!
    until ls -l /proc/$pid/fd 2>/dev/null | grep -q 'out.tokenize.*spool\|nothing.parquet'; do
        kill -0 $pid
    done
    kill -INT $pid
    status=0
    wait $pid || status=$?
    cat log
    [ "$status" -eq 75 ] && ! grep -q 'no text' log
}

@test "texts of other encodings are named, and read with --encoding" {
    printf 'Gr\374\337e und Fl\374sse\n' >latin1.txt
    printf 'Grüße und Flüsse\n' >utf8.txt
    fails 93 "latin1.txt is not UTF-8: 3 of its first 17 bytes are invalid" --out set \
        latin1.txt
    fails 93 "--encoding NAME from another encoding" --out set latin1.txt
    "$DATA" tokenize --out utf8 utf8.txt
    "$DATA" tokenize --out latin1 --encoding LATIN1 latin1.txt
    diff -r utf8 latin1
    gzip -c latin1.txt >packed.gz
    "$DATA" tokenize --out packed --encoding LATIN1 packed.gz
    diff -r utf8 packed
    iconv -t UTF-16 utf8.txt >wide.txt
    fails 93 "wide.txt is not text but UTF-16 text" --out set wide.txt
    mkdir in && mv wide.txt in
    "$DATA" tokenize --out wide --encoding UTF-16 in
    diff -r utf8 wide
    # long, with characters across every border of buffers, and gone on with
    for i in $(seq 40000); do echo "Straße $i"; done >long.txt
    iconv -t UTF-16LE long.txt >long16.txt
    "$DATA" tokenize --out long --shard-bytes 300000 long.txt
    "$DATA" tokenize --out long16 --shard-bytes 300000 --encoding UTF-16LE long16.txt
    diff -r long long16
    printf '{"text": "Gr\374\337e"}\n' >l.jsonl
    "$DATA" tokenize --out lines --encoding LATIN1 l.jsonl
    fails 64 "the encoding 'KOI9' is not known; iconv -l lists them" --encoding KOI9 \
        --out set utf8.txt
    fails 93 "utf8.txt: its byte 2 is not in ASCII" --encoding ASCII --out set utf8.txt
    head -c 1001 long16.txt >half.txt
    fails 93 "half.txt: its byte 1000 is not in UTF-16LE" --encoding UTF-16LE --out set \
        half.txt
    # the last letter, which in some encodings waits for its accent
    printf '\371\354\345\355 \371' >hebrew.txt
    printf 'שלום ש' >hebrew8.txt
    "$DATA" tokenize --out hebrew8 hebrew8.txt
    "$DATA" tokenize --out hebrew --encoding WINDOWS-1255 hebrew.txt
    diff -r hebrew8 hebrew
    # lines that end as Windows ends them
    printf 'a\r\n--\r\nb\r\n\r\nc\r\n' >dos.txt
    run "$DATA" tokenize --out dos --separator -- dos.txt
    [[ "$output" == *" 2 documents"* ]]
    run "$DATA" tokenize --out blank --separator '' dos.txt
    [[ "$output" == *" 2 documents"* ]]
}
