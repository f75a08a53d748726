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
#ifndef BYTES
#define BYTES sizeof(struct tessera_plugin)
#endif
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
    ABI, BYTES, "failing", "0", "fails", all, 0 };
const struct tessera_plugin *tessera_plugin(void) { return &plugin; }
END
}

setup_file() {
    data_folder
    mkdir "$DIR/include"
    cp "$BATS_TEST_DIRNAME/../src/train/extend/tessera_plugin.h" "$DIR/include"
    plugin example <"$BATS_TEST_DIRNAME/../docs/examples/plugin.c"
    example='({path="'$DIR/example.so'";options="target=3.2 patience=2";})'
    export EXAMPLE="plugins=$example"
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
    ends 0 "plug-in loss_target 1.0: ends a run at a loss" example_run 1 "$DIR/a" log.level=info
    [[ $output == *"plug-in loss_target: the loss has reached its target"* ]]
    last=$(basename "$(newest "$DIR/a")")
    [ "$last" != step-000000200 ]
    steps=$(wc -l <"$DIR/a/metrics.jsonl")
    [ "$(wc -l <"$DIR/a/loss.csv")" -eq "$steps" ]
    grep -q '"event": *"plugins".*"loss_target"' "$DIR/a/ledger.jsonl"
    [[ $(jq -sr 'last.reason' "$DIR/a/ledger.jsonl") == "plug-in loss_target ("*") asked for the end" ]]
    jq -es '.[-1]["loss_target/below"] == 2 and .[0]["loss_target/below"] == 0' \
        "$DIR/a/metrics.jsonl"

    ends 0 "the run was ended early" example_run 1 "$DIR/a" log.level=info
    [[ $(jq -sr 'last.reason' "$DIR/a/ledger.jsonl") == "plug-in loss_target ("*") asked for the end" ]]
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
    ends '!0' "plug-in loss_target: target: create failed: options need target=LOSS" \
        train 1 "$DIR/c" "plugins=[\"$DIR/example.so\"]"
    failing | plugin failing -DABI=TESSERA_PLUGIN_ABI
    ends '!0' "plug-in failing: one: batch_ask failed: enough" \
        train 2 "$DIR/d" "plugins=[\"$DIR/failing.so\"]"
}

@test "what is no plug-in, or one that others could change, is refused" {
    failing | plugin newer -DABI=7
    echo 'int nothing;' | plugin empty
    failing | plugin open -DABI=TESSERA_PLUGIN_ABI
    chmod g+w "$DIR/open.so"
    echo no >"$DIR/text.so"
    mkfifo "$DIR/fifo.so"
    while read -r file reason; do
        run timeout 600 "$BIN/tessera-train" "$CONF" run.dir="$DIR/e" \
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
    ends 64 "are both named failing" \
        train 1 "$DIR/f" "plugins=[\"$DIR/failing.so\",\"$DIR/failing.so\"]"
}

# weights DIR OTHER: the tensors of the model that are not equal
weights_differ() {
    "$BIN/tessera-ckpt" diff "$(newest "$1")" "$(newest "$2")" |
        sed -n 's/^\(transformer[^:]*\|lm_head[^:]*\): .*/\1/p'
}

@test "an algorithm of a plug-in: the same bits on any ranks, through a kill" {
    plugin taming <"$BATS_TEST_DIRNAME/../docs/examples/plugin_algorithm.c"
    local on at want ranks
    on=(train.max_duration=8ba scheduler.t_max=8ba checkpoint.interval=2ba
        checkpoint.keep=0 optimizer.name=sgd train.clip_norm=0
        'algorithms=({name="plugin";path="'"$DIR/taming.so"'";options="tensors=. scale=0.5 limit=0.05";})')
    train 1 "$DIR/g1" "${on[@]}"
    want=$(digest "$DIR/g1")
    for at in ddp:2 zero1:2 zero3:3; do
        train "${at#*:}" "$DIR/g-$at" "${on[@]}" "parallel.strategy=${at%:*}"
        [ "$(digest "$DIR/g-$at")" = "$want" ]
    done
    jq -es '.[-1]["taming/steps"] == 8' "$DIR/g1/metrics.jsonl"
    start 2 "$DIR/gk" "${on[@]}" train.max_duration=400ba
    wait_for 60 [ -e "$DIR/gk/checkpoints/step-000000004" ]
    mapfile -t ranks < <(ranks_of "$pid")
    kill -KILL "${ranks[@]}"
    wait "$pid" || true
    rm -rf "$DIR"/gk/checkpoints/step-00000000[68] "$DIR"/gk/checkpoints/step-0000000[1-9]?
    train 3 "$DIR/gk" "${on[@]}"
    [ "$(digest "$DIR/gk")" = "$want" ]
    jq -es '.[-1]["taming/steps"] == 8' "$DIR/gk/metrics.jsonl"

    # half of every gradient is half of the rate, but for what momentum holds
    on[6]='algorithms=({name="plugin";path="'"$DIR/taming.so"'";options="tensors=. scale=0.5";})'
    train 2 "$DIR/half" "${on[@]}" optimizer.lr=0.25
    train 1 "$DIR/rate" "${on[@]:0:6}" optimizer.lr=0.125
    [ -z "$(weights_differ "$DIR/half" "$DIR/rate")" ]
    train 1 "$DIR/full" "${on[@]:0:6}" optimizer.lr=0.25
    [ -n "$(weights_differ "$DIR/half" "$DIR/full")" ]
}

@test "algorithms of plug-ins: what is older, missing or wrong" {
    [ -e "$DIR/taming.so" ] ||
        plugin taming <"$BATS_TEST_DIRNAME/../docs/examples/plugin_algorithm.c"
    # of the first version, which had no algorithms: it listens
    failing | plugin first -DABI=TESSERA_PLUGIN_ABI \
        '-DBYTES=offsetof(struct tessera_plugin, algorithms)'
    train 1 "$DIR/h" train.max_duration=2ba "plugins=[\"$DIR/first.so\"]"
    ends 64 "first.so has no algorithms" \
        train 1 "$DIR/h1" "algorithms=({name=\"plugin\";path=\"$DIR/first.so\";})"
    ends '!0' "plug-in taming: taming: create failed: options need tensors=WORD" \
        train 2 "$DIR/h2" "algorithms=({name=\"plugin\";path=\"$DIR/taming.so\";})"
}
