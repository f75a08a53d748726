#!/usr/bin/env bats
# train.on_spike and train.on_nan: what a poisoned stretch of the data does, and
# that rollbacks end in the same bits on any ranks and through kill -9 anywhere.

load run_helpers

# The data: 42 batches of 256 bytes in their order; 20 and 21 are poisoned by
# bytes that are nowhere else.
make_poisoned() {
    awk 'BEGIN { for (i = 0; i < 400; i++)
        printf "the quick brown fox jumps over the lazy dog and so it goes. " }' |
        head -c $((256 * 40)) >"$DIR/clean"
    awk 'BEGIN { for (i = 0; i < 512; i++)
        printf "%s", substr("%0123456789ABCDEF#%", 1 + (i * i + 7 * i) % 19, 1) }' \
        >"$DIR/poison"
    { head -c $((256 * 20)) "$DIR/clean" && cat "$DIR/poison" &&
        tail -c $((256 * 20)) "$DIR/clean"; } >"$DIR/text"
    "$BIN/tessera-data" tokenize --seq-len 64 --out "$DIR/data" "$DIR/text"
    cat >"$DIR/run.cfg" <<END
model: { preset = "mpt-tiny"; n_layers = 1; };
data: { train = "$DIR/data"; seq_len = 64; order = "unshuffled"; };
train: { max_duration = "30ba"; global_batch = 4; seed = 17; };
optimizer: { lr = 5e-3; };
scheduler: { warmup = "2ba"; };
checkpoint: { interval = "7ba"; keep = 0; };
log: { level = "warn"; };
END
}

# A plug-in that ends its process by SIGKILL, on all ranks: in the Nth life of
# the run in this process, at an event, after so many steps.
make_killer() {
    cat >"$DIR/killer.c" <<'END'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "tessera_plugin.h"
static int life, event, after;
static int create(const struct tessera_host *h, const char *options, void **self)
{
    const char *lives = getenv("KILLER_LIVES"); /* the process keeps it */
    char text[32];
    (void)h;
    *self = &life;
    snprintf(text, sizeof text, "%d", lives != NULL ? atoi(lives) + 1 : 1);
    setenv("KILLER_LIVES", text, 1);
    return sscanf(options, "life=%d event=%d after=%d", &life, &event, &after) != 3;
}
static int handle(void *self, int32_t at, const struct tessera_step *step,
                  void (*ask)(void *, int32_t, int64_t), void *asks)
{
    (void)self, (void)ask, (void)asks;
    if (at == event && step->step == after && atoi(getenv("KILLER_LIVES")) == life)
        raise(SIGKILL);
    return 0;
}
static const struct tessera_listener one = { .bytes = sizeof one, .name = "one",
    .every_rank = 1, .events = TESSERA_EVENT_BIT(TESSERA_INIT) |
        TESSERA_EVENT_BIT(TESSERA_FIT_START) | TESSERA_EVENT_BIT(TESSERA_BATCH_START),
    .create = create, .handle = handle };
static const struct tessera_listener *const all[] = { &one, 0 };
static const struct tessera_plugin plugin = {
    TESSERA_PLUGIN_ABI, sizeof plugin, "killer", "0", "ends its process", all };
const struct tessera_plugin *tessera_plugin(void) { return &plugin; }
END
    cc -std=gnu17 -Wall -Werror -shared -fPIC \
        -I "$BATS_TEST_DIRNAME/../src/train/extend" "$DIR/killer.c" -o "$DIR/killer.so"
    chmod go-w "$DIR/killer.so"
}

setup_file() {
    new_folder
    make_poisoned
    make_killer
    go 1 "$DIR/whole" train.on_spike=rollback
    digest "$DIR/whole" >"$DIR/digest"
}

# go RANKS DIR [key=value ...]
go() {
    local ranks=$1 dir=$2
    shift 2
    set -- "$BIN/tessera-train" "$DIR/run.cfg" "run.dir=$dir" "$@"
    [ "$ranks" = 1 ] || set -- "$MPIRUN" "$ranks" "$@"
    "$@"
}

# events DIR NAME FILTER: of the ledger, a line each
events() {
    jq -c "select(.event == \"$2\") | $3" "$1/ledger.jsonl"
}

same_end() { # DIR
    echo "$1: $(digest "$1")"
    [ "$(digest "$1")" = "$(cat "$DIR/digest")" ]
}

@test "a spike: back to the checkpoint, on with the data behind it" {
    # 7 batches up to the first poisoned one, then the second alone
    [ "$(events "$DIR/whole" rollback '[.step, .from, .to, .first, .batches]')" = \
        "$(printf '%s\n' '[21,20,14,14,7]' '[15,14,14,21,1]')" ]
    [ "$(events "$DIR/whole" rollback '[.kind, .loss > 10, .grad_norm > 5]' |
        sort -u)" = '["spike",true,true]' ]
    # the steps that follow are those of data without these batches
    { head -c $((256 * 14)) "$DIR/clean" && tail -c $((256 * 20)) "$DIR/clean"
    } >"$DIR/left"
    "$BIN/tessera-data" tokenize --force --seq-len 64 --out "$DIR/left-data" "$DIR/left"
    go 1 "$DIR/left-run" data.train="$DIR/left-data"
    ends 0 '' "$BIN/tessera-ckpt" diff "$(newest "$DIR/whole")" "$(newest "$DIR/left-run")"
    # each step once for who reads the figures
    jq -es 'group_by(.step) | map(.[-1].loss) | length == 30 and max < 7' \
        "$DIR/whole/metrics.jsonl"
    jq -es '.[-1]["train/skipped_batches"] == 8 and
        .[0]["train/skipped_batches"] == 0' "$DIR/whole/metrics.jsonl"
    # one peak, measured once
    jq -es 'map(.peak_flops) | unique | length == 1 and .[0] > 0' \
        "$DIR/whole/metrics.jsonl"
}

@test "what an attempt begins with is told once, however often it goes back" {
    run go 1 "$DIR/told" train.on_spike=rollback hardware.kernel_set=generic \
        log.level=info
    [ "$(grep -c 'batches of the data are left out' <<<"$output")" = 2 ]
    [ "$(grep -c ' parameters, 1 ranks' <<<"$output")" = 1 ]
    [ "$(grep -c 'hardware.kernel_set is generic' <<<"$output")" -le 1 ]
    [ "$(events "$DIR/told" hardware .step)" = 0 ]
    same_end "$DIR/told"
}

@test "what looks on sees it and changes nothing; methods go back with the run" {
    go 2 "$DIR/seen" train.on_spike=rollback train.profile=5ba-6ba,13ba-29ba \
        monitor.norms=1ba monitor.activations=1ba tracking.tensorboard=true
    same_end "$DIR/seen"
    jq -es '.[1:] | all(.["norm/update/global"] > 0 and .["norm/grad/global"] > 0)' \
        "$DIR/seen/metrics.jsonl"
    # a range that the run goes back from has no trace, others have
    [ "$(cd "$DIR/seen/profile" && ls */rank-1.json | tr '\n' ' ')" = \
        "steps-15-29/rank-1.json steps-5-6/rank-1.json " ]
    local methods='algorithms=( { name = "selective_backprop"; start = "1ba"; },
        { name = "ema"; half_life = "5ba"; } )'
    go 1 "$DIR/methods" train.on_spike=rollback "$methods"
    # what is left out is left out of what they look at, too
    [ "$(events "$DIR/methods" rollback .batches | awk '{ n += $1 } END { print n }')" = 8 ]
    { head -c $((256 * 14)) "$DIR/clean" && tail -c $((256 * 20)) "$DIR/clean"
    } >"$DIR/left"
    "$BIN/tessera-data" tokenize --force --seq-len 64 --out "$DIR/left-data" "$DIR/left"
    go 1 "$DIR/left-methods" data.train="$DIR/left-data" "$methods"
    "$BIN/tessera-ckpt" diff "$(newest "$DIR/methods")" "$(newest "$DIR/left-methods")"
    go 2 "$DIR/methods-2" train.on_spike=rollback "$methods" parallel.strategy=zero2
    [ "$(digest "$DIR/methods")" = "$(digest "$DIR/methods-2")" ]
}

@test "the same bits again, on 2 and 3 ranks, and by another strategy" {
    go 1 "$DIR/again" train.on_spike=rollback
    same_end "$DIR/again"
    go 2 "$DIR/two" train.on_spike=rollback
    same_end "$DIR/two"
    go 3 "$DIR/three" train.on_spike=rollback parallel.strategy=zero3
    same_end "$DIR/three"
    # what the nodes keep of the step before is not gone back to
    go 2 "$DIR/kept" train.on_spike=rollback checkpoint.keep_state=true \
        "checkpoint.local_dir=$DIR/node"
    same_end "$DIR/kept"
}

@test "the same bits through kill -9 before, in and after a rollback" {
    local ranks=0 at
    # before the state is restored, before the ledger has it; behind both; in a
    # step before the next commit; and so with the second rollback
    for at in "2 INIT 0" "2 FIT_START 14" "3 INIT 0" \
        "3 FIT_START 14" "3 BATCH_START 17" "3 BATCH_START 29"; do
        set -- $at
        ranks=$((ranks % 2 + 1))
        rm -rf "$DIR/killed"
        event=$(awk -v name="TESSERA_$2" '
            /^enum tessera_event/ { within = 1 } within && $1 == name { print $3 + 0 }' \
            "$BATS_TEST_DIRNAME/../src/train/extend/tessera_plugin.h")
        run go "$ranks" "$DIR/killed" train.on_spike=rollback \
            "plugins=({path=\"$DIR/killer.so\";options=\"life=$1 event=$event after=$3\";})"
        echo "$at: $status"
        [ "$status" -ne 0 ]
        [ ! -e "$DIR/killed/checkpoints/step-000000030" ]
        go "$ranks" "$DIR/killed" train.on_spike=rollback
        same_end "$DIR/killed"
        [ "$(events "$DIR/killed" rollback .number)" = "$(printf '1\n2')" ]
    done
}

@test "an older checkpoint goes through the same data again" {
    cp -r "$DIR/whole" "$DIR/older"
    rm -rf "$DIR"/older/checkpoints/step-0000000{14,21,28,30}
    go 2 "$DIR/older" train.on_spike=rollback
    same_end "$DIR/older"
    # without the ledger the state knows
    cp -r "$DIR/whole" "$DIR/copy"
    rm -rf "$DIR"/copy/checkpoints/step-0000000{28,30} "$DIR/copy/ledger.jsonl"
    go 1 "$DIR/copy" train.on_spike=rollback
    same_end "$DIR/copy"
    # nor does another run that goes on from it read anything else
    go 2 "$DIR/loaded" train.on_spike=rollback \
        checkpoint.load="$DIR/whole/checkpoints/step-000000021"
    same_end "$DIR/loaded"
    # and one of steps that were given up is not gone on from
    go 1 "$DIR/given" train.max_duration=20ba scheduler.t_max=30ba
    mv "$DIR/given/checkpoints/step-000000020" "$DIR/step-000000020"
    go 1 "$DIR/given" train.on_spike=rollback
    same_end "$DIR/given"
    rm -rf "$DIR"/given/checkpoints/step-0000000{21,28,30}
    mv "$DIR/step-000000020" "$DIR/given/checkpoints"
    ends 93 "has given up since" go 1 "$DIR/given" train.on_spike=rollback
}

@test "without a checkpoint a run begins again behind the data that it has read" {
    go 1 "$DIR/fresh" train.on_spike=rollback checkpoint.interval=25ba \
        train.max_duration=18ba scheduler.t_max=30ba
    go 2 "$DIR/fresh" train.on_spike=rollback checkpoint.interval=25ba
    go 1 "$DIR/first" train.on_spike=rollback checkpoint.interval=0ba \
        train.max_duration=24ba scheduler.t_max=30ba train.spike_loss=1.5
    [ "$(events "$DIR/first" rollback '[.to, .batches]' | head -n 1)" = '[0,21]' ]
    go 2 "$DIR/first2" train.on_spike=rollback checkpoint.interval=0ba \
        train.max_duration=24ba scheduler.t_max=30ba train.spike_loss=1.5
    [ "$(digest "$DIR/first")" = "$(digest "$DIR/first2")" ]
    # killed before its first checkpoint, where it had gone back already
    ends '!0' '' go 2 "$DIR/first3" train.on_spike=rollback checkpoint.interval=0ba \
        train.max_duration=24ba scheduler.t_max=30ba train.spike_loss=1.5 \
        "plugins=({path=\"$DIR/killer.so\";options=\"life=2 event=5 after=2\";})"
    go 1 "$DIR/first3" train.on_spike=rollback checkpoint.interval=0ba \
        train.max_duration=24ba scheduler.t_max=30ba train.spike_loss=1.5
    [ "$(digest "$DIR/first")" = "$(digest "$DIR/first3")" ]
    [ "$(events "$DIR/first3" rollback .number | head -n 1)" = 1 ]
    [ "$(events "$DIR/first3" rollback .number | sort | uniq -d)" = "" ]
    # but another run in its folder begins at the data's beginning
    rm -rf "$DIR/first3/checkpoints"
    go 1 "$DIR/first3" train.max_duration=3ba
    go 1 "$DIR/plain" train.max_duration=3ba
    [ "$(digest "$DIR/first3")" = "$(digest "$DIR/plain")" ]
}

@test "beyond its budget a run ends, and says what was tried; restarts count" {
    ends 93 "step 15: loss * times the median*medians of 14 steps: loss *back from step 20 to 14*train.spike_budget = 1*optimizer.lr" \
        go 1 "$DIR/budget" train.on_spike=rollback train.spike_budget=1
    ends 93 '' go 1 "$DIR/budget" train.on_spike=rollback train.spike_budget=1
    [ "$(events "$DIR/budget" rollback .number)" = 1 ]
    # within a window that the first has left there is room again
    go 1 "$DIR/budget" train.on_spike=rollback train.spike_budget=2
    same_end "$DIR/budget"
    ends 93 "done in the last 1000 steps: nothing" \
        go 1 "$DIR/none" train.on_spike=skip train.spike_budget=0
    go 1 "$DIR/skips" train.on_spike=skip train.spike_budget=1 train.spike_window=1ba
    [ "$(events "$DIR/skips" skip '[.step, .batch]')" = \
        "$(printf '%s\n' '[21,20]' '[22,21]')" ]
}

# What reads the poison's byte % gets a weight that overflows.
make_nan_weights() {
    go 1 "$DIR/base" train.max_duration=1ba "${LLAMA[@]}"
    "$BIN/tessera-hf" export "$DIR/base" --out "$DIR/nan"
    nan_row "$DIR/nan" 37
}

LLAMA=(model.positions=rope model.norm=rmsnorm model.ffn=glu model.bias=false
    model.activation=silu model.tied=false)

@test "no number: the end, or nothing of the batch is learned, or a rollback" {
    make_nan_weights
    local args=("${LLAMA[@]}" model.weights="$DIR/nan" train.on_spike=rollback)
    ends 93 "step 21: loss nan*training diverged" go 1 "$DIR/stop" "${args[@]}"

    go 1 "$DIR/skip" "${args[@]}" train.on_nan=skip checkpoint.interval=1ba
    [ "$(events "$DIR/skip" skip '[.kind, .step, .loss, .batch]')" = \
        "$(printf '%s\n' '["nan",21,null,20]' '["nan",22,null,21]')" ]
    run "$BIN/tessera-ckpt" diff "$DIR"/skip/checkpoints/step-0000000{20,22}
    echo "$output"
    [[ $output == *" tensors equal, 0 different"* ]]
    jq -es '.[20].loss == null and .[29].loss < 3' "$DIR/skip/metrics.jsonl"
    for step in 20 22; do
        jq -cS .state.spike_history \
            "$DIR/skip/checkpoints/step-0000000$step/MANIFEST.json"
    done | uniq | wc -l | grep -qx 1
    # from a checkpoint between the two
    cp -r "$DIR/skip" "$DIR/half"
    rm -rf "$DIR"/half/checkpoints/step-0000000{22..30}
    go 2 "$DIR/half" "${args[@]}" train.on_nan=skip
    [ "$(digest "$DIR/half")" = "$(digest "$DIR/skip")" ]
    [ "$(events "$DIR/half" skip .step | wc -l)" = 2 ]
    # with what was learned from elsewhere, by two gradients a step
    go 1 "$DIR/sam" "${args[@]}" train.on_nan=skip checkpoint.interval=1ba \
        'algorithms=({name="sam"; interval=1;},{name="ema"; half_life="4ba"; update_interval="1ba";})'
    run "$BIN/tessera-ckpt" diff "$DIR"/sam/checkpoints/step-0000000{20,22}
    echo "$output"
    ! grep -Eq 'optimizer/|^transformer|nan' <<<"$output"

    go 1 "$DIR/back" "${args[@]}" train.on_nan=rollback
    [ "$(events "$DIR/back" rollback '[.kind, .to, .batches]')" = \
        "$(printf '%s\n' '["nan",14,7]' '["nan",14,1]')" ]
    go 2 "$DIR/back2" "${args[@]}" train.on_nan=rollback
    [ "$(digest "$DIR/back")" = "$(digest "$DIR/back2")" ]
}

@test "a report shows what was done, and each step once" {
    "$BIN/tessera-report" "$DIR/whole" --out "$DIR/report.html" \
        --json "$DIR/report.json"
    grep -q 'back from step 20 to 14, 7 batches left out: step 21: loss' \
        "$DIR/report.html"
    jq -e '.[0] | .replayed_steps == 6 and .last_step == 30' "$DIR/report.json"
}
