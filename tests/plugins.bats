#!/usr/bin/env bats
# plugins: the example as a stranger builds it, runs with it, and what is
# refused.

load run_helpers

# plugin NAME [-DX ...] <SOURCE: builds $DIR/NAME.so with the installed header
plugin() {
    local name=$1
    shift
    cat >"$DIR/$name.c"
    cc -std=gnu17 -Wall -Werror -shared -fPIC "$@" -I "$DIR/include" \
        "$DIR/$name.c" -o "$DIR/$name.so"
    chmod go-w "$DIR/$name.so"
}

# a plug-in that fails on the second rank, at the fourth step
failing() {
    cat <<'END'
#include "tessera_plugin.h"
static const struct tessera_host *host;
static int create(const struct tessera_host *h, const char *options, void **self)
{
    (void)options;
    (void)self;
    host = h;
    return 0;
}
static int handle(void *self, int32_t event, const struct tessera_step *step,
                  void (*ask)(void *, int32_t, int64_t), void *asks)
{
    (void)self;
    (void)event;
    ask(asks, 99, 1); /* not known: nothing is asked */
    if (step->step == 3 && host->rank == 1)
        host->fail(host, "enough");
    return step->step == 3 && host->rank == 1;
}
static const struct tessera_listener one = { .bytes = sizeof one, .name = "one",
    .every_rank = 1, .events = TESSERA_EVENT_BIT(TESSERA_BATCH_ASK),
    .create = create, .handle = handle };
static const struct tessera_listener *const all[] = { &one, 0 };
static const struct tessera_plugin plugin = {
    ABI, sizeof plugin, "failing", "0", "fails", all };
const struct tessera_plugin *tessera_plugin(void) { return &plugin; }
END
}

setup_file() {
    export DIR
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-plugins.XXXXXX")
    load run_helpers
    make_data
    mkdir "$DIR/include"
    cp "$BATS_TEST_DIRNAME/../src/train/tessera_plugin.h" "$DIR/include"
    plugin example <"$BATS_TEST_DIRNAME/../docs/examples/plugin.c"
    example='({path="'$DIR/example.so'";options="target=3.2 patience=2";})'
    export EXAMPLE="plugins=$example"
}

teardown_file() {
    rm -rf "$DIR"
}

# example_run RANKS DIR [key=value ...]: that runs for long, with the example
example_run() {
    local ranks=$1 dir=$2
    shift 2
    train "$ranks" "$dir" train.max_duration=200ba checkpoint.interval=5ba \
        eval.interval=0ba checkpoint.keep=0 optimizer.lr=0.005 \
        "$EXAMPLE" "$@"
}

@test "the example ends a run, which stays ended until it is to last longer" {
    run example_run 1 "$DIR/a" log.level=info
    [ "$status" -eq 0 ]
    [[ $output == *"plug-in loss_target 1.0: ends a run at a loss"* ]]
    [[ $output == *"plug-in loss_target: the loss has reached its target"* ]]
    last=$(basename "$(newest "$DIR/a")")
    [ "$last" != step-000000200 ]
    steps=$(wc -l <"$DIR/a/metrics.jsonl")
    [ "$(wc -l <"$DIR/a/loss.csv")" -eq "$steps" ]
    grep -q '"event": *"plugins".*"loss_target"' "$DIR/a/ledger.jsonl"
    jq -es '.[-1]["loss_target/below"] == 2 and .[0]["loss_target/below"] == 0' \
        "$DIR/a/metrics.jsonl"

    run example_run 1 "$DIR/a" log.level=info
    [ "$status" -eq 0 ]
    [[ $output == *"the run was ended early"* ]]
    [ "$(wc -l <"$DIR/a/metrics.jsonl")" -eq "$steps" ]
    digest "$DIR/a" >"$DIR/a.digest"

    run example_run 1 "$DIR/a" plugins="()" train.max_duration=210ba \
        scheduler.t_max=200ba log.level=info
    [[ $output == *"and goes on"* ]]
    [[ $output == *"which is not loaded: it is dropped"* ]]
    [ "$(basename "$(newest "$DIR/a")")" = step-000000210 ]
}

@test "its state goes through kill -9: two ranks end at the same step and bits" {
    command_of 2 "$DIR/b" train.max_duration=200ba checkpoint.interval=5ba \
        eval.interval=0ba checkpoint.keep=0 optimizer.lr=0.005 \
        "$EXAMPLE"
    "${command[@]}" >"$DIR/b.log" 2>&1 3>&- &
    pid=$!
    wait_for 60 [ -e "$DIR/b/checkpoints/step-000000010" ]
    kill -9 $(ranks_of "$pid")
    wait "$pid" || true
    example_run 2 "$DIR/b"
    [ "$(digest "$DIR/b")" = "$(cat "$DIR/a.digest")" ]
}

@test "a failure of a plug-in ends the run with its reason" {
    run train 1 "$DIR/c" "plugins=[\"$DIR/example.so\"]"
    [ "$status" -ne 0 ]
    [[ $output == *"plug-in loss_target: target: create failed: options need target=LOSS"* ]]
    failing | plugin failing -DABI=TESSERA_PLUGIN_ABI
    run train 2 "$DIR/d" "plugins=[\"$DIR/failing.so\"]"
    [ "$status" -ne 0 ]
    [[ $output == *"plug-in failing: one: batch_ask failed: enough"* ]]
}

@test "what is no plug-in, or one that others could change, is refused" {
    failing | plugin newer -DABI=7
    echo 'int nothing;' | plugin empty
    failing | plugin open -DABI=TESSERA_PLUGIN_ABI
    chmod g+w "$DIR/open.so"
    echo no >"$DIR/text.so"
    mkfifo "$DIR/fifo.so"
    while read -r file reason; do
        run timeout 60 "$BIN/tessera-train" "$CONF" run.dir="$DIR/e" \
            data.train="$DIR/data/train" "${SHORT[@]}" \
            data.eval="$DIR/data/eval" "plugins=[\"$DIR/$file\"]"
        echo "$file: $output"
        [ "$status" -eq 64 ]
        [[ $output == *"$reason"* ]]
    done <<'END'
newer.so was made for plug-in interface 7, this is 1
empty.so it has no function tessera_plugin()
open.so can be written by others
text.so file too short
fifo.so is no regular file
none.so No such file
END
    failing | plugin failing -DABI=TESSERA_PLUGIN_ABI
    run train 1 "$DIR/f" "plugins=[\"$DIR/failing.so\",\"$DIR/failing.so\"]"
    [ "$status" -eq 64 ]
    [[ $output == *"are both named failing"* ]]
}
