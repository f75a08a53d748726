#!/usr/bin/env bats
# What lies in an object store, or is made for one, by every door: the same as from a
# folder, whatever the store does, and where it cannot be an error, never something else.

bats_require_minimum_version 1.5.0
load run_helpers

DOORS=(load weights eval digest import tokenize)

setup_file() {
    data_folder
    mkdir -p "$DIR/s3/bucket/text/more" "$DIR/tmp"
    serve "$DIR/s3"
    store
    train 1 "$DIR/run" train.max_duration=12ba checkpoint.mirror=s3://bucket/m checkpoint.mirror_keep=3
    "$BIN/tessera-hf" export "$DIR/run" --out "$DIR/hub"
    cp -r "$DIR/hub" "$DIR/s3/bucket/hub"
    head -c 200000 "$DIR/text" >"$DIR/s3/bucket/text/a.txt"
    tail -c 100000 "$DIR/text" >"$DIR/s3/bucket/text/more/b.txt"
    cp -r "$DIR/s3/bucket/text" "$DIR/texts"
    RUN=$DIR/run HUB=$DIR/hub TEXTS=$DIR/texts
    for door in "${DOORS[@]}"; do
        "door_$door" "$DIR/ref.$door" "$DIR/ref.$door"
    done
}

store() {
    AWS_ENDPOINT_URL_S3=http://127.0.0.1:$(cat "$DIR/port")
    export AWS_ENDPOINT_URL_S3 AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=secret TMPDIR=$DIR/tmp
}

setup() {
    store
    rules ""
    THERE=$DIR/s3/bucket
    RUN=s3://bucket/m HUB=s3://bucket/hub TEXTS=s3://bucket/text
    N=$BATS_TEST_NUMBER
}

teardown() {
    rules ""
    rm -rf "$DIR"/tmp/*
}

# door_NAME PLACE OUT: what is made in PLACE, and OUT.is, by which it is compared
door_load() {
    train 1 "$1" "checkpoint.load=$RUN" train.max_duration=14ba && digest "$1" >"$2.is"
}
door_weights() {
    train 2 "$1" "model.weights=$HUB" train.max_duration=2ba && digest "$1" >"$2.is"
}
door_eval() {
    "$BIN/tessera-eval" "$RUN" --perplexity "$DIR/data/eval" --limit 4 | cut -d: -f2 >"$2.is"
    return "${PIPESTATUS[0]}"
}
door_digest() {
    "$BIN/tessera-ckpt" digest "$RUN" >"$2.is"
}
door_import() {
    "$BIN/tessera-hf" import "$HUB" --out "$1" &&
        "$BIN/tessera-hf" verify "$1" "$HUB" >"$2.is"
}
door_tokenize() {
    "$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.1 --out "$1" "$TEXTS" &&
        (cd "${1/s3:\/\//$DIR/s3/}" && find . -type f ! -name tessera.json -exec sha256sum {} +) |
        sort >"$2.is"
}

# place DOOR NAME: where the door makes something, in the store where it can
place() {
    case $1 in
    import | tokenize) echo "s3://bucket/made/$2" ;;
    *) echo "$DIR/$2" ;;
    esac
}

all_doors_give_the_same() { # NAME
    for door in "${DOORS[@]}"; do
        echo "door $door"
        "door_$door" "$(place "$door" "$1.$door")" "$DIR/$1.$door"
        cmp "$DIR/ref.$door.is" "$DIR/$1.$door.is"
    done
    [ -z "$(find "$DIR/tmp" -type f)" ] # nothing is left on the node
}

@test "every door gives what a folder does" {
    all_doors_give_the_same plain
}

@test "and so it does by a store that cuts, answers 503 and loses answers" {
    rules "* chance ${SEED:-1}:30 -"
    all_doors_give_the_same bad
    [ "$(cat "$DIR/rules.faults")" -gt 0 ]
    rules "* slow 8000000 -"
    all_doors_give_the_same slow
}

@test "an adapter of peft is found there, and asks for its base" {
    mkdir -p "$THERE/adapter"
    echo '{"peft_type": "LORA", "base_model_name_or_path": "org/none", "revision": "v7", "r": 4}' \
        >"$THERE/adapter/adapter_config.json"
    ends '!0' "is an adapter of org/none at revision v7, which is not on this machine" \
        "$BIN/tessera-generate" s3://bucket/adapter --prompt a
}

@test "denied: an error that says what to do, and nothing has begun" {
    rules "* status 403 -"
    for door in "${DOORS[@]}"; do
        echo "door $door"
        run -93 "door_$door" "$(place "$door" "no.$door")" "$DIR/no.$door"
        echo "$output"
        [[ $output == *"status 403"*"credentials"* ]]
        [ ! -e "$DIR/no.$door" ] || [ -z "$(find "$DIR/no.$door" -name MANIFEST.json)" ]
    done
    rules "PUT status 403 -"
    ends 93 "*status 403*what was made lies in $DIR/tmp/*" door_import s3://bucket/made/no "$DIR/no"
    ends 93 "*status 403*what was made lies in $DIR/tmp/*" door_tokenize s3://bucket/made/no "$DIR/no"
    [ ! -e "$THERE/made/no" ]
}

@test "which one: steps, the best, half uploads, none, and never a new run" {
    cp -r "$THERE/m" "$THERE/many"
    RUN=s3://bucket/many
    for step in 6 9; do
        door_digest x "$DIR/step"
        ends 0 "$("$BIN/tessera-ckpt" digest "$DIR/run#$step")" "$BIN/tessera-ckpt" digest "$RUN#$step"
    done
    ends 0 "$(cat "$DIR/ref.digest.is")" "$BIN/tessera-ckpt" digest "$RUN#best"
    ends 93 "*no whole checkpoint of step 7*" "$BIN/tessera-ckpt" digest "$RUN#7"
    ends 64 "*prune is for a directory*mirror_keep*" "$BIN/tessera-ckpt" prune --keep 1 "$RUN"
    run -0 "$BIN/tessera-ckpt" ls "$RUN"
    [ "$(grep -c "s3://bucket/many/step-0000000" <<<"$output")" = 3 ]
    rm "$THERE"/many/step-000000012-*/MANIFEST.json
    ends 0 "$("$BIN/tessera-ckpt" digest "$DIR/run#9")" "$BIN/tessera-ckpt" digest "$RUN"
    half=$(basename "$(compgen -G "$THERE/many/step-000000012-*")")
    RUN=s3://bucket/many/$half ends 93 "*its upload was cut off*" door_load "$DIR/none" "$DIR/none"
    RUN=s3://bucket/nowhere ends 93 "*neither a whole checkpoint*" door_load "$DIR/none" "$DIR/none"
    printf 'xxxx' | dd of="$(compgen -G "$THERE/many/step-000000009-*/shard-00000*")" bs=1 seek=5000 conv=notrunc status=none
    ends 93 "*" door_load "$DIR/none" "$DIR/none"
    ends 93 "*damaged*" "$BIN/tessera-ckpt" verify "$RUN"
    [ -z "$(find "$DIR/none" -name MANIFEST.json)" ]
}

@test "a list is not read to its end for the newest of many" {
    local from step
    from=$(compgen -G "$THERE/m/step-000000012-*")
    for i in $(seq 300); do
        step=$THERE/long/step-$(printf %09d "$i")${from##*/step-000000012}
        mkdir -p "$step"
        echo x >"$step/MANIFEST.json"
    done
    cp -r "$from" "$THERE/long/step-000000512${from##*/step-000000012}" # its manifest says 12
    before=$(cat "$DIR/rules.count")
    run "$BIN/tessera-ckpt" digest s3://bucket/long
    sleep 0.2
    echo "$output; $(($(cat "$DIR/rules.count") - before)) requests for 301 steps in pages of three"
    [[ $output == *step-000000512* ]]
    [ $(($(cat "$DIR/rules.count") - before)) -lt 60 ]
    rm -r "$THERE/long"
}

@test "killed on the way: what is there is not fetched again; TERM ends a fetch at once" {
    rules "checkpoint.h5 delay 100 -"
    start 1 "$DIR/killed" checkpoint.load=$RUN train.max_duration=14ba log.level=info
    wait_for 30 find_one "*_shard-00000*" ! -name '*.part'
    kill -9 "$pid"
    wait "$pid" || true
    [ -n "$(find "$DIR/tmp" -name '*_shard-00000*')" ]
    rules "shard-00000 status 403 -"
    door_load "$DIR/killed" "$DIR/killed"
    cmp "$DIR/ref.load.is" "$DIR/killed.is"
    rules "shard-00000 delay 100 -"
    start 1 "$DIR/termed" checkpoint.load=$RUN train.max_duration=14ba
    wait_for 30 find_one '*_MANIFEST.json' ! -name '*.part'
    kill -TERM "$pid"
    waited 75
    grep -q "the program ends" "$DIR/termed.log"
    [ -z "$(find "$DIR/termed" -name MANIFEST.json)" ]
    rm -rf "$DIR"/tmp/*
    "$BIN/tessera-ckpt" digest "$RUN" >"$DIR/digest.log" 2>&1 & # asks for no signals itself
    pid=$!
    wait_for 30 find_one '*_MANIFEST.json' ! -name '*.part'
    kill -TERM "$pid"
    waited 75
    [ -z "$(find "$DIR/tmp" -type f)" ]
}

find_one() {
    [ -n "$(find "$DIR/tmp" -name "$@")" ]
}

@test "two at once share a copy; no room is told before" {
    before=$(cat "$DIR/rules.count")
    door_digest x "$DIR/one"
    sleep 0.2
    one=$(($(cat "$DIR/rules.count") - before))
    rules "shard-00000 delay 1 -"
    door_digest x "$DIR/two" &
    door_digest x "$DIR/three"
    wait $!
    cmp "$DIR/one.is" "$DIR/two.is"
    cmp "$DIR/one.is" "$DIR/three.is"
    sleep 0.2
    echo "$one requests for one, $(($(cat "$DIR/rules.count") - before - one)) for two"
    [ $(($(cat "$DIR/rules.count") - before)) -lt $((3 * one)) ]
    big='<ListBucketResult><Contents><Key>hub/config.json</Key><Size>999999999999999</Size></Contents></ListBucketResult>'
    rules "list-type text $big -"
    ends 93 "*which has room for*set TMPDIR*" "$BIN/tessera-hf" verify s3://bucket/hub s3://bucket/hub
}

@test "what changes meanwhile, and names that no file may have" {
    rules "model.safetensors delay 6 -"
    "$BIN/tessera-hf" verify s3://bucket/hub "$DIR/hub" >"$DIR/changes" 2>&1 &
    wait_for 10 find_one '*_config.json' ! -name '*.part'
    touch -d '2001-01-01' "$THERE/hub/tokenizer.json" "$THERE/hub/config.json"
    code=0
    wait $! || code=$?
    cat "$DIR/changes"
    [ $code = 93 ]
    grep -q "changed while it was fetched" "$DIR/changes"
    bad='<ListBucketResult><Contents><Key>m/../../x</Key><Size>3</Size></Contents></ListBucketResult>'
    rules "list-type text $bad -"
    ends 93 "*can be no file here*" "$BIN/tessera-data" tokenize --out "$DIR/bad" s3://bucket/m
    [ ! -e "$DIR/tmp/x" ] && [ ! -e "$DIR/bad" ]
    ends 64 "*s3://BUCKET/PREFIX*" "$BIN/tessera-eval" https://host/model --perplexity "$DIR/data/eval"
}

@test "a shape that only the weights say: fetched for a run alone, while the others wait" {
    local from=(model.preset=weights "model.weights=$HUB" lora.rank=2 parallel.timeout_s=2)
    rules "model.safetensors status 403 -"
    ends 64 "*give model.preset*" "$BIN/tessera-train" --print model.d_model "$CONF" "${from[@]}"
    ends 64 "*give model.preset*" "$BIN/tessera-plan" "$CONF" "${from[@]}"
    rules "model.safetensors delay 4 -"
    train 2 "$DIR/lora" "${from[@]}" train.max_duration=2ba
    train 2 "$DIR/lora" "${from[@]}" train.max_duration=4ba
}

unsaid() { # COMMAND ...
    ends 64 "*a user or a password*" "$@"
    [[ $output != *PASSW* ]]
}

@test "an address with a password is not said; objects that are no files" {
    local secret=https://user:PASSW@host/x?X-Amz-Signature=PASSW
    for at in "$secret" s3://id:PASSW@bucket/x; do
        unsaid train 1 "$DIR/secret" "model.weights=$at"
        unsaid "$BIN/tessera-plan" "$CONF" "checkpoint.load=$at"
        unsaid "$BIN/tessera-ckpt" prune --keep 1 "$at"
        unsaid "$BIN/tessera-hf" import "$DIR/hub" --out "$at"
        [ ! -e "$DIR/secret" ]
    done
    size='<Size>3</Size></Contents>'
    bad="<ListBucketResult><Contents><Key>m/a</Key>$size<Contents><Key>m/a/b</Key>$size</ListBucketResult>"
    rules "list-type text $bad -
m/a text abc -"
    ends 93 "*no file and folder at once*" "$BIN/tessera-data" tokenize --out "$DIR/bad" s3://bucket/m
}
