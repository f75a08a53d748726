#!/usr/bin/env bats
# tessera-train on this machine: the same bits through ranks, threads, kills and
# damage, and one clear line for every bad input.

load run_helpers

setup_file() {
    data_folder
    reference
}

@test "a run leaves configuration, metrics, ledger and a last checkpoint" {
    cd "$DIR/ref"
    [ "$(wc -l <metrics.jsonl)" -eq 24 ]
    [ -s config.cfg ] && [ -s eval.jsonl ]
    grep -q '"event": *"start"' ledger.jsonl
    grep -q '"event": *"commit"' ledger.jsonl
    [ "$(basename "$(newest .)")" = step-000000024 ]
    [ ! -e .lock ]
    head -n 1 metrics.jsonl | grep -Eq '^\{"attempt": 1, "step": 1, "tokens": 512, "loss": [0-9.]+, "lr": 0, "grad_norm": [0-9.]+, "step_ms": [0-9.]+, "tokens_per_s": [0-9.]+, "mfu": 0\.[0-9]+, "mfu_causal": 0\.[0-9]+, "peak_flops": [0-9.e+]+, "peak_source": "measured", "time": [0-9]{10}\.[0-9]{3}, "loader_ms": [0-9.]+, (.*, )?"train/loss_tokens": 504(, .*)?\}$'
}

@test "the loss falls" {
    awk -F'"loss": ' '{ split($2, a, ","); if (NR <= 4) first += a[1]; if (NR > 20) last += a[1] }
        END { exit !(last < first - 1) }' "$DIR/ref/metrics.jsonl"
}

@test "the resolved configuration trains to the same bits" {
    "$BIN/tessera-train" "$DIR/ref/config.cfg" "run.dir=$DIR/again"
    same_bits "$DIR/again"
}

@test "one and two threads give the same bits" {
    train 1 "$DIR/t1" hardware.threads=1
    same_bits "$DIR/t1"
    train 1 "$DIR/t2" hardware.threads=2
    same_bits "$DIR/t2"
}

@test "five slots, leaves smaller than a slot, resumed: the same bits" {
    odd=(train.max_duration=4ba checkpoint.interval=1ba parallel.slots=5
        train.global_batch=10 train.microbatch=1 optimizer.weight_decay=1e-3
        optimizer.lr=0.00123456789012345 eval.samples=3)
    train 1 "$DIR/odd1" "${odd[@]}"
    train 3 "$DIR/odd3" "${odd[@]}" train.max_duration=2ba scheduler.t_max=4ba
    train 5 "$DIR/odd3" "${odd[@]}"
    [ "$(digest "$DIR/odd3")" = "$(digest "$DIR/odd1")" ]
    [ "$(tail -n 1 "$DIR/odd3/eval.jsonl" | grep -o '"eval_loss": [^,]*')" = \
        "$(tail -n 1 "$DIR/odd1/eval.jsonl" | grep -o '"eval_loss": [^,]*')" ]
}

@test "a learning rate of 0 with weight decay leaves the weights as they are" {
    zero=(optimizer.lr=0 checkpoint.interval=1ba)
    train 1 "$DIR/zero" "${zero[@]}" train.max_duration=3ba
    [ "$(grep -c '"loss": [0-9]' "$DIR/zero/metrics.jsonl")" -eq 3 ]
    train 1 "$DIR/decay" "${zero[@]}" optimizer.weight_decay=0.1 \
        train.max_duration=3ba
    [ "$(digest "$DIR/decay")" = "$(digest "$DIR/zero")" ]
}

@test "a signal or a kill during the last evaluation: the next attempt makes it" {
    long=(train.max_duration=1ba eval.interval=0ba eval.samples=0)
    for signal in USR1 KILL; do
        run_dir=$DIR/last-$signal
        start 1 "$run_dir" "${long[@]}" data.eval="$DIR/data/train"
        wait_for 30 test -e "$run_dir/checkpoints/step-000000001"
        kill -$signal $pid
        code=0
        wait $pid || code=$?
        [ $signal = KILL ] || [ $code -eq 85 ]
        [ ! -s "$run_dir/eval.jsonl" ]
        printf '{"attempt": 1, "step": 1, "eval_l' >"$run_dir/eval.jsonl"
        for again in 1 2; do
            train 1 "$run_dir" "${long[@]}"
        done
        [ "$(grep -c '^{.*"step": 1, "eval_loss": [0-9].*}$' "$run_dir/eval.jsonl")" -eq 1 ]
    done
}

@test "a finished run, started again, exits 0 at once and trains nothing" {
    before=$(wc -l <"$DIR/ref/metrics.jsonl")
    train 1 "$DIR/ref"
    [ "$(wc -l <"$DIR/ref/metrics.jsonl")" -eq "$before" ]
    same_bits "$DIR/ref"
}

@test "killed at random moments on 1, 2, 3, 4, 1 ranks: the same bits" {
    run_dir=$DIR/kill
    local many=${KILLS:-10} # make soak-kills: 1000
    long=("train.max_duration=$((many * 24))ba" checkpoint.interval=4ba)
    train 1 "$DIR/long" "${long[@]}"
    kills=0
    while [ $kills -lt "$many" ]; do
        ranks=$(echo 1 2 3 4 | cut -d' ' -f$((kills % 4 + 1)))
        lines=$(cat "$run_dir/metrics.jsonl" 2>/dev/null | wc -l)
        start $ranks "$run_dir" "${long[@]}"
        # some steps, then a random moment within the next ones
        wait_for 60 eval "steps_logged '$run_dir' $((lines + 3)) || gone $pid"
        sleep 0.$((RANDOM % 6))
        victims=$(ranks_of $pid)
        [ -n "$victims" ] || break
        if [ $((kills % 2)) = 0 ]; then
            kill -9 $victims || true
        else
            # one rank; mpirun ends the others
            kill -9 $(echo "$victims" | shuf -n 1) || true
        fi
        kills=$((kills + 1))
        wait $pid || true
        wait_for 20 gone $victims
    done
    echo "$kills kills"
    [ $kills -ge $((many / 2)) ]
    train 1 "$run_dir" "${long[@]}"
    [ "$(digest "$run_dir")" = "$(digest "$DIR/long")" ]
    equal_replays "$run_dir"
    [ -z "$(find "$run_dir/checkpoints" -name '.tmp-*')" ]
}

@test "SIGUSR1 and SIGTERM: checkpoint, exit 85, resume to the same bits" {
    for signal in USR1 TERM; do
        held 4 1 "$DIR/$signal"
        kill -$signal $pid
        rm "$DIR/held"
        waited 85
        last=$(tail -n 1 "$DIR/$signal/metrics.jsonl" | grep -o '"step": [0-9]*' | grep -o '[0-9]*')
        [ "$(basename "$(newest "$DIR/$signal")")" = "$(printf 'step-%09d' "$last")" ]
        train 1 "$DIR/$signal"
        same_bits "$DIR/$signal"
    done
}

@test "SIGUSR1 to one of three ranks stops all at one step" {
    held 3 3 "$DIR/usr3"
    kill -USR1 "$(ranks_of $pid | tail -n 1)"
    rm "$DIR/held"
    waited 85
    train 2 "$DIR/usr3"
    same_bits "$DIR/usr3"
}

@test "a damaged newest checkpoint: quarantine, fall back, the same bits" {
    cp -r "$DIR/ref" "$DIR/damaged"
    shard=$(newest "$DIR/damaged")/shard-00000-of-00001.h5
    size=$(stat -c %s "$shard")
    printf '\xff\x00\xff' | dd of="$shard" bs=1 seek=$((size / 2)) conv=notrunc status=none
    ends '!0' '' "$BIN/tessera-ckpt" digest "$(newest "$DIR/damaged")"
    train 2 "$DIR/damaged"
    same_bits "$DIR/damaged"
    ls -d "$DIR"/damaged/checkpoints/.bad-step-000000024*
}

@test "when every checkpoint is damaged the run stops: never a fresh start" {
    cp -r "$DIR/ref" "$DIR/allbad"
    for shard in "$DIR"/allbad/checkpoints/step-*/shard-*; do
        truncate -s -100 "$shard"
    done
    before=$(wc -l <"$DIR/allbad/metrics.jsonl")
    for again in 1 2; do
        ends 93 '' train 1 "$DIR/allbad"
    done
    [ "$(wc -l <"$DIR/allbad/metrics.jsonl")" -eq "$before" ]
}

@test "a second process on a live run is refused, the run is not harmed" {
    held 2 1 "$DIR/locked"
    ends 93 "process $pid on this host" train 1 "$DIR/locked"
    rm "$DIR/held"
    wait $pid
    same_bits "$DIR/locked"
}

@test "a dead owner's lock is taken over at once" {
    held 2 1 "$DIR/dead"
    kill -9 $pid
    wait $pid || true
    [ -e "$DIR/dead/.lock" ]
    train 1 "$DIR/dead"
    same_bits "$DIR/dead"
}

# stopped_is_named STRATEGY SETTING
stopped_is_named() {
    held 2 2 "$DIR/hung-$1" "$2" parallel.strategy="$1"
    hung=$(ranks_of $pid | tail -n 1)
    kill -STOP "$hung"
    rm "$DIR/held"
    wait_for 30 gone $pid || { kill -CONT "$hung"; false; }
    kill -CONT "$hung" 2>/dev/null || true
    waited '!0'
    grep -q 'no answer.* rank 1' "$DIR/hung-$1.log"
    ! grep -q 'no answer.* rank 0' "$DIR/hung-$1.log" || false
}

@test "a stopped rank is named within the deadline" {
    stopped_is_named ddp parallel.timeout_s=2
    train 1 "$DIR/hung-ddp"
    same_bits "$DIR/hung-ddp"
}

@test "a stopped rank is named by the want of signs of life, long before it" {
    for strategy in zero1 zero3; do
        stopped_is_named $strategy parallel.lost_s=3
    done
    train 1 "$DIR/hung-zero3"
    same_bits "$DIR/hung-zero3"
}

@test "a rank that is slow by itself is the slowest rank" {
    start 2 "$DIR/slow" train.max_duration=100000ba hardware.threads=1 \
        train.global_batch=96
    wait_for 30 steps_logged "$DIR/slow" 4
    slow=$(ranks_of $pid | tail -n 1)
    from=$(wc -l <"$DIR/slow/metrics.jsonl")
    end=$((SECONDS + 60))
    until steps_logged "$DIR/slow" $((from + 12)) || [ $SECONDS -ge $end ]; do
        kill -STOP "$slow"
        sleep 0.1
        kill -CONT "$slow"
        sleep 0.05
    done
    kill -KILL $(ranks_of $pid) || true
    waited '!0'
    # in nearly every step, and its work is most of it: by that of both, since the step is
    # one for both, and the other one waits for it
    tail -n "+$((from + 2))" "$DIR/slow/metrics.jsonl" | head -n -2 |
        jq -s 'length as $n | (map(select(.slowest_rank == 1)) | length) as $named |
            (map(select(.waiting_rank == 0 and .step_ms_max < 1.1 * .step_ms_min and
                .work_ms_median < .work_ms_max)) | length) as $waits |
            "\($named) of \($n), \($waits) waited for", ($n >= 5 and
                $named >= 0.8 * $n and $waits >= 0.8 * $n)' >"$DIR/named"
    sed 's/^/# /' "$DIR/named" >&3
    grep -qx true "$DIR/named"
}

@test "nothing of a killed run stays in /dev/shm that blocks the next" {
    held 2 4 "$DIR/shm"
    victims=$(ranks_of $pid)
    kill -9 $victims $pid
    wait $pid || true
    wait_for 20 gone $victims
    train 4 "$DIR/shm"
    same_bits "$DIR/shm"
}

# bad CODE TEXT RUN-ARGUMENT ...: one line that has TEXT, and the exit code
bad() {
    local code=$1 text=$2
    shift 2
    run "$BIN/tessera-train" "$@"
    echo "status $status: $output"
    [ "$status" -eq "$code" ]
    [[ "$output" == *"$text"* ]]
    [ "$(echo "$output" | grep -c error)" -eq 1 ]
}

@test "bad configurations: exit 64 and one line that names file, line and key" {
    cd "$DIR"
    bad 64 "no/such.cfg" no/such.cfg
    echo 'train: { global_batch = ' >broken.cfg
    bad 64 "broken.cfg:" broken.cfg
    printf 'train:\n{\n  global_bacth = 8;\n};\n' >misspelt.cfg
    bad 64 "misspelt.cfg:3: unknown setting 'train.global_bacth'" misspelt.cfg
    bad 64 "train.global_batch" misspelt.cfg
    printf 'train:\n{\n  global_batch = "many";\n};\n' >type.cfg
    bad 64 "type.cfg:3" type.cfg
    bad 64 "train.global_batch" "$CONF" run.dir=x train.global_batch=-8
    bad 64 "not divisible" "$CONF" run.dir=x train.global_batch=9 parallel.slots=4
    bad 64 "not divisible" "$CONF" run.dir=x train.global_batch=32 train.microbatch=3
    bad 64 "unit" "$CONF" run.dir=x train.max_duration=60xy
    bad 64 "train.seed" "$CONF" run.dir=x train.sede=3
    bad 64 "model.preset" "$CONF" run.dir=x model.preset=mpt-9000b
    bad 64 "data.seq_len" "$CONF" run.dir=x data.seq_len=4096
    [ ! -e x ]
}

@test "a run directory that cannot be one: exit 64" {
    cd "$DIR"
    touch file
    bad 64 "$DIR/file" "$CONF" "run.dir=$DIR/file" data.train=x
    bad 64 "$DIR/file" "$CONF" "run.dir=$DIR/file/below" data.train=x
    bad 64 "too long" "$CONF" "run.dir=$DIR/$(printf '%0300d' 0)" data.train=x
    bad 64 "run.dir" "$CONF" "run.dir=$DIR/$(printf '0/%.0s' $(seq 450))"
}

@test "more memory than there is: exit 93 before it is touched" {
    bad 93 "a rank needs 8.4 TiB of memory" "$CONF" "run.dir=$DIR/huge" \
        data.train="$DIR/data/train" data.eval="$DIR/data/eval" data.seq_len=64 \
        train.global_batch=40000000 train.microbatch=5000000
}

@test "ranks with other settings or data than rank 0 are named" {
    common=("$BIN/tessera-train" "$CONF" "run.dir=$DIR/unlike" data.eval=
        "${SHORT[@]}" eval.samples=0)
    one=("${common[@]}" "data.train=$DIR/data/train")
    ends 64 "rank 1 (*another train.seed" "$MPIRUN" 1 "${one[@]}" : -np 1 "${one[@]}" train.seed=4
    ends 64 "rank 1 (*another data set in data.train" \
        "$MPIRUN" 1 "${one[@]}" : -np 1 "${common[@]}" \
        data.train="$DIR/data/eval"
    ends 93 "rank 1 (*nowhere" "$MPIRUN" 1 "${one[@]}" : -np 1 "${common[@]}" \
        data.train="$DIR/nowhere"
    [ "$(echo "$output" | grep -c 'train: error')" -eq 1 ]
}

@test "diverged: exit 93, the checkpoints stay good" {
    for again in 1 2; do
        ends 93 "training diverged" train 2 "$DIR/diverged" optimizer.lr=1000 train.clip_norm=0 \
            checkpoint.interval=2ba
    done
    "$BIN/tessera-ckpt" verify "$(newest "$DIR/diverged")"
}

@test "more ranks than slots is refused" {
    ends 64 "parallel.slots" train 3 "$DIR/ranks" parallel.slots=2
}

@test "bad data: exit 93, the file is named, nothing is started" {
    data=$BATS_TEST_DIRNAME/../build/tiny-data
    bad 93 "nowhere" "$CONF" "run.dir=$DIR/x" data.train="$DIR/nowhere"
    bad 93 "vocab" "$CONF" "run.dir=$DIR/x" model.vocab_size=64
    cp -r "$data/train" "$DIR/short"
    shard=$(ls "$DIR"/short/shard.*.mds | head -n 1)
    truncate -s -9 "$shard"
    bad 93 "$(basename "$shard")" "$CONF" "run.dir=$DIR/x" data.train="$DIR/short"
    [ ! -e "$DIR/x/checkpoints/step-000000001" ]
}

@test "a checkpoint of another model, batch or data set is refused by name" {
    cp -r "$DIR/ref" "$DIR/other"
    ends 93 "model.n_layers" train 1 "$DIR/other" model.n_layers=3
    ends 93 "train.global_batch" train 1 "$DIR/other" train.global_batch=16
    ends 93 '' train 1 "$DIR/other" train.seed=18
    same_bits "$DIR/other"
}

@test "attention within documents or within samples, as long as a run lives" {
    "$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.05 \
        --separator '' --out "$DIR/paragraphs" "$DIR/text"
    local data=("data.train=$DIR/paragraphs/train" "data.eval=$DIR/paragraphs/eval")
    local within=model.attn_uses_sequence_id
    train 1 "$DIR/attn-documents" "${data[@]}" train.max_duration=3ba
    train 1 "$DIR/attn-samples" "${data[@]}" train.max_duration=3ba $within=false
    [ "$(digest "$DIR/attn-documents")" != "$(digest "$DIR/attn-samples")" ]
    ends 93 "$within" train 1 "$DIR/attn-samples" "${data[@]}" train.max_duration=6ba
    # where a sample is one document there is nothing to tell apart
    train 1 "$DIR/attn-one" $within=false
    same_bits "$DIR/attn-one"
}

@test "kernel sets may change in a run, and differ between its ranks" {
    local command
    cp -r "$DIR/ref" "$DIR/sets"
    rm -r "$DIR/sets/checkpoints/step-000000024"
    ends 0 '' train 1 "$DIR/sets" hardware.kernel_set=generic
    [[ "$output" != *arithmetic* ]]
    same_bits "$DIR/sets"
    command_of 1 "$DIR/mixed"
    "$MPIRUN" 1 "${command[@]}" : \
        -np 1 "${command[@]}" hardware.kernel_set=generic
    same_bits "$DIR/mixed"
}

@test "a full disk: one line, exit 75, the older checkpoint stays good" {
    [ "$(id -u)" = 0 ] || skip "mounting a small file system needs root"
    mkdir "$DIR/small"
    mount -t tmpfs -o size=40m tmpfs "$DIR/small" || skip "cannot mount here"
    status=0
    train 1 "$DIR/small/run" train.max_duration=6ba || status=$?
    before=$(digest "$DIR/small/run") || true
    dd if=/dev/zero of="$DIR/small/fill" bs=1M status=none 2>/dev/null || true
    run train 1 "$DIR/small/run" train.max_duration=24ba
    code=$status
    after=$(digest "$DIR/small/run") || true
    rm -f "$DIR/small/fill"
    train 1 "$DIR/small/run" train.max_duration=24ba || true
    last=$(digest "$DIR/small/run") || true
    umount "$DIR/small"
    echo "code $code: $output"
    [ "$code" -eq 75 ]
    [[ "$output" == *"No space left"* ]]
    [ -n "$before" ] && [ "$before" = "$after" ]
    [ "$last" = "$(cat "$DIR/ref.digest")" ] || [ -n "$last" ]
}

@test "a read-only run directory: one line, exit 93" {
    [ "$(id -u)" = 0 ] || skip "mounting read-only needs root"
    mkdir "$DIR/ro"
    mount -t tmpfs -o ro tmpfs "$DIR/ro" || skip "cannot mount here"
    run train 1 "$DIR/ro/run"
    umount "$DIR/ro"
    [ "$status" -eq 93 ]
    [[ "$output" == *"Read-only"* ]]
}

@test "saves written behind the training give the same bits as saves awaited" {
    for mode in true false; do
        train 2 "$DIR/async-$mode" checkpoint.async=$mode log.level=debug \
            2>"$DIR/async-$mode.log"
        same_bits "$DIR/async-$mode"
        for phase in persisted committed; do
            [ "$(grep -c "step [0-9]* $phase" "$DIR/async-$mode.log")" -eq 8 ]
        done
        [ "$(grep -c '"event": "commit".*"stage_s"' "$DIR/async-$mode/ledger.jsonl")" -eq 8 ]
    done
    [ "$(cut -d, -f2-4 "$DIR/async-true/metrics.jsonl")" = \
        "$(cut -d, -f2-4 "$DIR/async-false/metrics.jsonl")" ]
}

@test "killed while a save is written: the newest committed step, the same bits" {
    for point in staged shard-half:1 shards-agreed manifest-written; do
        run_dir=$DIR/behind-$point
        train 2 "$run_dir" train.max_duration=6ba scheduler.t_max=24ba
        # only this build has crash points
        TRAIN=$BIN/../crash/bin/tessera-train TESSERA_CRASH_AT=$point \
            ends '!0' '' train 2 "$run_dir"
        [ "$(basename "$(newest "$run_dir")")" = step-000000006 ]
        train 2 "$run_dir"
        same_bits "$run_dir"
        [ -z "$(find "$run_dir/checkpoints" -name '.tmp-*')" ]
    done
}

@test "a save is committed while a long step computes" {
    run_dir=$DIR/long
    for ranks in 1 2; do
        start $ranks "$run_dir-$ranks" train.global_batch=800 \
            checkpoint.interval=1ba parallel.slots=8 eval.interval=24ba
        wait_for 60 test -d "$run_dir-$ranks/checkpoints/step-000000001"
        # the second step has not ended
        steps=$(wc -l <"$run_dir-$ranks/metrics.jsonl")
        kill -9 $(ranks_of $pid) $pid
        wait $pid || true
        [ "$steps" -eq 1 ]
    done
    train 1 "$run_dir-2" train.global_batch=800 train.max_duration=2ba \
        scheduler.t_max=24ba parallel.slots=8 eval.interval=24ba
    [ "$(wc -l <"$run_dir-2/metrics.jsonl")" -eq 2 ]
}

@test "stopped while a save is written: named within parallel.timeout_s, too" {
    run_dir=$DIR/halted
    # the save itself may take 600 s
    TRAIN=$BIN/../crash/bin/tessera-train TESSERA_CRASH_AT=shard-half:1 \
        TESSERA_CRASH_STOP=1 start 2 "$run_dir" parallel.timeout_s=2 \
        checkpoint.async=false
    wait_for 30 gone $pid || { kill -CONT $(ranks_of $pid); false; }
    waited '!0'
    grep -q 'rank 1' "$run_dir.log"
    train 2 "$run_dir"
    same_bits "$run_dir"
}

# limited KIB RANKS DIR ...: no file of the ranks may grow beyond this size
limited() {
    (
        ulimit -f "$1"
        trap '' XFSZ
        shift
        train "$@"
    )
}

@test "failed saves: training goes on, several in a row stop the run" {
    ends 75 "3 saves in a row have failed, the last at step 9*File too large" \
        limited 512 1 "$DIR/failing"
    [ "$(grep -c '"event": "save-failed"' "$DIR/failing/ledger.jsonl")" -eq 3 ]
    [ "$(wc -l <"$DIR/failing/metrics.jsonl")" -ge 9 ]
    [ -z "$(find "$DIR/failing/checkpoints" -mindepth 1 ! -name RUN_UUID)" ]
    # the last step is tried twice
    ends 75 "step 24, the last one, could not be saved twice" \
        limited 512 1 "$DIR/failing" checkpoint.failures_max=100
    train 1 "$DIR/failing"
    same_bits "$DIR/failing"
}

@test "every so many steps one checkpoint is kept for good" {
    train 1 "$DIR/every" checkpoint.keep=1 checkpoint.keep_every=9
    [ "$(cd "$DIR/every/checkpoints" && echo step-*)" = \
        "step-000000009 step-000000018 step-000000024" ]
}

@test "fast and run determinism train; run refuses another number of ranks" {
    train 2 "$DIR/fast" parallel.determinism=fast
    train 2 "$DIR/same" parallel.determinism=run train.max_duration=6ba \
        scheduler.t_max=24ba
    ends 93 "ranks" train 1 "$DIR/same" parallel.determinism=run
    train 2 "$DIR/same" parallel.determinism=run scheduler.t_max=24ba
    [ "$(digest "$DIR/same")" = "$(digest "$DIR/fast")" ]
}

@test "where a run is, without a look at its model" {
    conf=$BATS_TEST_DIRNAME/../jobs/conf/lora-smollm2.cfg
    mkdir "$DIR/model"
    mkfifo "$DIR/model/config.json" "$DIR/model/model.safetensors"
    for model in "$DIR/model" "$DIR/none"; do
        ends 0 '' "$BIN/tessera-train" --print run.dir,run.mode,checkpoint.interval "$conf" \
            "model.weights=$model" run.dir=/a/b run.mode=0750 checkpoint.interval=7ba
        [ "$output" = $'/a/b\n0750\n7ba' ]
        # what follows from the model asks for it
        ends '!0' "$model" \
            "$BIN/tessera-train" --print run.dir,model.d_model "$conf" "model.weights=$model"
    done
    command -v strace >/dev/null || return 0
    strace -f -o "$DIR/calls" "$BIN/tessera-train" --print run.dir "$conf" \
        "model.weights=$DIR/model"
    grep -q 'lora-smollm2.cfg' "$DIR/calls"
    run grep -v '^[0-9]* execve' "$DIR/calls"
    [[ $output != *"$DIR/model"* ]]
}

@test "--print takes several keys, and judges what it prints" {
    for wrong in run.dirr train.global_batch,run.dirr run.dir, ''; do
        ends 64 "--print: " "$BIN/tessera-train" --print "$wrong" "$CONF"
    done
    for wrong in run.mode=rwx run.mode=0050 run.dir= run.dir=/ data.train= $'run.group=a\nb' \
        train.microbatch=5 model.n_heads=7; do
        ends 64 "${wrong%%=*}" \
            "$BIN/tessera-train" --print run.dir,run.mode,run.group "$CONF" "$wrong"
    done
}

@test "--help as the manual page has it, --version, --print" {
    "$BIN/tessera-train" --help | grep -q 'checkpoint.interval'
    diff "$BATS_TEST_DIRNAME/../docs/man/tessera-train.1" \
        <("$BATS_TEST_DIRNAME/../docs/man/settings" "$BIN/tessera-train" \
            "$BATS_TEST_DIRNAME/../docs/man/tessera-train.1")
    diff "$BATS_TEST_DIRNAME/../docs/reference/training.md" \
        <("$BIN/../docs/reference/training")
    "$BIN/tessera-train" --version | grep -q '^tessera '
    ends 64 '' "$BIN/tessera-train"
    "$BIN/tessera" | grep -q train
    [ "$("$BIN/tessera" train --version)" = "$("$BIN/tessera-train" --version)" ]
}
