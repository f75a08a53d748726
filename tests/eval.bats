#!/usr/bin/env bats
# tessera-eval: a model that was trained on the spot, scored alone and on ranks,
# and during its training.

load run_helpers
bats_require_minimum_version 1.5.0

setup_file() {
    data_folder
    cd "$DIR" || return 1
    tasks >gauntlet.conf
    scored
    train 1 "$DIR/run" "${SCORED[@]}"
}

setup() {
    cd "$DIR" || return 1
    EVAL=$BIN/tessera-eval
    scored
}

# Settings of a run that scores tasks.
scored() {
    SCORED=("eval.tasks=language_modeling:$DIR/lm.jsonl:1"
        "eval.gauntlet=$DIR/gauntlet.conf" eval.tasks_interval=12ba
        eval.tasks_batch=3)
}

# Task files in the folder, and a gauntlet of them.
tasks() {
    local i
    for i in 1 2 3 4 5 6 7; do
        echo "{\"context\": \"one $i\", \"continuation\": \"e\", \"category\": \"c$((i % 2))\"}" >>lm.jsonl
        echo "{\"query\": \"two $i\", \"choices\": [\"a\", \"th\", \"the\"], \"gold\": $((i % 3))}" >>mc.jsonl
        echo "{\"context_options\": [\"he\", \"she $i\"], \"continuation\": \"is\", \"gold\": $((i % 2))}" >>schema.jsonl
        echo "{\"context\": \"say $i\", \"answer\": \"ee\", \"aliases\": [\"t\"]}" >>gen.jsonl
    done
    cat <<'EOF'
tasks = ({ label = "mc"; file = "mc.jsonl"; kind = "multiple_choice"; shots = [0, 2]; },
         { label = "schema"; file = "schema.jsonl"; kind = "schema"; shots = 1; },
         { label = "gen"; file = "gen.jsonl"; kind = "generation_task_with_answers"; });
categories = ({ name = "all"; benchmarks = (
                  { name = "mc"; shots = 2; random_baseline = 0.25; },
                  { name = "schema"; shots = 1; random_baseline = 0.5; }); });
EOF
}

score() { # NAME [COMMAND...] -- OPTION...: $1.json and $1.lines
    local name=$1 command=()
    shift
    while [ "$1" != -- ]; do
        command+=("$1")
        shift
    done
    shift
    "${command[@]}" "$EVAL" run --task language_modeling:lm.jsonl:1 --gauntlet gauntlet.conf \
        --perplexity data/eval --limit 6 --json --examples "$name.lines" "$@" \
        >"$name.json" 2>"$name.log" || { cat "$name.log"; return 1; }
}

@test "the same bytes for any batch, ranks and threads" {
    score ref -- --batch 8
    grep -q '"accuracy"' ref.json
    grep -q '"nll_per_byte": [0-9]' ref.json
    [ "$(wc -l <ref.lines)" -eq 30 ]
    score b1 -- --batch 1 --threads 1
    score b3 -- --batch 3 --threads 2
    score n2 "$MPIRUN" 2 -- --batch 3
    for name in b1 b3 n2; do
        cmp ref.json $name.json
        cmp ref.lines $name.lines
    done
}

@test "the same bytes wherever the weights lie: a copy on the node, or parts on ranks" {
    score ref --
    for way in node ranks; do
        for ranks in 2 4; do
            score "$way$ranks" "$MPIRUN" $ranks -- --spread $way
            cmp ref.json $way$ranks.json
            cmp ref.lines $way$ranks.lines
        done
        "$MPIRUN" 3 "$EVAL" run --gauntlet gauntlet.conf --limit 5 --spread $way \
            --examples $way.lines >$way.table 2>$way.log
    done
    grep -q "weights are there once a node, " node2.log node.log
    grep -q "weights are spread over 4 ranks, .* on each with the blocks at work" ranks4.log
    cmp node.lines ranks.lines
    for n in 1 2; do
        "$MPIRUN" $n "$EVAL" run --task multiple_choice:mc.jsonl --weights int8 --spread node \
            --examples int8-$n.lines >table
    done
    cmp int8-1.lines int8-2.lines
    run "$MPIRUN" 2 "$EVAL" run --task multiple_choice:mc.jsonl --weights int8 --spread ranks
    [ "$status" -eq 64 ] && [[ "$output" == *"spread over ranks are fp32"* ]]
}

@test "a rank that is killed ends the others, which name it" {
    local i pid
    for ((i = 0; i < 20000; i++)); do
        echo "{\"context\": \"say $i\", \"answer\": \"eeeeeeeeeeeeeeee\"}"
    done >many.jsonl
    "$MPIRUN" 3 --enable-recovery "$EVAL" run --spread ranks \
        --task generation_task_with_answers:many.jsonl >killed.out 2>killed.log 3>&- &
    pid=$!
    wait_for 300 grep -q "weights are spread over 3 ranks" killed.log
    for i in $(descendants "$pid"); do
        tr '\0' '\n' <"/proc/$i/environ" | grep -qx OMPI_COMM_WORLD_RANK=1 && kill -9 "$i"
    done
    wait "$pid" || true
    grep -q "^tessera-eval: no answer .* from rank 1 (" killed.log
    run ! grep "from rank [02] (" killed.log # who waits is listed, not blamed
    [ ! -s killed.out ]
}

# Two ranks with the task files of $DIR/rank0 and $DIR/rank1.
apart() { # CODE TEXT COMMAND...: fails on account of the data
    # shellcheck disable=SC2016 # of the rank's shell
    ends "$1" "$2" "$MPIRUN" 2 sh -c 'cd "rank$OMPI_COMM_WORLD_RANK" && exec "$@"' sh "${@:3}"
}

@test "ranks that have read other tasks do not score them" {
    rm -rf rank0 rank1
    mkdir rank0 rank1
    cp ./*.jsonl gauntlet.conf rank0
    cp ./*.jsonl gauntlet.conf rank1
    lm=("$EVAL" "$DIR/run" --task schema:schema.jsonl --task language_modeling:lm.jsonl)
    head -n 6 lm.jsonl >rank1/lm.jsonl
    apart 93 "rank 1 (" "${lm[@]}"
    [[ "$output" == *"task 'lm' has other examples"* ]]
    sed 's/one 7/One 7/' lm.jsonl >rank1/lm.jsonl
    command_of 1 "$DIR/apart" eval.tasks=language_modeling:lm.jsonl
    apart 93 "task 'lm' has other examples" "${command[@]}"
    rm rank1/lm.jsonl
    apart 64 "rank 1 (" "${lm[@]}"
    rm rank1/mc.jsonl
    apart 93 "task 1 is 'schema' here, and 'mc' on rank 0" \
        "$EVAL" "$DIR/run" --gauntlet gauntlet.conf
}

@test "the perplexity is that of the evaluation during training" {
    "$EVAL" run --perplexity data/eval --limit 8 --json >ppl.json
    trained=$(grep -o '"eval_loss": [^,]*' run/eval.jsonl | tail -n 1 | grep -o '[0-9.]*$')
    awk -v a="$trained" -v b="$(sed -n 's/.*"nll_per_token": \([0-9.]*\).*/\1/p' ppl.json)" \
        'BEGIN { exit !(a > 0 && b / a > 0.999999 && b / a < 1.000001) }'
}

@test "what training scores is what tessera-eval scores, under every strategy" {
    [ "$(grep -c '"step":[0-9]*,"tasks"' run/eval.jsonl)" -eq 2 ]
    last=$(grep '"step":24,"tasks"' run/eval.jsonl)
    score whole -- --limit 100
    for key in right score; do
        [ "$(grep -o "\"$key\":[0-9.-]*" <<<"$last" | tr -d ' ')" = \
            "$(grep -o "\"$key\": [0-9.-]*" whole.json | tr -d ' ')" ]
    done
    for strategy in ddp zero3; do
        train 2 "$DIR/$strategy" "${SCORED[@]}" parallel.strategy=$strategy
        cmp <(grep '"tasks"' $strategy/eval.jsonl) <(grep '"tasks"' run/eval.jsonl)
    done
}

@test "ranks that share experts score and write what one alone does" {
    printf 'the king\nof\n' >prompts
    experts=("${SCORED[@]}" model.preset=moe-tiny
        train.max_duration=12ba "generate.prompts=$DIR/prompts"
        generate.interval=6ba generate.max_tokens=8 eval.tasks_interval=6ba)
    train 1 "$DIR/alone" "${experts[@]}"
    [ "$(grep -c '"tasks"' alone/eval.jsonl)" -eq 2 ]
    [ "$(wc -l <alone/samples.jsonl)" -eq 4 ]
    for way in zero2:1 zero2:2 zero3:2; do
        train 2 "$DIR/shared" "${experts[@]}" "parallel.strategy=${way%:*}" \
            "parallel.expert_degree=${way#*:}"
        cmp <(grep '"tasks"' shared/eval.jsonl) <(grep '"tasks"' alone/eval.jsonl)
        cmp shared/samples.jsonl alone/samples.jsonl
        [ "$(digest shared)" = "$(digest alone)" ]
        rm -rf shared
    done
}

@test "other weights, prompts alone, a table and a file" {
    score int8 -- --weights int8 --perplexity data/eval && return 1
    "$EVAL" run --task multiple_choice:mc.jsonl --weights int8 --out int8.json >table
    grep -q '^mc  *0  *7  *[01]\.[0-9]*$' table
    # more shots than there are others are not what is said
    "$EVAL" run --task multiple_choice:mc.jsonl:1000 --json 2>log >many.json
    grep -q "mc, 6-shot (there are no more): " log
    grep -q '"shots": 6,' many.json
    run ! grep "whatever the model says" log
    echo '{"query": "a", "gold": 0, "choices": ["b"]}' >one.jsonl
    "$EVAL" run --task multiple_choice:one.jsonl 2>log
    grep -q "one: 1 examples count as right whatever the model says" log
    "$EVAL" run --task multiple_choice:mc.jsonl --tokenizer bytes 2>log
    run ! grep "another tokenizer" log
    "$BIN/tessera-data" train-tokenizer --vocab-size 257 --out tok text
    "$EVAL" run --task multiple_choice:mc.jsonl --tokenizer tok 2>log
    grep -q "was trained with another tokenizer" log
    grep -q '"task": "mc"' int8.json
    "$EVAL" run --task multiple_choice:mc.jsonl:1 --dry-run --examples prompts
    [ "$(wc -l <prompts)" -eq 7 ]
    [ "$(grep -c scores prompts)" -eq 0 ]
    "$EVAL" run --task language_modeling:lm.jsonl --categories >table 2>/dev/null
    grep -q '^lm/c0 ' table
    grep -q '^lm .*mean' table
}

fails() { # CODE TEXT ARGUMENT...
    ends "$1" "$2" "$EVAL" "${@:3}"
}

@test "wrong usage and wrong files are told" {
    fails 64 "MODEL is missing" --task schema:x
    fails 64 "needs one of --task" run
    fails 64 "one MODEL at a time" run run --task schema:x
    fails 64 "--weights takes fp32" run --weights fp4 --task schema:x
    fails 64 "--batch takes" run --batch 0 --task schema:x
    fails 64 "--prelimiter is for --task" run --prelimiter a --gauntlet gauntlet.conf
    fails 64 "--dry-run is for --examples" run --dry-run --task schema:x
    fails 64 "no kind of task" run --task magic:x
    fails 93 "lm.jsonl:1: 'query'" run --task multiple_choice:lm.jsonl
    fails 64 "no such file" run --task schema:missing.jsonl
    fails 64 "missing: no such file or folder" missing --task schema:schema.jsonl
    fails 64 "missing" run --gauntlet missing
    fails 64 "missing: no such data set" run --perplexity missing
    fails 64 "unknown tokenizer 'missing'" run --tokenizer missing --task schema:schema.jsonl
    mkfifo pipe
    fails 64 "pipe: is a pipe, not a regular file" run --task schema:pipe
    fails 64 "pipe: is a pipe, not a regular file" pipe --task schema:schema.jsonl
    fails 64 "pipe: is not a regular file" run --gauntlet pipe
    sed 's/mc.jsonl/gone.jsonl/' gauntlet.conf >part.conf
    "$EVAL" run --gauntlet part.conf --limit 2 >table 2>log
    grep -q "task 'mc' is left out" log
    grep -q '^all  *-  1 of 2 benchmarks missing' table
}

@test "training refuses tasks that it cannot score" {
    ends 64 "eval.tasks: no kind of task is called 'magic'" train 1 "$DIR/none" eval.tasks=magic:x
    ends 64 '' train 1 "$DIR/none" eval.tasks="schema:$DIR/none.jsonl"
}

@test "more memory for tasks than there is: exit 93 before it is touched" {
    printf '{"context": "%030000d", "continuation": "e"}\n' 0 >long.jsonl
    ends 93 "eval.tasks and eval.gauntlet need * of memory" \
        train 1 "$DIR/none" eval.tasks="language_modeling:$DIR/long.jsonl" \
        model.max_seq_len=32768 eval.tasks_batch=65536
}
