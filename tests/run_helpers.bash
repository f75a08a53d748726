# shellcheck shell=bash disable=SC2034,SC2154 # variables of the bats files
# Shared by the bats files that start training runs on this machine.

BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
CONF=$BATS_TEST_DIRNAME/../jobs/conf/tiny.cfg
MPIRUN=$BATS_TEST_DIRNAME/mpirun

# make_data: $DIR/data, samples of 64 tokens
make_data() {
    "$BATS_TEST_DIRNAME/english-text" 400000 >"$DIR/text"
    "$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.05 \
        --out "$DIR/data" "$DIR/text"
}

# new_folder: $DIR, for the tests of a file, and gone with them
new_folder() {
    export DIR
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-$(basename "$BATS_TEST_FILENAME" .bats).XXXXXX")
}

# data_folder: the same with data in it
data_folder() {
    new_folder
    make_data
}

# nan_row FOLDER TOKEN: the first weight of that token in an exported model is no number.
nan_row() {
    local file=$1/model.safetensors header at width
    header=$(od -An -N8 -tu8 "$file" | tr -d ' ')
    read -r at width < <(head -c $((header + 8)) "$file" | tail -c "$header" |
        jq -r '."model.embed_tokens.weight" | "\(.data_offsets[0]) \(.shape[1])"')
    printf '\xff\xff\xff\x7f' | dd of="$file" bs=1 conv=notrunc status=none \
        seek=$((8 + header + at + 4 * width * $2))
}

# serve FOLDER: at port $(cat "$DIR/port"), with what is to go wrong in $DIR/rules
serve() {
    : >"$DIR/rules"
    "$(dirname "$BIN")/http_server" "$1" "$DIR/rules" >"$DIR/port" 3>&- &
    echo $! >"$DIR/server.pid"
    wait_for 5 test -s "$DIR/port"
}

rules() { # TEXT
    printf '%s\n' "$1" >"$DIR/rules"
    sleep 0.1
}

# of a file that has nothing else to end
teardown_file() {
    [ ! -e "${DIR:-}/server.pid" ] || kill "$(cat "$DIR/server.pid")" || true
    rm -rf "${DIR:-}"
}

# A run so short that a suite can afford dozens: 8 slots, a commit every third
# step, and one thread, since threads beside other tests wait for each other.
SHORT=(train.max_duration=24ba train.global_batch=8 data.seq_len=64 hardware.threads=1
    scheduler.warmup=3ba checkpoint.interval=3ba checkpoint.keep=3
    eval.interval=12ba eval.samples=8 log.level=warn)

# command_of RANKS DIR [key=value ...]: sets the array `command`; $TRAIN may be
# another program than the shipped one.
command_of() {
    local ranks=$1 dir=$2
    shift 2
    command=("${TRAIN:-$BIN/tessera-train}" "$CONF" "run.dir=$dir"
        "data.train=$DIR/data/train" "data.eval=$DIR/data/eval"
        "${SHORT[@]}" "$@")
    [ "$ranks" = 1 ] || command=("$MPIRUN" "$ranks" "${command[@]}")
}

# train RANKS DIR [key=value ...]
train() {
    local command
    command_of "$@"
    "${command[@]}"
}

# start RANKS DIR [...]: the same in the background; its process is $pid
start() {
    local command
    command_of "$@"
    "${command[@]}" >"$2.log" 2>&1 3>&- &
    pid=$!
}

# waits_so SECONDS: $DIR/waits.so, a plug-in by which each step begins so much later
waits_so() {
    cc -std=gnu17 -Wall -Werror -shared -fPIC -DWAIT_S="$1" \
        -I "$BATS_TEST_DIRNAME/../src/train/extend" "$BATS_TEST_DIRNAME/plugin_waits.c" \
        -o "$DIR/waits.so"
}

# held STEP RANKS DIR [...]: the same, and waits behind that step until it is killed or
# $DIR/held is gone: whoever looks late finds it there, and has no end of the run to fear
held() {
    local step=$1
    shift
    [ -e "$DIR/waits.so" ] || waits_so 0
    : >"$DIR/held"
    WAIT_FROM=$step WAIT_WHILE=$DIR/held start "$@" "plugins=[\"$DIR/waits.so\"]"
    wait_for 60 steps_logged "$2" "$step"
}

# waited CODE: for $pid, whose exit status is that ('!0': any but 0)
waited() {
    local code=0
    wait "$pid" || code=$?
    if [ "$1" = '!0' ]; then [ $code -ne 0 ]; else [ $code -eq "$1" ]; fi
}

# ends CODE TEXT COMMAND ...: with this exit status ('!0': any but 0), and the
# output, which stays in $output, has the text, where * stands for anything
ends() {
    local wanted=$1 said=$2
    shift 2
    run "$@"
    echo "status $status: $output"
    if [ "$wanted" = '!0' ]; then [ "$status" -ne 0 ]; else [ "$status" -eq "$wanted" ]; fi
    [[ $output == *$said* ]]
}

newest() { # DIR
    printf '%s\n' "$1"/checkpoints/step-* | tail -n 1
}

digest() { # DIR: of the newest checkpoint
    "$BIN/tessera-ckpt" digest "$(newest "$1")"
}

# reference [key=value ...]: $DIR/ref, a run that nothing disturbs
reference() {
    train 1 "$DIR/ref" "$@" >"$DIR/ref.log" 2>&1
    digest "$DIR/ref" >"$DIR/ref.digest"
}

# same_bits RUN: it has come as far as that one, to the same bits
same_bits() {
    [ "$(basename "$(newest "$1")")" = "$(basename "$(newest "$DIR/ref")")" ]
    [ "$(digest "$1")" = "$(cat "$DIR/ref.digest")" ]
}

# descendants PID: all processes below it, one a line
descendants() {
    local child
    for child in $(pgrep -P "$1"); do
        echo "$child"
        descendants "$child"
    done
}

# ranks_of PID: the tessera-train processes at or below it
ranks_of() {
    local p
    for p in "$1" $(descendants "$1"); do
        [ "$(cat "/proc/$p/comm" 2>/dev/null)" = tessera-train ] && echo "$p"
    done
    return 0
}

# wait_for SECONDS COMMAND ...: until it succeeds, on a busy machine for ten times as long
wait_for() {
    local end=$((SECONDS + 10 * $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

gone() { # PID ...
    local p
    for p in "$@"; do
        # a zombie is gone for our purposes
        [ -e "/proc/$p" ] && ! grep -q '^State:.Z' "/proc/$p/status" && return 1
    done
    return 0
}

steps_logged() { # DIR COUNT: at least so many
    [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]
}

# step_losses DIR: STEP LOSS of every step, a line each; of a step that was done
# again one line where it had the same loss
step_losses() {
    sed -nE 's/.*"step": ([0-9]+),.*"loss": ([^,]+),.*/\1 \2/p' \
        "$1/metrics.jsonl" | sort -n | uniq
}

# equal_replays DIR: a step that appears again has the same loss
equal_replays() {
    step_losses "$1" | awk '
        $1 == last { print "step " $1 " has two losses"; bad = 1 }
        { last = $1 }
        END { exit bad }'
}
