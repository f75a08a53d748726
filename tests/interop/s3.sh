#!/bin/bash
# Data sets at s3:// addresses, put there by boto3, from a server that checks
# signatures: moto's, from the Python package index, into a virtual environment
# under TESSERA_INTEROP_DIR (default build/peers), where it stays; without it
# the test is skipped.
# shellcheck disable=SC2317 # functions that check calls
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"

# fails CODE TEXT COMMAND...: with this exit code and text, and no secret
fails() {
    local code=$1 text=$2
    shift 2
    "$@" >"$WORK/out" 2>&1
    [ $? -eq "$code" ] && grep -qF -- "$text" "$WORK/out" &&
        ! grep -qF -- "$SECRET" "$WORK/out" && return
    cat "$WORK/out"
    return 1
}

verify() {
    "$BIN/tessera-data" verify "$@"
}

train() { # RUN DATA [key=value ...]
    "$BIN/tessera-train" "$HERE/../../jobs/conf/tiny.cfg" "run.dir=$WORK/$1" \
        "data.train=$2" data.eval= eval.samples=0 data.seq_len=64 train.global_batch=8 \
        train.max_duration=8ba checkpoint.interval=4ba scheduler.warmup=3ba \
        log.level=warn "${@:3}" &&
        "$BIN/tessera-ckpt" digest "$WORK/$1/checkpoints/step-000000008" >"$WORK/$1.digest"
}

trains_alike() { # RUN
    train "$1" s3://sets/c4 && cmp "$WORK/local.digest" "$WORK/$1.digest" &&
        ! grep -rqF -- "$SECRET" "$WORK/$1"
}

# mirrored RUN DIGEST [key=value ...]: a run whose directory is gone comes back
mirrored() {
    train "$1" "$WORK/set" "checkpoint.mirror=s3://odd.bucket/a b&<c>/é~/$1" "${@:3}" &&
        cp "$WORK/$1.digest" "$WORK/$1.first" && rm -rf "${WORK:?}/$1" &&
        train "$1" "$WORK/set" "checkpoint.mirror=s3://odd.bucket/a b&<c>/é~/$1" "${@:3}" &&
        cmp "$WORK/$1.first" "$WORK/$1.digest" && { [ -z "$2" ] || cmp "$2" "$WORK/$1.digest"; } &&
        ! grep -rqF -- "$SECRET" "$WORK/$1"
}

# Doors other than data and mirror: read what was mirrored, write a model and a set.
MIRRORED="s3://odd.bucket/a b&<c>/é~/mirrored"
digested() {
    "$BIN/tessera-ckpt" digest "$MIRRORED" | cmp - "$WORK/local.digest" &&
        "$BIN/tessera-ckpt" ls "$MIRRORED" && "$BIN/tessera-ckpt" verify "$MIRRORED#8"
}
begun() {
    train begun "$WORK/set" "checkpoint.load=$MIRRORED" train.max_duration=10ba 2>/dev/null
    [ -f "$WORK/begun/checkpoints/step-000000010/MANIFEST.json" ] &&
        grep -q '"load".*s3://' "$WORK/begun/ledger.jsonl" && ! grep -rqF -- "$SECRET" "$WORK/begun"
}
exported() {
    "$BIN/tessera-hf" export "$MIRRORED" --out s3://sets/hub/model &&
        "$BIN/tessera-hf" verify s3://sets/hub/model "$MIRRORED"
}
tokenized() {
    "$BIN/tessera-data" tokenize --seq-len 64 --out s3://sets/made s3://sets/hub/model/README.md &&
        verify s3://sets/made
}

venv_make s3 'moto[server]==5.2.5' boto3 || skip "$VENV_MISSING"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-s3.XXXXXX")
SERVER=
finish() {
    [ -z "$SERVER" ] || kill "$SERVER" 2>/dev/null
    rm -rf "$WORK"
}
trap finish EXIT
export TMPDIR=$WORK/tmp HOME=$WORK
mkdir "$TMPDIR"
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION

"$HERE/../english-text" 300000 >"$WORK/text"
"$BIN/tessera-data" tokenize --seq-len 64 --out "$WORK/set" "$WORK/text" 2>"$WORK/log" &&
    cp -r "$WORK/set" "$WORK/odd" || exit 1
"$VENV/bin/python" "$HERE/s3.py" "$WORK/set" "$WORK/odd" "$WORK" >"$WORK/server.log" 2>&1 &
SERVER=$!
for _ in $(seq 600); do
    [ -s "$WORK/port" ] && break
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.1
done
[ -s "$WORK/port" ] || skip "moto's server does not start: $(tail -n 1 "$WORK/server.log")"

AWS_ENDPOINT_URL_S3=http://127.0.0.1:$(cat "$WORK/port")
AWS_ACCESS_KEY_ID=$(cat "$WORK/id")
SECRET=$(cat "$WORK/secret")
AWS_SECRET_ACCESS_KEY=$SECRET
export AWS_ENDPOINT_URL_S3 AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY

check "a data set that boto3 has put there" verify s3://sets/c4
check "a bucket and a key with odd characters" verify "s3://odd.bucket/a b+c=(1)/é~"
check "a run from a folder" train local "$WORK/set"
check "a run from s3 comes to the same bits" trains_alike s3
touch "$WORK/busy"
check "and so it does from a server that is busy" trains_alike limited
rm "$WORK/busy"
check "a run comes back from its mirror" mirrored mirrored "$WORK/local.digest" \
    checkpoint.mirror_keep=1
check "a mirror is listed, verified and has the digest of its run" digested
check "another run begins from it" begun
check "a model goes to a store and comes back" exported
check "so does a text, as a data set" tokenized
check "and one whose files go in parts" mirrored parts "" model.d_model=384
check "a mirror that a run may not use" fails 0 "checkpoint.mirror: step 9 is not there" \
    env AWS_SECRET_ACCESS_KEY=wrong "$BIN/tessera-train" "$HERE/../../jobs/conf/tiny.cfg" \
    "run.dir=$WORK/local" "data.train=$WORK/set" data.eval= eval.samples=0 data.seq_len=64 \
    train.global_batch=8 train.max_duration=9ba checkpoint.interval=4ba scheduler.warmup=3ba \
    checkpoint.mirror=s3://sets/denied
check "an object that is missing" fails 93 "s3://sets/no/index.json: no such file: status 404, NoSuchKey" \
    verify s3://sets/no
check "a bucket that is missing" fails 93 "NoSuchBucket" verify s3://none/c4
check "a wrong secret key" fails 93 "with the credentials of AWS_ACCESS_KEY_ID" \
    env AWS_SECRET_ACCESS_KEY=wrong "$BIN/tessera-data" verify s3://sets/c4
check "and what the server calls it" grep -q "SignatureDoesNotMatch" "$WORK/out"
check "no credentials" fails 93 "without credentials: set AWS_ACCESS_KEY_ID" \
    env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY "$BIN/tessera-data" verify s3://sets/c4
mkdir "$WORK/.aws"
printf '[lab]\naws_access_key_id = %s\naws_secret_access_key=%s\n' \
    "$AWS_ACCESS_KEY_ID" "$SECRET" >"$WORK/.aws/credentials"
check "credentials of a profile" \
    env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_PROFILE=lab "$BIN/tessera-data" verify s3://sets/c4
check "a profile that is missing" fails 64 "AWS_PROFILE is 'other'" \
    env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_PROFILE=other "$BIN/tessera-data" verify s3://sets/c4
check "no cache is left" test -z "$(ls "$TMPDIR")"

finish_points
