#!/usr/bin/env bats
# tessera-sweep: a grid in a row, through kills, and what is told of it; as an
# array by a played sbatch here, by a real one in slurm_job.bats.

load run_helpers

setup_file() {
    data_folder
    # a configuration of its own, as the sweep's runs have it
    cat >"$DIR/run.cfg" <<END
run: { dir = "unused"; };
model: { preset = "mpt-tiny"; };
data: { train = "$DIR/data/train"; eval = "$DIR/data/eval"; seq_len = 64; };
train: { max_duration = "12ba"; global_batch = 8; };
scheduler: { warmup = "1ba"; };
eval: { interval = "4ba"; samples = 8; };
checkpoint: { interval = "2ba"; };
log: { level = "warn"; };
END
    cat >"$DIR/sweep.cfg" <<END
config = "run.cfg";
dir = "runs";
target = 5.0;
price = 36;
grid = ( { key = "optimizer.lr"; values = "1e-4 | 5e-3"; },
         { key = "train.max_duration"; values = "6ba | 12ba"; } );
END
}

sweep() {
    "$BIN/tessera-sweep" "$DIR/sweep.cfg" "$@"
}

@test "every combination is a command, the last setting changes fastest" {
    run sweep --list
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 4 ]
    [ "${lines[1]}" = "tessera-train $DIR/run.cfg run.dir=$DIR/runs/001-optimizer.lr=1e-4-train.max_duration=12ba optimizer.lr=1e-4 train.max_duration=12ba" ]
    [ ! -e "$DIR/runs" ]
}

@test "killed in the middle, the same command goes on; what is finished stays" {
    sweep >"$DIR/log" 2>&1 3>&- &
    local pid=$!
    wait_for 60 [ -e "$DIR/runs/001-optimizer.lr=1e-4-train.max_duration=12ba/checkpoints/step-000000004" ]
    local all
    all="$pid $(descendants "$pid")"
    kill -9 $all || true
    wait "$pid" || true
    wait_for 20 gone $all
    local first="$DIR/runs/000-optimizer.lr=1e-4-train.max_duration=6ba"
    cp "$first/ledger.jsonl" "$DIR/ledger.before"

    run sweep --json "$DIR/out.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output != *"run 1 of 4"* ]]
    [[ $output == *"run 2 of 4"* && $output == *"run 4 of 4"* ]]
    cmp "$first/ledger.jsonl" "$DIR/ledger.before"
    jq -e '.runs | length == 4 and all(.state == "finished")' "$DIR/out.json"
    # nothing, not 0, where no counter tells
    jq -e '.runs | all(.energy_j == null or .energy_j > 0)' "$DIR/out.json"
    jq -e '.runs[1].steps == 12 and .runs[1].settings["optimizer.lr"] == "1e-4"' "$DIR/out.json"
    # quality is the least loss of the run's own evaluations
    local best
    best=$(jq -s 'map(.eval_loss) | min' "$DIR/runs/003-"*/eval.jsonl)
    jq -e --argjson best "$best" '.runs[3].quality == $best' "$DIR/out.json"
    # only the high rate gets below the target, and in less than its whole time
    jq -e '.runs[1].seconds_to_target == null and
        (.runs[3].seconds_to_target | . > 0) and
        .runs[3].seconds_to_target <= .runs[3].seconds' "$DIR/out.json"
    # what it has cost is a column
    jq -e '.runs | all(.cost > 0)' "$DIR/out.json"
    sweep --report --svg "$DIR/out.svg" >"$DIR/table"
    grep -E 'to target +(kWh +)?cost  run$' "$DIR/table"
    # a dot for each run and for each value in the legend, beside a dot what differs
    [ "$(grep -o '<circle' "$DIR/out.svg" | wc -l)" -eq 6 ]
    [ "$(grep -c '>12ba<' "$DIR/out.svg")" -gt 0 ]
    grep -q '>5e-3<' "$DIR/out.svg"
    # a corner of the front is a run's dot
    jq -r '.runs | map(select(.front)) | length' "$DIR/out.json" >"$DIR/front"
    [ "$(grep -o '<g data-n="none is.*</g>' "$DIR/out.svg" | grep -o 'M[^"]*' | grep -o L | wc -l)" \
        -eq $((2 * $(cat "$DIR/front") - 2)) ]
    # the best run is on the front, and a run that is beaten in both is not
    jq -e '. as $all | .runs | to_entries | all(.value as $r | $r.front ==
        ([$all.runs[] | select((.quality < $r.quality and .seconds <= $r.seconds)
            or (.quality <= $r.quality and .seconds < $r.seconds))] == []))' "$DIR/out.json"
}

@test "a run that fails is told, and the others run" {
    sed 's/5e-3"/5e-3 | x"/; s/"runs"/"bad"/; s/6ba | 12ba/2ba/' "$DIR/sweep.cfg" >"$DIR/bad.cfg"
    run "$BIN/tessera-sweep" "$DIR/bad.cfg"
    echo "$output"
    [ "$status" -eq 93 ]
    [[ $output == *"it ended with exit code 64"* ]]
    [[ $output == *"not begun"*"002-optimizer.lr=x"* ]]
    [ "$(grep -c " finished  *[0-9]" <<<"$output")" -eq 2 ]
}

@test "--slurm submits what is not finished, --task is one run" {
    mkdir -p "$DIR/bin"
    printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"%s/submitted"\n' "$DIR" >"$DIR/bin/sbatch"
    chmod +x "$DIR/bin/sbatch"
    sed 's/"runs"/"array it'"'"'s"/; s/target = 5.0/sbatch = "--time=5 --nodes=1"/' \
        "$DIR/sweep.cfg" >"$DIR/array.cfg"
    "$BIN/tessera-sweep" "$DIR/array.cfg" --task 2
    PATH=$DIR/bin:$PATH run "$BIN/tessera-sweep" "$DIR/array.cfg" --slurm
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(sed -n 1p "$DIR/submitted")" = --array=0,1,3 ]
    [ "$(sed -n 2,3p "$DIR/submitted" | tr '\n' ' ')" = "--time=5 --nodes=1 " ]
    # the job's command is one that a shell runs
    local wrap
    wrap=$(sed -n 's/^--wrap=//p' "$DIR/submitted")
    SLURM_ARRAY_TASK_ID=0 sh -c "$wrap"
    run "$BIN/tessera-sweep" "$DIR/array.cfg" --report
    [ "$(grep -c " finished  *[0-9]" <<<"$output")" -eq 2 ]
}

@test "what cannot be meant is refused" {
    while IFS='#' read -r line reason; do
        sed "/^grid/,\$d" "$DIR/sweep.cfg" >"$DIR/no.cfg"
        echo "$line" >>"$DIR/no.cfg"
        run "$BIN/tessera-sweep" "$DIR/no.cfg" --list
        echo "$output"
        [ "$status" -eq 64 ]
        [[ $output == *"$reason"* ]]
    done <<'END'
grid = ();#0 settings
grid = ( { key = "a"; values = "1 | | 2"; } );#empty value
grid = ( { key = "a"; values = "1"; }, { key = "a"; values = "2"; } );#stands there twice
grid = ( { key = "run.dir"; values = "1"; } );#run.dir is set by the sweep
grid = ( { key = "a"; value = "1"; } );#did you mean 'values'
grdi = 3;#did you mean 'grid'
END
    run "$BIN/tessera-sweep" "$DIR/sweep.cfg" --task 4
    [ "$status" -eq 64 ]
    run "$BIN/tessera-sweep" "$DIR/sweep.cfg" --task 1x
    [ "$status" -eq 64 ]
}
