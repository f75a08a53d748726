#!/usr/bin/env bats
# tessera-train with other optimizers than AdamW and with groups: the same bits on
# any number of ranks and through kills, with what they keep; schedules end to end.

load run_helpers

setup_file() {
    data_folder
}

SIX=(train.max_duration=6ba checkpoint.interval=2ba eval.interval=6ba
    hardware.threads=1 scheduler.t_max=6ba)

committed() { # DIR STEP
    ls "$1"/checkpoints/step-*"$2"
}

# through_a_kill NAME RANKS STRATEGY RANKS STRATEGY [key=value ...]: a run that is
# killed after its first commit and goes on elsewhere ends where one does that
# runs on one rank
through_a_kill() {
    local name=$1 first=$2 before=$3 second=$4 after=$5 ranks
    shift 5
    train 1 "$DIR/$name" "${SIX[@]}" "$@"
    start "$first" "$DIR/$name.killed" "${SIX[@]}" train.max_duration=5ba \
        "parallel.strategy=$before" "$@"
    wait_for 60 committed "$DIR/$name.killed" 2
    mapfile -t ranks < <(ranks_of "$pid")
    kill -KILL "${ranks[@]}" || true # it may be there by now
    wait "$pid" || true
    train "$second" "$DIR/$name.killed" "${SIX[@]}" \
        "parallel.strategy=$after" "$@"
    [ "$(digest "$DIR/$name")" = "$(digest "$DIR/$name.killed")" ]
}

@test "muon: killed on 3 ranks, goes on with 2, the same bits" {
    through_a_kill muon 3 zero1 2 ddp optimizer.name=muon \
        optimizer.lr=2e-3 optimizer.weight_decay=0.1
}

@test "adafactor, with experts: killed on 2 ranks, goes on with 4" {
    through_a_kill adafactor 2 ddp 4 zero1 optimizer.name=adafactor \
        model.preset=moe-tiny
}

@test "adalr_lion: its norms go on, too" {
    through_a_kill lion 2 zero1 3 ddp optimizer.name=adalr_lion \
        optimizer.lr=1e-4
}

@test "groups: three optimizers in a run, any strategy" {
    through_a_kill groups 4 zero3 3 zero2 'optimizer.groups=(
        { match = "*norm*"; weight_decay = 0.0; optimizer = "lion"; },
        { match = "*ffn*"; optimizer = "sgd"; lr = 0.01; },
        { match = "*wte*"; lr_scale = 0.5; })'
}

@test "moments are not another optimizer's: groups that change at a resume" {
    local groups='{ match = "*norm*"; optimizer = "lion"; lr = 0.001; }'
    train 1 "$DIR/moved" "${SIX[@]}" train.max_duration=2ba \
        "optimizer.groups=( $groups )"
    # clip_lion keeps the same tensor
    ends 93 "norm_1.weight was lion's in the run in *would be clip_lion's*checkpoint.load_ignore" \
        train 2 "$DIR/moved" "${SIX[@]}" \
        "optimizer.groups=( ${groups//lion/clip_lion} )"
    ends 93 "was lion's*would be adamw's" train 1 "$DIR/moved" "${SIX[@]}"
    # the same optimizer with another rate goes on
    train 2 "$DIR/moved" "${SIX[@]}" "optimizer.groups=( ${groups//0.001/0.002} )"
    # and so does another run, with fresh moments
    train 1 "$DIR/moved2" "${SIX[@]}" train.max_duration=7ba \
        "checkpoint.load=$DIR/moved" "optimizer.groups=( ${groups//lion/clip_lion} )" \
        'checkpoint.load_ignore=optimizer/*'
}

@test "a setting that changes nothing is told" {
    ends 0 "optimizer.ns_steps is given, but changes nothing" \
        train 1 "$DIR/unused" "${SIX[@]}" optimizer.ns_steps=3 \
        scheduler.gamma=0.5
    [[ $output == *"scheduler.gamma is given, but changes nothing"* ]]
}

@test "PyTorch's decay with Composer's optimizer is told" {
    ends 0 "use torch_adamw" train 1 "$DIR/decay" "${SIX[@]}" train.max_duration=1ba \
        optimizer.weight_decay=0.1
    run train 1 "$DIR/decay2" "${SIX[@]}" train.max_duration=1ba \
        'optimizer.groups=( { match = "*norm*"; },
        { match = "*wte*"; weight_decay = 0.1; })'
    [ "$status" = 0 ]
    [[ $output == *"optimizer.groups: item 2: weight_decay = 0.1"*"use torch_adamw"* ]]
    [[ $output != *"item 1"* ]]
    ends 0 '' train 1 "$DIR/torch" "${SIX[@]}" train.max_duration=1ba \
        optimizer.name=torch_adamw optimizer.weight_decay=0.1
    [[ $output != *weight_decay* ]]
}

@test "muon is refused where blocks are cut, by name" {
    ends '!0' "optimizer muon updates whole tensors" \
        train 2 "$DIR/cut" "${SIX[@]}" optimizer.name=muon \
        parallel.strategy=zero3
}

@test "wsd and scheduler.scale: half the run, with its whole schedule" {
    train 1 "$DIR/wsd" "${SIX[@]}" train.max_duration=12ba scheduler.t_max=1dur \
        scheduler.warmup=2ba scheduler.name=wsd scheduler.cooldown=4ba \
        scheduler.scale=0.5 scheduler.alpha_final=0
    [ "$(wc -l <"$DIR/wsd/metrics.jsonl")" = 6 ]
    # 2 steps of warm-up, 3 at the peak, then down to 0 in 2
    sed 's/.*"lr": \([^,]*\).*/\1/' "$DIR/wsd/metrics.jsonl" |
        awk '{ lr[NR] = $1 } END { exit !(NR == 6 && lr[1] == 0 &&
            2 * lr[2] == lr[3] && lr[3] == lr[5] && 2 * lr[6] == lr[5]) }'
}
