#!/usr/bin/env bats
# tessera-data: what people and scripts meet.

load data_helpers

prepare() {
    printf 'hello, ' >a
    printf 'world' >b
}

@test "--help and --version" {
    run "$DATA" --help
    [ "$status" -eq 0 ]
    [[ "$output" == "usage: tessera-data tokenize"* ]]
    run "$DATA" tokenize --help
    [ "$status" -eq 0 ]
    run "$DATA" --version
    [ "$status" -eq 0 ]
    [[ "$output" == "tessera "[0-9]* ]]
}

@test "wrong usage: exit 64 and what to do" {
    run "$DATA"
    [ "$status" -eq 64 ]
    fails 64 "did you mean tokenize?" tokenise
    fails 64 "--out DIR" tokenize a
    fails 64 "at least one FILE" tokenize --out x
    fails 64 "--seq-len needs a value" tokenize --out x --seq-len
    fails 64 "--seq-len" tokenize --out x --seq-len 10x a
    fails 64 "--seq-len" tokenize --out x --seq-len=-3 a
    fails 64 "--seq-len" tokenize --out x --seq-len 99999999999999999999 a
    fails 64 "--frobnicate" tokenize --out x --frobnicate a
    fails 64 "-x" tokenize --out x -x a
    fails 64 "--seq-len" info --seq-len 3 .
    fails 64 "one DIR" info
    fails 64 "one DIR" verify a b
    fails 64 "--vocab-size" adopt .
    [ "$(ls -A)" = "$(printf 'a\nb')" ]
}

@test "tokenize, info, cat, verify" {
    run "$DATA" tokenize --out set --seq-len 5 a b
    [ "$status" -eq 0 ]
    [ "$output" = "set: 3 samples, 14 tokens, 2 documents, 12 bytes of text" ]
    [ "$(ls -A)" = "$(printf 'a\nb\nset')" ]
    run "$DATA" head --tokens set
    [ "${lines[0]}" = "104 101 108 108 111" ]
    [ "${lines[1]}" = "44 32 256 119 111" ]
    [ "${lines[2]}" = "114 108 100 256" ]
    [ "$("$DATA" head --tokens --from 2 --count 7 set)" = "114 108 100 256" ]
    fails 64 "no sample 3" head --tokens --from 3 set
    run "$DATA" info set
    [ "$status" -eq 0 ]
    [[ "$output" == *"samples          3"* ]]
    [[ "$output" == *"vocabulary       257"* ]]
    run "$DATA" info --json set
    [[ "$output" == *'"tokens": 14,'* ]]
    run "$DATA" verify set
    [ "$status" -eq 0 ]
    [ "$output" = "set: good, 3 samples, 14 tokens; checksums: sha256" ]
}

@test "stdin, and documents between separator lines" {
    printf 'one\n%%\ntwo\n' | "$DATA" tokenize --out set --separator % -
    [ "$("$DATA" head --tokens set)" = "111 110 101 10 256 116 119 111 10 256" ]
    printf '\xfd7zXZ\x00packed' >a.xz
    fails 93 "xz -dc" tokenize --out packed a.xz
    run bash -c "'$DATA' tokenize --out packed - <a.xz"
    [ "$status" -eq 93 ]
    [[ "$output" == *"xz -dc"* ]]
    [ ! -e packed ]
}

@test "--force replaces a data set" {
    "$DATA" tokenize --out set a
    fails 64 "exists already" tokenize --out set b
    [ "$("$DATA" head --tokens set | wc -w)" -eq 8 ]
    "$DATA" tokenize --force --out set b
    [ "$("$DATA" head --tokens set | wc -w)" -eq 6 ]
}

@test "damaged and missing data: exit 93 and the file" {
    fails 93 "nowhere" info nowhere
    "$DATA" tokenize --out set a
    truncate -s -1 set/shard.00000.mds
    fails 93 "set/shard.00000.mds" verify set
    fails 93 "set/shard.00000.mds" info set
    rm set/tessera.json
    fails 93 "tessera-data adopt" verify set
    fails 93 "missing" tokenize --out new missing
    [ ! -e new ]
}

@test "interrupted: exit 75, and nothing that looks like a data set" {
    for signal in TERM INT USR1; do
        mkfifo pipe
        # bash starts background commands with SIGINT ignored; env undoes it
        env --default-signal=INT "$DATA" tokenize --out set - <pipe 2>text &
        pid=$!
        exec 9>pipe
        echo "some text" >&9
        for _ in $(seq 1000); do
            compgen -G '.set.tmp.*' >/dev/null && break
            sleep 0.05
        done
        compgen -G '.set.tmp.*'
        kill -$signal $pid
        code=0
        wait $pid || code=$?
        exec 9>&-
        [ "$code" -eq 75 ]
        grep -q interrupted text
        rm pipe text
        [ "$(ls -A)" = "$(printf 'a\nb')" ]
    done
}

@test "killed: only a hidden folder stays" {
    mkfifo pipe
    "$DATA" tokenize --out set - <pipe &
    pid=$!
    exec 9>pipe
    for _ in $(seq 1000); do
        compgen -G '.set.tmp.*' >/dev/null && break
        sleep 0.05
    done
    kill -KILL $pid
    wait $pid || true
    exec 9>&-
    [ "$(ls)" = "$(printf 'a\nb\npipe')" ]
}

@test "work of seconds shows progress, rate and time left" {
    head -c 1000000 /dev/zero | tr '\0' x >long
    mkfifo pipe
    "$DATA" tokenize --out set - <pipe 2>text &
    pid=$!
    exec 9>pipe
    for _ in 1 2 3; do
        cat long >&9
        sleep 0.6
    done
    exec 9>&-
    wait $pid
    cat text
    grep -q 'tokenizing: .*/s' text
    run grep -c . text
    [ "$output" -le 5 ]
}

@test "a full disk is said" {
    [ -w /dev/full ] || skip "no /dev/full"
    "$DATA" tokenize --out set a
    run bash -c "'$DATA' info set 2>&1 >/dev/full"
    echo "$status: $output"
    [ "$status" -eq 75 ]
    [[ "$output" == *"No space left"* ]]
}

@test "columns of any MDS set are listed and printed" {
    "$BATS_TEST_DIRNAME/mds-write" set text str 'a "text"' more ''
    run "$DATA" info --columns set
    [ "$output" = $'text\tstr\tany size' ]
    run "$DATA" head --column text set
    [ "$output" = $'"a \\"text\\""\n"more"\n""' ]
    run "$DATA" head --column text --raw --from 1 --count 1 set
    [ "$output" = more ]
    "$BATS_TEST_DIRNAME/mds-write" numbers shape ndarray:float32 2x2/1,2.5,3,4
    run "$DATA" head --column shape numbers
    [ "$output" = "1 2.5 3 4" ]
    "$BATS_TEST_DIRNAME/mds-write" pickles a pkl x
    fails 93 "a pickle" head --column a pickles
    fails 64 "no column 'b', only a (pkl)" head --column b pickles
    fails 64 "--raw needs --column" head --raw set
}
