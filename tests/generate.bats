#!/usr/bin/env bats
# tessera-generate and tessera-chat over a small model that is trained here, and
# what a run samples while it is trained.
load run_helpers
bats_require_minimum_version 1.5.0

setup_file() {
    [ -x "${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}/tessera-chat" ] ||
        skip "tessera-chat was not built"
    new_folder
    BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
    make_data
    printf 'the king\nGr\xc3\xbc\xc3\x9fe \n' >"$DIR/prompts"
    train 1 "$DIR/run" "generate.prompts=$DIR/prompts" generate.max_tokens=12 \
        generate.interval=12ba
}

setup() {
    cd "$DIR" || return 1
    GENERATE=$BIN/tessera-generate
}

# generate ARGUMENT...: of the run, without what goes to stderr
generate() {
    "$GENERATE" "$DIR/run" "$@" 2>"$DIR/stderr"
}

# fails CODE TEXT ARGUMENT...: the last line on stderr, nothing on stdout
fails() {
    local code=$1 text=$2
    shift 2
    run --separate-stderr "$GENERATE" "$@"
    echo "status $status: $output $stderr"
    [ "$status" -eq "$code" ] && [ -z "$output" ] &&
        [[ "${stderr_lines[-1]}" == "tessera-generate: "*"$text"* ]]
}

@test "wrong usage: exit 64 and what to do" {
    ends 0 "--repetition-penalty" "$GENERATE" --help
    ends 64 '' "$GENERATE"
    fails 64 "one of --prompt" run
    fails 64 "one MODEL" --prompt a
    fails 64 "one MODEL" run run --prompt a
    fails 64 "one of them at a time" run --prompt a --score
    fails 64 "--temperature takes a number" run --prompt a --temperature hot
    fails 64 "temperature is 0" run --prompt a --temperature 0
    fails 64 "top-p is 2" run --prompt a --top-p 2
    fails 64 "--top-k takes" run --prompt a --top-k -1
    fails 64 "--greedy draws nothing" run --prompt a --greedy --seed 3
    fails 64 "--max-tokens takes" run --prompt a --max-tokens 0
    fails 64 "--weights takes" run --prompt a --weights fp64
    fails 64 "--frobnicate" run --prompt a --frobnicate
    fails 64 "not empty" run --prompt a --stop ''
    fails 64 "need --chat" run --prompt a --system b
    fails 64 "--batch needs" run --prompt a --batch 2
    fails 64 "generates none" run --score --max-tokens 3
    fails 64 "nothing: no such file" run --prompts nothing
    : >empty
    fails 64 "no prompt in it" run --prompts empty
    fails 64 "names no token that begins" run --prompt ''
    fails 64 "no chat template with the model" run --prompt a --chat
    fails 64 "learned 128 positions" run --prompt a --context 1000
    fails 64 "the context of the model 8" run --prompt "longer than that" \
        --context 8
    fails 64 "nowhere: no such file or folder" nowhere --prompt a
    fails 64 "unknown tokenizer 'nowhere'" run --prompt a --tokenizer nowhere
    fails 64 "nowhere" run --prompt a --chat --chat-template nowhere
}

@test "the completion and nothing else, the same on any threads and weights" {
    generate --prompt "the king" --max-tokens 20 >text
    [ "$(wc -c <text)" -ge 15 ]
    grep -q "tokens: greedy" stderr
    for threads in 1 2 3; do
        generate --prompt "the king" --max-tokens 20 --threads $threads >again
        cmp text again
    done
    generate --prompt "the king" --max-tokens 20 --weights bf16 >/dev/null
    grep -q "weights as bf16" stderr
    generate --prompt "the king" --max-tokens 20 --weights int8 >/dev/null
    [ "$("$BIN/tessera-generate" "$(newest run)" --prompt "the king" \
        --max-tokens 20 2>/dev/null)" = "$(cat text)" ]
}

@test "a seed has its text, in any batch" {
    printf 'the king\n\xc3\xbc\nof\nand the lord\na\n' >many
    for batch in 1 2 4; do
        for threads in 1 2 3; do
            generate --prompts many --temperature 1.5 --top-k 40 --seed 5 \
                --max-tokens 30 --batch $batch --threads $threads \
                >"many.$batch.$threads"
            cmp many.1.1 many.$batch.$threads
        done
    done
    [ "$(wc -l <many.1.1)" -eq 5 ]
    [[ "$(sed -n 2p many.1.1)" == '{"number":1,"prompt":"ü","completion":"'* ]]
    generate --prompt "the king" --temperature 1.5 --top-k 40 --seed 5 \
        --max-tokens 30 --json >one
    [ "$(cat one)" = "$(head -n 1 many.1.1)" ]
    generate --prompts many --temperature 1.5 --top-k 40 --seed 6 \
        --max-tokens 30 >other
    run ! cmp -s other many.1.1
    printf '{"prompt": "the king", "id": 1}\n{"prompt": "\\u00fc"}\n' >p.jsonl
    generate --prompts p.jsonl --temperature 1.5 --top-k 40 --seed 5 \
        --max-tokens 30 >records
    [ "$(cat records)" = "$(head -n 2 many.1.1)" ]
}

# on RANKS COMMAND...: with standard input
on() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        mpirun --oversubscribe --bind-to none -np "$@"
}

@test "the same bytes on 1, 2 and 4 ranks, wherever the weights lie" {
    for i in $(seq 37); do echo "prompt $i of the"; done >dealt
    train 1 "$DIR/moe" model.preset=moe-tiny
    for model in run moe; do
        "$GENERATE" $model --prompts dealt --max-tokens 9 2>/dev/null >"$model.greedy"
        "$GENERATE" $model --prompts dealt --max-tokens 9 --temperature 1.5 --seed 5 2>/dev/null >"$model.drawn"
        run ! cmp -s $model.greedy $model.drawn
        "$GENERATE" $model --prompt "the king" --max-tokens 30 2>/dev/null >"$model.one"
        "$GENERATE" $model --score <"$model.one" 2>/dev/null >"$model.score"
        for way in "2 node" "2 ranks" "4 ranks"; do
            read -r ranks spread <<<"$way"
            echo "$model on $way"
            several=(on "$ranks" "$GENERATE" "$model" --spread "$spread")
            "${several[@]}" --prompts dealt --max-tokens 9 --batch 2 2>log >text
            cmp $model.greedy text
            "${several[@]}" --prompts dealt --max-tokens 9 --temperature 1.5 --seed 5 2>/dev/null >text
            cmp $model.drawn text
            [ "$way" != "2 ranks" ] || continue
            "${several[@]}" --prompt "the king" --max-tokens 30 2>/dev/null >text
            cmp $model.one text
            "${several[@]}" --score <"$model.one" 2>/dev/null >text
            cmp $model.score text
        done
        grep "weights are spread over 4 ranks, .* on each" log
    done
}

@test "ranks end together, by rank 0's word" {
    several=(on 2 "$GENERATE")
    ends 64 "*nothing: no such file*" "${several[@]}" run --prompts nothing
    ends 64 "*no text on standard input*" "${several[@]}" run --score </dev/null
    ends 64 "*spread over ranks are fp32*" "${several[@]}" run --prompt a --spread ranks --weights int8
    [ "$("${several[@]}" run --prompt "the king" --max-tokens 8 --weights int8 2>/dev/null)" = \
        "$(generate --prompt "the king" --max-tokens 8 --weights int8)" ]
}

@test "it ends at a text, at the most tokens, where the context is full" {
    generate --prompt "the king" --max-tokens 40 >text
    stop=$(cut -c 5-8 text)
    generate --prompt "the king" --max-tokens 40 --stop "$stop" --json >stopped
    grep -q '"end":"stop"' stopped
    run ! grep -qF "$stop\"" stopped
    generate --prompt "the king" --max-tokens 40 --json >ended
    grep -q '"tokens":40,"end":"max_tokens"' ended
    generate --prompt "the king" --max-tokens 4000 --context 16 --json >full
    grep -q '"tokens":9,"end":"context"' full
    grep -q "the context is full" stderr
}

@test "--score: the sum over all tokens but the first" {
    run --separate-stderr "$GENERATE" run --score <<<"the king of the land"
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [[ "$output" =~ ^\{\"tokens\":\ 21,\ \"nll\":\ ([0-9.]+)\}$ ]]
    # a byte model of English after a few steps: 2 to 5 nats each
    awk -v x="${BASH_REMATCH[1]}" 'BEGIN { exit !(x > 30 && x < 110) }'
    [ "$(printf 'a' | "$GENERATE" run --score 2>/dev/null)" = \
        '{"tokens": 1, "nll": 0}' ]
    run --separate-stderr "$GENERATE" run --score </dev/null
    [ "$status" -eq 64 ]
    run --separate-stderr "$GENERATE" run --score < <(printf '%0200d' 7)
    [ "$status" -eq 64 ]
    [[ "$stderr" == *"has 200 tokens, and the context of the model 128"* ]]
}

@test "chat from a pipe: turns, /reset, /save, /quit" {
    cat >talk.jinja <<'TEMPLATE'
{% for m in messages %}{{ m.role }}:{{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}
TEMPLATE
    printf 'hello\nhow are you\n/save talk.jsonl\n/reset\nhello\n/frob\n/save talk.jsonl\n/quit\nno\n' |
        "$BIN/tessera" chat run --chat-template talk.jinja --max-tokens 8 \
            --temperature 1 >answers 2>said
    cat answers said
    [ "$(wc -l <talk.jsonl)" -eq 2 ]
    [[ "$(head -n 1 talk.jsonl)" == \
        '{"messages":[{"role":"user","content":"hello"},{"role":"assistant",'*'{"role":"user","content":"how are you"}'* ]]
    # the same conversation has the same answer
    first=$(sed -n 1p talk.jsonl | cut -d '}' -f 2)
    [ "$first" = "$(sed -n 2p talk.jsonl | cut -d '}' -f 2)" ]
    grep -q "/frob is none of" said
    # what was saved is data to learn from
    "$BIN/tessera-data" tokenize --chat --out saved --template chatml \
        --seq-len 512 talk.jsonl
}

@test "chat: nothing is saved where nothing was answered" {
    printf '/save none.jsonl\n/quit\n' |
        "$BIN/tessera-chat" run --chat-template none --system 'Be brief.' \
            >answers 2>said
    cat said
    grep -q "nothing to save" said
    [ ! -e none.jsonl ]
}

@test "on a terminal control characters are written out" {
    command -v script >/dev/null || skip "no script(1)"
    wild=(--temperature 30 --seed 3 --max-tokens 120)
    generate --prompt a "${wild[@]}" >piped
    # the model has some to show, and files get them as they are
    [ "$(tr -d '\n\t\40-\176\200-\377' <piped | wc -c)" -gt 3 ]
    echo hello >hello
    for command in "'$GENERATE' run --prompt a ${wild[*]}" \
        "'$GENERATE' run --prompt a --json ${wild[*]}" \
        "'$BIN/tessera-chat' run --chat-template none ${wild[*]} <hello"; do
        script -qec "$command 2>/dev/null" /dev/null </dev/null >screen
        cat -v screen
        grep -q '\\u00' screen
        [ "$(tr -d '\r\n\t\40-\176\200-\377' <screen | wc -c)" -eq 0 ]
        # C1 as well, and no carriage return but those of the terminal
        run ! grep -qP '\xc2[\x80-\x9f]' screen
        run ! grep -qP '\r[^\n\r]' screen
    done
}

@test "another tokenizer than the model's is warned of" {
    generate --prompt a --tokenizer bytes --max-tokens 2
    run ! grep "another tokenizer" stderr
    "$BIN/tessera-data" train-tokenizer --vocab-size 257 --out tok text
    generate --prompt a --tokenizer tok --max-tokens 2
    cat stderr
    grep -q "was trained with another tokenizer (SHA-256 .*, 257 tokens) than tok" stderr
    "$BIN/tessera-hf" export run --out hf
    rm hf/tokenizer.json
    run --separate-stderr "$GENERATE" hf --prompt a
    [ "$status" -eq 64 ]
    run --separate-stderr "$GENERATE" hf --prompt a --tokenizer bytes \
        --max-tokens 2
    echo "$stderr"
    [[ "$stderr" == *"was trained with 320 tokens, the tokenizer bytes has 257"* ]]
}

@test "what is no regular file is refused by name, and not waited for" {
    rm -f pipe
    mkfifo pipe
    for what in "pipe:a pipe" "/dev/zero:a device"; do
        fails 64 "${what%%:*}: is ${what#*:}, not a regular file" "${what%%:*}" --prompt a
        fails 64 "${what%%:*}: is ${what#*:}, not a regular file" run --prompts "${what%%:*}"
    done
    fails 64 "data: is a folder, not a regular file" run --prompts data
    mkdir -p strange
    mkfifo strange/config.json
    fails 93 "config.json: is a pipe, not a regular file" strange --prompt a
    # what the process was given is read
    echo "the king" | "$GENERATE" run --prompts /dev/stdin --max-tokens 3 >got 2>stderr
    "$GENERATE" run --prompts <(echo "the king") --max-tokens 3 >again 2>stderr
    [ "$(wc -l <got)" -eq 1 ]
    cmp got again
}

@test "a run hears of missing prompts before it makes its weights" {
    for prompts in "nothing:no such file" "data:is a folder, not a regular file"; do
        file=${prompts%%:*} text=${prompts#*:}
        ends 64 '' train 1 none "generate.prompts=$DIR/$file" log.level=info
        [[ "${lines[-1]}" == *"generate.prompts: $DIR/$file: $text"* ]]
        [[ "$output" != *"parameters"*"weights"* ]]
        rm -rf none
    done
}

@test "chat: a full context is told, and the conversation goes on" {
    long=$(printf '%0.sx' $(seq 120))
    printf '%s\n/reset\nhi\n' "$long" |
        "$BIN/tessera-chat" run --chat-template none --max-tokens 4 >answers \
            2>said
    printf '%s%s\nhi\n' "$long" "$long" |
        "$BIN/tessera-chat" run --chat-template none --max-tokens 4 >answers \
            2>said
    cat answers said
    grep -q "has room for 128: say less, or /reset" said
    [ -s answers ]
}

@test "chat on a terminal: Ctrl-C ends the answer and not the program" {
    command -v script >/dev/null || skip "no script(1)"
    mkfifo keys
    # Ctrl-C within an answer or behind it, and at the prompt
    script -qefc "'$BIN/tessera-chat' run --chat-template none --context 128" \
        screen <keys >/dev/null 2>&1 3>&- &
    pid=$!
    exec 9>keys
    wait_for 60 grep -q '> ' screen
    printf 'the king\n' >&9
    sleep 0.2
    printf '\003' >&9
    sleep 0.2
    printf '\003' >&9
    wait_for 60 grep -Eq 'interrupted|ends' screen
    printf '/quit\n' >&9
    wait_for 60 gone $pid
    exec 9>&-
    cat screen
}

@test "a run samples its prompts, and nothing of it depends on that" {
    [ "$(wc -l <run/samples.jsonl)" -eq 4 ]
    [[ "$(head -n 1 run/samples.jsonl)" == \
        '{"attempt":1,"step":12,"number":0,"prompt":"the king","text":"'*'","tokens":12,"end":"max_tokens"}' ]]
    grep -q '"step":24,"number":1,"prompt":"Grüße "' run/samples.jsonl
    # the last ones are those of the checkpoint
    text=$(generate --prompt "the king" --max-tokens 12 --json |
        sed -E 's/.*"completion":("[^}]*"),"prompt_tokens.*/\1/')
    grep '"step":24,"number":0' run/samples.jsonl | grep -qF "\"text\":$text,"
    train 1 plain
    [ "$(digest plain)" = "$(digest run)" ]
    for way in "2 ddp" "2 zero3" "4 zero3"; do
        train "${way% *}" "way" "generate.prompts=$DIR/prompts" \
            generate.max_tokens=12 generate.interval=12ba \
            "parallel.strategy=${way#* }"
        cmp run/samples.jsonl way/samples.jsonl
        [ "$(digest way)" = "$(digest run)" ]
        rm -rf way
    done
}

@test "the model's generation_config.json, and what is said over it" {
    cp -r "$(newest run)" ck
    echo '{"do_sample": true, "temperature": 0.5, "top_k": 7, "num_beams": 4,
        "eos_token_id": [256, 101]}' >ck/generation_config.json
    run --separate-stderr "$GENERATE" ck --prompt "the king" --json
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [[ "$stderr" == *"temperature 0.5, top-k 7, seed 17 (the model's"* ]]
    [[ "$stderr" == *"'num_beams' is not done here"* ]]
    [[ "$output" == *'"end":"eos"}' ]]
    run --separate-stderr "$GENERATE" ck --prompt "the king" --top-k 3 --seed 2
    [[ "$stderr" == *"temperature 0.5, top-k 3, seed 2 (the command line"* ]]
    run --separate-stderr "$GENERATE" ck --prompt "the king" --greedy
    [[ "$stderr" == *"tokens: greedy (the command line"* ]]
    echo '{"temperature": 0.5, "do_sample": false}' >ck/generation_config.json
    run --separate-stderr "$GENERATE" ck --prompt "the king"
    [[ "$stderr" == *"tokens: greedy (the model's"* ]]
    for wrong in '{"top_k": "x"}' '{"eos_token_id": 1.5}' '[]' '{' \
        '{"eos_token_id": [1, -2]}' '{"do_sample": true, "top_p": 7}'; do
        echo "$wrong" >ck/generation_config.json
        fails 93 "generation_config.json" ck --prompt a
    done
}
