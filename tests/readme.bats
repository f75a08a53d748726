#!/usr/bin/env bats
# README's first pages, run as they are written: the commands of "Train" and "A pretrained
# model" are taken out of README itself, in its order, with what its readers would put for
# MODEL, DIR and the files of theirs. `make` and `make tiny-data` are what runs this.

bats_require_minimum_version 1.5.0
load run_helpers

setup_file() {
    new_folder
    cd "$DIR" || return
    mkdir -p jobs runs
    cp -r "$BATS_TEST_DIRNAME/../jobs/conf" jobs/conf
    ln -s "$(cd "$BATS_TEST_DIRNAME" && pwd)" tests
    ln -s "$(cd "$(dirname "$BIN")" && pwd)" build
}

setup() {
    cd "$DIR" || return
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
}

# commands_of SECTION: one a line, without what they say of themselves
commands_of() {
    awk -v name="## $1" '/^## / { here = $0 == name }
        here && /^    [^ ]/ { open = 1 }
        here && /^    / && open {
            line = $0
            sub(/^ +/, "", line)
            sub(/ +# .*/, "", line)
            more = sub(/\\$/, "", line)
            printf "%s", line
            if (!more) { print ""; open = 0 }
        }' "$BATS_TEST_DIRNAME/../README.md"
}

# read_and_run SECTION: each must end well; how many they were in $ran
read_and_run() {
    local line
    ran=0
    while read -r line; do
        [[ "$line" != make* ]] || continue
        echo "# $line" >&3 # it lives
        line=${line//weights=MODEL/weights="$PWD/MODEL"}
        eval "${line//tokenizer DIR/tokenizer runs/bpe}" </dev/null
        ran=$((ran + 1))
    done < <(commands_of "$1")
}

@test "Train, and two digests that are equal" {
    for i in {1..8}; do
        echo "{\"prompt\": \"Name $i?\", \"response\": \"It is number $i of them.\"}"
    done >talk.jsonl
    read_and_run "Train"
    [ "$ran" -eq 11 ]
    [ "$("$BIN/tessera-ckpt" digest runs/mine)" = "$("$BIN/tessera-ckpt" digest runs/two)" ]
}

@test "A pretrained model" {
    "$BIN/tessera-train" jobs/conf/llama-tiny.cfg run.dir=runs/llama model.vocab_size=8192 \
        model.max_seq_len=256 data.train=runs/text/train data.eval=runs/text/eval \
        train.max_duration=4ba log.level=warn
    "$BIN/tessera-hf" export runs/llama --out MODEL
    cat >MODEL/chat_template.jinja <<'END'
{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
END
    for i in {1..20}; do
        echo "{\"prompt\": \"Name $i?\", \"response\": \"It is number $i of them.\"}"
    done >talk.jsonl
    for i in 1 2 3 4 5; do
        echo "{\"query\": \"Number $i?\", \"choices\": [\"It is\", \"is it\"], \"gold\": 0}"
    done >task.jsonl
    rm -rf runs/talk
    read_and_run "A pretrained model"
    [ "$ran" -eq 9 ]
    [ -s my-model.gguf ]
    [ -s my-model/config.json ]
}
