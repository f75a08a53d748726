#!/usr/bin/env bats
# Several data sets in one run, their weights over time, Streaming's orders, and
# data that change: the same bits for any number of ranks and through kills.

bats_require_minimum_version 1.5.0
load run_helpers

# A run so small that a dozen take seconds.
TINY=(train.max_duration=12ba train.global_batch=8 data.seq_len=32 data.eval=
    eval.samples=0 model.n_layers=1 model.d_model=32 model.n_heads=2
    scheduler.name=constant scheduler.warmup=0ba checkpoint.interval=2ba
    checkpoint.keep=10 log.level=warn hardware.threads=1)
MIXTURE="web 0.7 to 0.2 at 6ba, code=books/code 0.3 then 0 at 4ba, \
    new 0 then 0.8 at 5ba"

setup_file() {
    new_folder
    "$BATS_TEST_DIRNAME/english-text" 90000 >"$DIR/text"
    mkdir -p "$DIR/data/books"
    head -c 40000 "$DIR/text" | set_of data/web
    tail -c 30000 "$DIR/text" | set_of data/books/code
    tail -c 55000 "$DIR/text" | head -c 25000 | set_of data/new
    mix 1 "$DIR/ref" log.level=info >"$DIR/ref.log" 2>&1
}

set_of() { # DIR/FOLDER: of what is on stdin
    cat >"$DIR/part"
    "$BIN/tessera-data" tokenize --seq-len 32 --shard-bytes 20000 \
        --out "$DIR/$1" "$DIR/part"
}

# tiny RANKS DIR [key=value ...]
tiny() {
    local ranks=$1 dir=$2
    shift 2
    train "$ranks" "$dir" "${TINY[@]}" "$@"
}

# mix RANKS DIR [key=value ...]: of MIXTURE
mix() {
    local ranks=$1 dir=$2
    shift 2
    tiny "$ranks" "$dir" "data.train=$DIR/data" "data.mixture=$MIXTURE" "$@"
}

same_bits() { # RUN REFERENCE
    [ "$(basename "$(newest "$1")")" = step-000000012 ]
    [ "$(digest "$1")" = "$(digest "$2")" ]
}

last_streams() { # RUN
    tail -n 1 "$1/metrics.jsonl" | grep -o '"stream_tokens": {[^}]*}'
}

refused() { # CODE TEXT [key=value ...]: by a run that never begins
    rm -rf "$DIR/refused"
    ends "$1" "$2" tiny 1 "$DIR/refused" "data.train=$DIR/data" "${@:3}"
}

@test "a mixture follows its schedule" {
    [ "$(last_streams "$DIR/ref")" = \
        '"stream_tokens": {"web": 1312, "code": 352, "new": 1408}' ]
    # none of the set that was swapped out is read any more
    [ "$(sed -n 's/.*"code": \([0-9]*\).*/\1/p' "$DIR/ref/metrics.jsonl" |
        tail -n +4 | sort -u)" = 352 ]
    grep -q "data.mixture: web: 1251 samples, 6 of the first 8, 0.03 epochs" \
        "$DIR/ref.log"
}

@test "two and three ranks give the same bits" {
    mix 2 "$DIR/np2"
    same_bits "$DIR/np2" "$DIR/ref"
    mix 3 "$DIR/np3"
    same_bits "$DIR/np3" "$DIR/ref"
    [ "$(last_streams "$DIR/np3")" = "$(last_streams "$DIR/ref")" ]
}

@test "killed in the middle of the schedule, on other ranks the same bits" {
    local pid long=("${TINY[@]}" "data.train=$DIR/data" train.max_duration=400ba
        checkpoint.interval=40ba "data.mixture=web 0.7 to 0.2 at 350ba, \
        code=books/code 0.3 then 0 at 150ba, new 0 then 0.8 at 120ba")
    train 1 "$DIR/whole" "${long[@]}"
    start 2 "$DIR/killed" "${long[@]}"
    wait_for 30 test -e "$DIR/killed/checkpoints/step-000000080"
    # shellcheck disable=SC2046 # one word a process
    kill -KILL $(ranks_of "$pid")
    run wait "$pid"
    [ "$(basename "$(newest "$DIR/killed")")" \< step-000000360 ]
    train 1 "$DIR/killed" "${long[@]}" train.max_duration=222ba
    train 3 "$DIR/killed" "${long[@]}"
    [ "$(digest "$DIR/killed")" = "$(digest "$DIR/whole")" ]
    equal_replays "$DIR/killed"
}

@test "a set in a folder of another name is the same data" {
    mv "$DIR/data" "$DIR/moved"
    mix 1 "$DIR/moved-run" "data.train=$DIR/moved"
    mv "$DIR/moved" "$DIR/data"
    same_bits "$DIR/moved-run" "$DIR/ref"
}

@test "held-out data that is trained on is told: by path, as a copy, of a mixture" {
    local told="is the same data set as"
    cp -r "$DIR/data/new" "$DIR/held"
    run -0 tiny 1 "$DIR/held-run" "data.train=$DIR/data/new" "data.eval=$DIR/data/new" train.max_duration=1ba
    [[ "$output" == *"data.eval ("*"$told $DIR/data/new"* ]]
    rm -r "$DIR/held-run"
    run -0 mix 1 "$DIR/held-run" "data.eval=$DIR/held" train.max_duration=1ba
    [[ "$output" == *"data.eval ("*"$told $DIR/data/new"* ]]
    rm -r "$DIR/held-run"
    run -0 tiny 1 "$DIR/held-run" "data.train=$DIR/data/web" "data.eval=$DIR/data/new" train.max_duration=1ba
    [[ "$output" != *"$told"* ]]
}

@test "Streaming's orders give the same bits on any ranks, also resumed" {
    local py1e=(data.order=py1e data.canonical_nodes=2 data.shuffle_block=300
        data.batching=stratified data.train="$DIR/data"
        "data.mixture=web repeat 0.05, new repeat 0.04, code=books/code choose 32")
    tiny 1 "$DIR/py1e" "${py1e[@]}"
    grep -q '"step": 12' "$DIR/py1e/metrics.jsonl"
    tiny 2 "$DIR/py1e-2" "${py1e[@]}" train.max_duration=5ba
    tiny 3 "$DIR/py1e-2" "${py1e[@]}"
    same_bits "$DIR/py1e-2" "$DIR/py1e"
    [ "$(digest "$DIR/py1e")" != "$(digest "$DIR/ref")" ]
    run -93 tiny 1 "$DIR/py1e-2" "${py1e[@]}" data.shuffle_seed=5
    [[ "$output" == *"data.shuffle_seed"*"data.change = continue"* ]]
}

@test "other data are refused, or begin where the run continues" {
    local a="data.train=$DIR/data/web" b="data.train=$DIR/data/new"
    tiny 1 "$DIR/one" "$a" train.max_duration=4ba
    cp -r "$DIR/one" "$DIR/two"
    run -93 tiny 1 "$DIR/one" "$b"
    [[ "$output" == *"data.train"*"data.change = continue"* ]]
    tiny 1 "$DIR/one" "$b" data.change=continue
    # stopped once and resumed on other ranks, also without the permission
    tiny 2 "$DIR/two" "$b" data.change=continue train.max_duration=7ba
    tiny 3 "$DIR/two" "$b"
    same_bits "$DIR/two" "$DIR/one"
    [ "$(grep -c '"event": *"data"' "$DIR/two/ledger.jsonl")" = 1 ]
    grep '"event": *"data"' "$DIR/two/ledger.jsonl" | grep -q '"from": *4'
    # back to the old data is a change, too
    run -93 tiny 1 "$DIR/one" "$a" train.max_duration=14ba
    # from a checkpoint before the change it is made there, and told
    rm -rf "$DIR"/two/checkpoints/step-0000000{04,06,07,08,10,12}
    run -0 tiny 1 "$DIR/two" "$b" data.change=continue
    [[ "$output" == *"change after step 2 "* ]]
    [ "$(digest "$DIR/two")" != "$(digest "$DIR/one")" ]
}

@test "a mixture that changes goes on in the sets that stay" {
    mix 1 "$DIR/more" train.max_duration=6ba
    mix 2 "$DIR/more" data.change=continue \
        "data.mixture=new 1, web 3, more=books/code 1"
    # 6, 31 and 0 samples before, and 10, 29 and 9 since
    [ "$(last_streams "$DIR/more")" = \
        '"stream_tokens": {"new": 512, "web": 1920, "more": 288}' ]
    grep '"event": *"data"' "$DIR/more/ledger.jsonl" |
        grep -q '"name": *"web"[^}]*"begin": *[1-9]'
}

@test "what makes no mixture is refused with its reason" {
    refused 64 "data.mixture: web: a weight of 0 or more" "data.mixture=web -1"
    refused 64 "all weights of the mixture are 0" "data.mixture=web 0, new 0"
    refused 64 "1 of 2 data sets" "data.mixture=web 1, new"
    refused 93 "$DIR/data/wbe" "data.mixture=wbe 1"
    refused 64 "data.batching does nothing without" data.order=py1e \
        data.batching=per_stream "data.train=$DIR/data/web"
    refused 64 "data.shuffle_block does nothing" data.shuffle_block=100 \
        "data.mixture=web 1"
    refused 64 "train.seed" data.shuffle_seed=1 "data.mixture=web 1"
    refused 64 "need data.order = canonical" data.order=py1s \
        "data.mixture=web 1 to 2 at 5ba"
    refused 64 "not after the one before" "data.mixture=web 1 to 2 at 8sp to 3 at 1ba"
    cp -r "$DIR/data/web" "$DIR/data/other"
    sed -i 's/\("tokenizer_sha256": *"\)./\1f/' "$DIR/data/other/tessera.json"
    refused 93 "another tokenizer" "data.mixture=web 1, other 1"
}

@test "tessera-plan tells each set's epochs" {
    run -0 "$BIN/tessera-plan" "$CONF" "${TINY[@]}" "data.train=$DIR/data" \
        "data.mixture=web 3, new 1" train.max_duration=1000ba
    [[ "$output" =~ "epochs of web"\ +4.80 ]]
    run -0 "$BIN/tessera-plan" --json "$CONF" "${TINY[@]}" \
        "data.train=$DIR/data" "data.mixture=web 3, new 1"
    [[ "$output" == *'"streams"'*'"new"'* ]]
}

@test "epochs of other data move no learning rate in silence" {
    local cosine=(scheduler.name=cosine scheduler.t_max=0.05ep)
    tiny 1 "$DIR/rate" "data.train=$DIR/data/web" "${cosine[@]}" \
        train.max_duration=6ba
    run -0 tiny 1 "$DIR/rate" "data.train=$DIR/data/new" "${cosine[@]}" \
        data.change=continue
    [[ "$output" == *"the learning rate of step 7 is "*t_max=8ba* ]]
    grep -q '"lr": \[' "$DIR/rate/ledger.jsonl"
}
