#!/usr/bin/env bats
# checkpoint.mirror: commits are copied to a store behind the training, and a run whose
# directory is gone goes on from there to the same bits, whatever the store does.

bats_require_minimum_version 1.5.0
load run_helpers

setup_file() {
    data_folder
    mkdir -p "$DIR/s3/bucket"
    serve "$DIR/s3"
    reference "${FEW[@]}"
}

FEW=(train.max_duration=12ba checkpoint.interval=3ba eval.interval=12ba log.level=info)

setup() {
    AWS_ENDPOINT_URL_S3=http://127.0.0.1:$(cat "$DIR/port")
    export AWS_ENDPOINT_URL_S3 AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=secret
    rules ""
    MIRROR=("${FEW[@]}" "checkpoint.mirror=s3://bucket/$BATS_TEST_NUMBER")
    THERE=$DIR/s3/bucket/$BATS_TEST_NUMBER
}

# all_whole: whatever has a manifest there is a checkpoint whose every byte is good
all_whole() {
    local manifest folder
    for manifest in "$THERE"/*/MANIFEST.json; do
        [ -f "$manifest" ] || continue
        folder=$(basename "$(dirname "$manifest")")
        rm -rf "$DIR/look"
        mkdir "$DIR/look"
        cp -r "$(dirname "$manifest")" "$DIR/look/${folder:0:14}"
        "$BIN/tessera-ckpt" verify "$DIR/look/${folder:0:14}" || return 1
    done
}

# killed RANKS RUN STEP: at that step, when the store has $HAS; KEEP: its directory stays
killed() {
    local ranks
    held "$3" "$1" "$2" "${MIRROR[@]}"
    [ -z "${HAS:-}" ] || wait_for 60 compgen -G "$THERE/$HAS"
    ranks=$(ranks_of "${pid:?}")
    # shellcheck disable=SC2086 # several words
    kill -9 $ranks
    wait "$pid" || true
    # shellcheck disable=SC2086
    wait_for 10 gone $ranks
    [ -n "${KEEP:-}" ] || rm -rf "$2"
}

@test "each commit is there, the newest at the end, and no more than are kept" {
    train 2 "$DIR/one" "${MIRROR[@]}" checkpoint.mirror_keep=2
    same_bits "$DIR/one"
    ls "$THERE"
    [ "$(find "$THERE" -name MANIFEST.json | wc -l)" -le 2 ]
    [ "$(find "$THERE" -mindepth 1 -maxdepth 1 -name 'step-*' | wc -l)" -le 2 ]
    [ -n "$(compgen -G "$THERE/step-000000012-*/MANIFEST.json")" ]
    all_whole
    jq -es 'any(.[]; .event == "mirror" and .step == 12)' "$DIR/one/ledger.jsonl"
}

@test "a directory that is gone comes back, on other numbers of ranks, to the same bits" {
    for ranks in 1 2 3; do
        HAS="*/MANIFEST.json" killed 2 "$DIR/gone$ranks" 8
        run -0 train $ranks "$DIR/gone$ranks" "${MIRROR[@]}"
        [[ "$output" == *"the run directory has no checkpoint: step "*" comes from s3://bucket/"* ]]
        same_bits "$DIR/gone$ranks"
        all_whole
        rm -rf "$THERE"
    done
}

@test "a copy of a run does not take its place there" {
    local run=$DIR/copied
    train 1 "$run" "${MIRROR[@]}" train.max_duration=6ba
    cp -r "$run" "$run.copy"
    run -0 train 2 "$run.copy" "${MIRROR[@]}"
    [[ "$output" == *"step 12 is not there: s3://bucket/"*" is the mirror of $run, and $run.copy has the same run_uuid"* ]]
    [ -z "$(compgen -G "$THERE/step-000000012-*/MANIFEST.json")" ]
    # one that was moved is the run, and so is one that comes back
    mv "$run.copy" "$run.moved"
    rm -rf "$run"
    train 1 "$run.moved" "${MIRROR[@]}" train.max_duration=14ba
    [ -n "$(compgen -G "$THERE/step-000000014-*/MANIFEST.json")" ]
    [ "$(find "$THERE" -name 'owner-*' | wc -l)" = 1 ]
    # who comes later, from where nobody sees the other directory, has it
    rm -rf "$THERE"
    rules "shard-00000 delay 1 -"
    start 1 "$DIR/older" "${MIRROR[@]}"
    wait_for 60 compgen -G "$THERE/owner-*"
    owner=$(compgen -G "$THERE/owner-*")
    echo /elsewhere >"${owner%-*}-0123456789ab"
    waited 0
    grep -q "another attempt with the same run_uuid" "$DIR/older.log"
}

@test "a directory that does not answer holds no mirror" {
    train 1 "$DIR/answers" "${MIRROR[@]}" train.max_duration=6ba
    owner=$(compgen -G "$THERE/owner-*")
    mkdir -p "$DIR/away/checkpoints"
    mkfifo "$DIR/away/checkpoints/RUN_UUID"
    printf %s "$DIR/away" >"${owner%-*}-0123456789ab"
    run -0 train 1 "$DIR/answers" "${MIRROR[@]}"
    [[ "$output" == *"$DIR/away, whose run is mirrored there, does not answer within 10 s"* ]]
    [ -n "$(compgen -G "$THERE/step-000000012-*/MANIFEST.json")" ]
}

# registers RUN SETTING...: whose source MLflow's registry gets, of a server that says yes
registers() {
    local run=$1
    shift
    train 1 "$run" "${ROUGH[@]}" "tracking.mlflow=http://127.0.0.1:$(cat "$DIR/flow")" \
        tracking.mlflow_register=m "$@" >"$run.log" 2>&1 || { cat "$run.log"; return 1; }
    sed -n 's/.*version 1 of m is step [0-9]*, //p' "$run.log"
}

there() { # the steps that are whole in the mirror
    printf '%s\n' "$THERE"/step-*/MANIFEST.json | sed 's,.*/step-0*\([0-9]*\)-.*,\1,' | tr '\n' ' '
}

@test "the best checkpoint is registered by its copy, as long as that is there" {
    ROUGH=(train.max_duration=20ba eval.interval=2ba eval.samples=0 optimizer.lr=0.05
        checkpoint.interval=2ba checkpoint.keep_best=true checkpoint.mirror_keep=0
        scheduler.warmup=20ba log.level=info)
    perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 9, LocalAddr => "127.0.0.1") or die;
        $| = 1; print $s->sockport, "\n";
        $yes = q({"experiment": {"experiment_id": "1"}, "model_version": {"version": "1"},
            "run": {"info": {"run_id": "r", "status": "RUNNING"}, "data": {}}});
        while ($c = $s->accept) {
            $length = 0;
            while (($_ = <$c>) =~ /\S/) { $length = $1 if /^content-length: (\d+)/i }
            read $c, $_, $length;
            printf $c "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", length $yes, $yes
        }' >"$DIR/flow" 3>&- &
    flow=$!
    wait_for 10 test -s "$DIR/flow"
    train 1 "$DIR/best" "${ROUGH[@]}"
    best=$(jq -s 'map(select(.step % 2 == 0)) | min_by(.eval_loss).step' "$DIR/best/eval.jsonl")
    name=$(printf step-%09d "$best")
    [ "$best" -lt 20 ]
    train 1 "$DIR/two" "${ROUGH[@]}" "${MIRROR[@]: -1}" "train.max_duration=${best}ba"
    source=$(registers "$DIR/two" "${MIRROR[@]: -1}")
    [[ "$source" == "s3://bucket/$BATS_TEST_NUMBER/$name-"* ]]
    [ -f "$DIR/s3/${source#s3://}/MANIFEST.json" ]
    rm "$DIR/s3/${source#s3://}/MANIFEST.json"
    [ "$(registers "$DIR/two" "${MIRROR[@]: -1}")" = "tessera://$DIR/two/checkpoints/$name" ]
    # kept there for being the best, or pinned, behind those that are newer, in a later attempt, too
    rm -rf "$THERE"
    train 1 "$DIR/kept" "${ROUGH[@]}" "${MIRROR[@]: -1}" checkpoint.mirror_keep=1 "train.max_duration=${best}ba"
    train 1 "$DIR/kept" "${ROUGH[@]}" "${MIRROR[@]: -1}" checkpoint.mirror_keep=1 train.max_duration=18ba
    "$BIN/tessera-ckpt" pin "$DIR/kept#18" --reason "$(printf 'x%.0s' {1..5000})"
    source=$(registers "$DIR/kept" "${MIRROR[@]: -1}" checkpoint.mirror_keep=1)
    [[ "$source" == "s3://bucket/$BATS_TEST_NUMBER/$name-"* ]]
    [ "$(basename -a "$THERE"/*/MANIFEST.json | wc -l)" = 3 ]
    [ -n "$(compgen -G "$THERE/step-000000018-*/MANIFEST.json")" ]
    kill $flow
    # the mirror itself says which these are: the run directory is lost
    rm -rf "$DIR/kept"
    train 1 "$DIR/kept" "${ROUGH[@]}" "${MIRROR[@]: -1}" checkpoint.mirror_keep=1 train.max_duration=22ba
    [ "$(there)" = "$best 18 22 " ]
    # a pin comes back with its checkpoint, and is followed as long as that is here; 24 is better
    "$BIN/tessera-ckpt" pin "$DIR/kept#22" --reason test
    for again in 1 2; do
        train 1 "$DIR/kept" "${ROUGH[@]}" "${MIRROR[@]: -1}" checkpoint.mirror_keep=1 train.max_duration=24ba
        [ "$(there)" = "18 22 24 " ]
        grep -q test "$DIR/kept/checkpoints/step-000000022/PINNED"
        [ $again = 2 ] || rm -rf "$DIR/kept" "$THERE"/step-000000024-*
    done
    "$BIN/tessera-ckpt" unpin "$DIR/kept#22"
    train 1 "$DIR/kept" "${ROUGH[@]}" "${MIRROR[@]: -1}" checkpoint.mirror_keep=1 train.max_duration=26ba
    [[ " $(there)" == *" 18 "* && " $(there)" != *" 22 "* ]]
}

@test "what cannot be removed, or an attempt before has put late, stops no mirror" {
    local owner
    rm -rf "$THERE"
    train 1 "$DIR/late" "${MIRROR[@]}" train.max_duration=6ba
    rules "DELETE status 403 -"
    run -0 train 1 "$DIR/late" "${MIRROR[@]}" train.max_duration=8ba
    [[ "$output" == *"owner-"*" stays: "*403* ]]
    [ -n "$(compgen -G "$THERE/step-000000008-*/MANIFEST.json")" ]
    rules "shard-00000 delay 1 -"
    owner=$(compgen -G "$THERE/owner-*" | tr '\n' ' ')
    start 1 "$DIR/late" "${MIRROR[@]}"
    wait_for 60 eval '[ "$(compgen -G "$THERE/owner-*" | tr "\n" " ")" != "$owner" ]'
    owner=$(compgen -G "$THERE/owner-*" | head -n 1)
    printf %s "$(realpath "$DIR/late")" >"${owner%-*}-0123456789ab"
    waited 0
    [ -n "$(compgen -G "$THERE/step-000000012-*/MANIFEST.json")" ]
    [ ! -e "${owner%-*}-0123456789ab" ]
    rm -rf "$THERE"
}

@test "a whole one whose replay cannot be put again stays" {
    rm -rf "$THERE"
    train 1 "$DIR/again" "${MIRROR[@]}" checkpoint.interval=4ba train.max_duration=4ba
    rules "PUT status 503 -"
    run train 1 "$DIR/again" "${MIRROR[@]}" checkpoint.interval=4ba checkpoint.remote_deadline=1 \
        train.max_duration=8ba
    rules ""
    train 1 "$DIR/again" "${MIRROR[@]}" checkpoint.interval=4ba
    [ -n "$(compgen -G "$THERE/step-000000004-*/MANIFEST.json")" ]
    rm -rf "$THERE"
}

@test "a finished run whose directory is gone is there again" {
    train 1 "$DIR/done" "${MIRROR[@]}"
    rm -rf "$DIR/done"
    run -0 train 1 "$DIR/done" "${MIRROR[@]}"
    [[ "$output" == *"finished at step 12 already"* ]]
    same_bits "$DIR/done"
}

# ROUNDS and SEED: so many deaths, with other faults each
@test "a store that fails now and then, and is slow: nothing is lost" {
    for round in $(seq "${ROUNDS:-1}"); do
        rules "* chance $((${SEED:-1} + round)):30 -"
        killed $((round % 3 + 1)) "$DIR/bad" $((3 + round % 8))
        all_whole
        train $(((round + 1) % 3 + 1)) "$DIR/bad" "${MIRROR[@]}"
        same_bits "$DIR/bad"
        all_whole
        rules "PUT slow 2000000 -"
        rm -rf "$DIR/bad"
        train 2 "$DIR/bad" "${MIRROR[@]}"
        same_bits "$DIR/bad"
        rm -rf "$DIR/bad" "$THERE"
        echo "round $round: $(cat "$DIR/rules.faults") faults so far"
    done
    [ "$(cat "$DIR/rules.faults")" -gt 0 ]
}

@test "denied: the run goes on, says so with what to do, and is tried again" {
    rules "PUT status 403 2"
    run -0 train 1 "$DIR/denied" "${MIRROR[@]}"
    [[ "$output" == *"checkpoint.mirror: step "*" is not there: s3://bucket/"*"may not be written: status 403"*"credentials"* ]]
    same_bits "$DIR/denied"
    grep -q '"mirror-failed"' "$DIR/denied/ledger.jsonl"
    [ -n "$(compgen -G "$THERE/step-000000012-*/MANIFEST.json")" ]
}

@test "a half upload is no checkpoint, goes, and hinders no other run" {
    rules "MANIFEST status 403 -"
    HAS="*" killed 2 "$DIR/half" 8
    [ -z "$(compgen -G "$THERE/*/MANIFEST.json")" ]
    [ -n "$(compgen -G "$THERE/step-*")" ]
    rules ""
    run -0 train 2 "$DIR/half" "${MIRROR[@]}"
    [[ "$output" != *"comes from s3"* ]]
    rm -rf "$DIR/half"
    run -0 train 2 "$DIR/half" "${MIRROR[@]}"
    [[ "$output" == *"step 12 comes from s3"* ]]
    same_bits "$DIR/half"
    rm -rf "$DIR/half" "$THERE"
    rules "MANIFEST status 403 -"
    HAS="*" KEEP=1 killed 2 "$DIR/half" 8
    rules ""
    train 2 "$DIR/half" "${MIRROR[@]}"
    same_bits "$DIR/half"
    [ "$(find "$THERE" -name MANIFEST.json | wc -l)" = "$(find "$THERE" -mindepth 1 -maxdepth 1 -name 'step-*' | wc -l)" ]
}

@test "an end does not wait for ever, and says so" {
    rules "PUT delay 1000 -"
    run -0 train 1 "$DIR/waits" "${MIRROR[@]}" checkpoint.mirror_wait_s=1
    [[ "$output" == *"step 12 is not there after "*"is not waited for"* ]]
    rules ""
    train 1 "$DIR/waits" "${MIRROR[@]}"
    [ -n "$(compgen -G "$THERE/step-000000012-*/MANIFEST.json")" ]
    all_whole
}

# copy_of RUN STEP: into the store as an attempt would, for commits may be left out
copy_of() {
    local from=$1/checkpoints/step-00000000$2 run
    run=$(basename "$(compgen -G "$THERE/step-000000012-*")" | cut -d- -f3)
    cp -r "$from" "$THERE/$(basename "$from")-$run-$(sha256sum "$from/MANIFEST.json" | cut -c1-12)"
}

spoil() { # STEPs, as globs: a shard of each
    local step shard
    for step; do
        for shard in "$THERE"/step-0000000$step-*/shard-00000*; do
            [ -f "$shard" ] || continue
            printf '\x5a\xa5\x5a' | dd of="$shard" bs=1 seek=5000 conv=notrunc status=none
        done
    done
}

@test "damage there leads to an older one, stops no run, and lets none begin anew" {
    local run=$DIR/bad6
    train 2 "$run" "${MIRROR[@]}" checkpoint.keep=0 checkpoint.mirror_keep=1
    copy_of "$run" 6
    copy_of "$run" 9
    cp -r "$run" "$run.old"
    rm -rf "$run" "$run.old/checkpoints/step-0000000"{09,12}
    spoil 12
    rm "$THERE"/step-000000009-*/shard-00001*
    run -0 train 2 "$run" "${MIRROR[@]}"
    [[ "$output" == *"step 12 is passed over: "*"step 9 is passed over: "*"step 6 comes from s3"* ]]
    same_bits "$run"
    spoil 09 12
    run -0 train 2 "$run.old" "${MIRROR[@]}"
    [[ "$output" == *"newer than step 6"*"does not come: "* ]]
    same_bits "$run.old"
    spoil "??"
    rm -rf "$run"
    run -93 train 1 "$run" "${MIRROR[@]}"
    [[ "$output" == *"step 12 is passed over"* ]]
}

@test "who waits for another's long fetch takes it for no dead one" {
    train 2 "$DIR/long" "${MIRROR[@]}"
    rm -rf "$DIR/long"
    rules "shard-00000 delay 25 1"
    train 2 "$DIR/long" "${MIRROR[@]}" parallel.timeout_s=10
    same_bits "$DIR/long"
}

@test "no run begins anew where it is not known what the mirror has" {
    rules "GET status 403 -"
    run -93 train 1 "$DIR/unknown" "${MIRROR[@]}"
    [[ "$output" == *"checkpoint.mirror: "*"may not be read"* ]]
    rules "list-type text <html> -"
    run -75 train 1 "$DIR/unknown" "${MIRROR[@]}"
    [[ "$output" == *"no whole list"* ]]
    rules ""
    run -64 train 1 "$DIR/unknown" "${FEW[@]}" checkpoint.mirror=http://host/x
    [[ "$output" == *"only s3:// can be written to"* ]]
}
