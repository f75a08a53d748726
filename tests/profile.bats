#!/usr/bin/env bats
# train.profile: where the time of steps goes, as a table and as traces; the
# same bits with it as without.

load run_helpers

setup_file() {
    data_folder
    reference
}

# Spans of a lane lie within each other or side by side; 2 ns for rounding.
nests() { # FILE
    jq -e '[.traceEvents[] | select(.ph == "X")] | group_by(.tid) | all(
        sort_by(.ts, -.dur)
        | reduce .[] as $e ({ok: true, open: []};
            .open |= [.[] | select(. > $e.ts + 0.002)]
            | (if (.open | length) > 0 and .open[-1] + 0.002 < $e.ts + $e.dur
               then .ok = false else . end)
            | .open += [$e.ts + $e.dur])
        | .ok)' "$1"
}

# Of the thread that trains: all but frames are at least nine tenths of the step,
# or SHARE. Of zero3 what is copied where weights are gathered is no span, and
# ranks that share processors wait for them anywhere.
accounts() { # FILE [SHARE]
    jq -e --argjson share "${2:-0.9}" '.profile.host_kinds
        | ([.[] | select(.cat != "step") | .seconds] | add)
        >= $share * .step.whole_s' "$1"
}

@test "a profile of steps within a run is complete and changes no bit" {
    ends 0 "profile of steps 11 to 12 on 1 rank: * ms a step" \
        train 1 "$DIR/a" train.profile=11ba-12ba log.level=info checkpoint.async=false
    same_bits "$DIR/a"
    local file=$DIR/a/profile/steps-11-12/rank-0.json
    jq -e '.profile | .first_step == 11 and .last_step == 12 and .lost == 0
        and .rank == 0 and .host_kinds.step.count == 2' "$file"
    nests "$file"
    accounts "$file"
    # steps 11 and 12: the second one is evaluated and saved
    for kind in step microbatch block optimizer gradients loader evaluation \
        checkpoint metrics; do
        jq -e --arg k "$kind" '.profile.host_kinds[$k].count > 0' "$file"
    done
    for op in gemm attention_forward attention_backward cross_entropy adamw \
        norm_forward embedding_forward zero; do
        jq -e --arg k "$op" '.profile.host_kinds[$k] | .cat == "op" and .count > 0' "$file"
    done
    jq -e '[.traceEvents[] | select(.name == "gemm NT")] | length > 0 and
        all(.args.flop == 2 * .args.m * .args.n * .args.k)' "$file"
    jq -e '[.traceEvents[] | select(.name == "checkpoint write")] | length == 1' "$file"
    [ "$(jq -c '[.traceEvents[] | select(.name == "step") | .args.step]' "$file")" = "[11,12]" ]
    # the table is the log's
    grep -q '^  gemm  ' "$DIR/a/profile/steps-11-12/table.txt"
    [[ $output == *"$(head -n 1 "$DIR/a/profile/steps-11-12/table.txt")"* ]]
}

@test "two ranks and several ranges: a trace each, by one clock, the same bits" {
    for strategy in zero1 zero3; do
        local run=$DIR/np2-$strategy
        ends 0 '' train 2 "$run" "train.profile=2ba, 5ba-7ba" "parallel.strategy=$strategy"
        same_bits "$run"
        [ "$(ls "$run/profile")" = $'steps-2-2\nsteps-5-7' ]
        for rank in 0 1; do
            local file=$run/profile/steps-5-7/rank-$rank.json
            jq -e --argjson r $rank '.profile | .rank == $r and .ranks == 2
                and .clock_error_us == 0 and .host_kinds.step.count == 3' "$file"
            jq -e '.profile.host_kinds.agreement.count > 0' "$file"
            [ $strategy = zero1 ] || jq -e '.profile.host_kinds.exchange.count > 0' "$file"
            nests "$file"
            accounts "$file" 0.7
        done
        # together they are one trace, whose steps overlap
        jq -es '[.[].traceEvents[] | select(.name == "step" and .args.step == 6)]
            | length == 2 and (map(.pid) | sort) == [0, 1]
            and (map(.ts) | max) < (map(.ts + .dur) | min)' "$run"/profile/steps-5-7/rank-*.json
        grep -q '^profile of steps 5 to 7 on 2 ranks: ' "$run/profile/steps-5-7/table.txt"
        grep -q 'ms of the ranks$' "$run/profile/steps-5-7/table.txt"
    done
}

@test "a resume within a range profiles the rest of it" {
    train 2 "$DIR/b" train.profile=8ba-11ba train.max_duration=9ba scheduler.name=constant
    [ "$(ls "$DIR/b/profile")" = steps-8-9 ]
    train 1 "$DIR/b" train.profile=8ba-11ba train.max_duration=12ba scheduler.name=constant
    [ "$(ls "$DIR/b/profile")" = $'steps-10-11\nsteps-8-9' ]
    jq -e '.profile | .first_step == 10 and .last_step == 11 and .ranks == 1
        and .attempt == 2' "$DIR/b/profile/steps-10-11/rank-0.json"
    # behind it there is nothing to do, which is said
    ends 0 "steps 8 to 11 are not profiled: the run goes on behind step 12" \
        train 1 "$DIR/b" train.profile=8ba-11ba,40ba train.max_duration=13ba scheduler.name=constant
    [[ $output == *"steps 40 to 40 are not profiled: the last step of the run is 13"* ]]
}

@test "a signal within a range ends it with the step" {
    start 1 "$DIR/s" train.max_duration=100000ba train.profile=2ba-100000ba \
        checkpoint.interval=0ba eval.interval=0ba scheduler.name=constant log.level=info
    wait_for 60 grep -q "step 5/" "$DIR/s.log"
    kill -TERM "$pid"
    waited 85
    local step
    step=$(tail -n 1 "$DIR/s/metrics.jsonl" | jq .step)
    jq -e --argjson s "$step" '.profile | .first_step == 2 and .last_step == $s' \
        "$DIR/s/profile/steps-2-$step/rank-0.json"
}

@test "wrong ranges are refused before anything begins" {
    for bad in 10 3ba- 12ba-10ba 0ba 1ep-2ep "3ba-5ba,4ba" all; do
        ends 64 "train.profile" train 1 "$DIR/bad" "train.profile=$bad"
        [ ! -e "$DIR/bad" ]
    done
}

@test "a trace that cannot be written is a warning" {
    mkdir -p "$DIR/w"
    echo in the way >"$DIR/w/profile"
    ends 0 "profile of steps 2 to 3: no trace: " train 2 "$DIR/w" train.profile=2ba-3ba
    same_bits "$DIR/w"
}
