#!/bin/bash
# What a stranger's input does to the programs: every case of tests/inputs/*.table
# is a point. prove tests/inputs.t, or tests/inputs.t WORD for the cases whose name
# contains it. A table is a list of cases:
#
#   == NAME
#   code N [M...]     the exit status that the script may end with; 0 if not given
#   says REGEX        must be in what it prints (stdout and stderr together)
#   hides REGEX       must not be there
#   seconds N         how long it may take; 10 if not given
#   $                 the script of bash from here to the next case, run with -u
#
# A script runs with the programs on PATH, $BIN their folder and $HERE this one, in
# a fresh folder that holds copies of its own of
#   data/train, data/eval   a data set of 64-byte samples, some 20 KB
#   run                     a finished run of 6 steps, checkpoints 2, 4 and 6
#   run.cfg                 the configuration that made it (run.dir = "run")
# It tells of what it finds with `fail TEXT`, and of what this machine lacks with
# `skip TEXT`; both end the case.
set -u
export LC_ALL=C OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
here=$(cd "$(dirname "$0")" && pwd)
BIN=${TESSERA_BIN:-$here/../build/bin}
if [ ! -x "$BIN/tessera-train" ]; then
    echo "1..0 # SKIP $BIN/tessera-train was not built"
    exit 0
fi
BIN=$(cd "$BIN" && pwd)
export BIN HERE=$here PATH=$BIN:$PATH
only=${1:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/tessera-inputs.XXXXXX")
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT

make_fixture()
{
    mkdir "$work/fixture" && cd "$work/fixture" || return
    "$here/english-text" 60000 >text
    tessera-data tokenize --seq-len 64 --eval-fraction 0.1 --out data text &&
        rm text
    cat >run.cfg <<'END'
run: { dir = "run"; };
model: { preset = "mpt-tiny"; n_layers = 1; };
data: { train = "data/train"; eval = "data/eval"; seq_len = 64; };
train: { max_duration = "6ba"; global_batch = 4; seed = 17; };
optimizer: { lr = 2e-3; };
scheduler: { warmup = "2ba"; };
eval: { interval = "6ba"; samples = 4; };
checkpoint: { interval = "2ba"; };
log: { level = "warn"; };
END
    tessera-train run.cfg
}

# the functions that every script has
cat >"$work/prelude" <<'END'
fail() { echo "FAILED: $*"; exit 99; }
skip() { echo "SKIPPED: $*"; exit 98; }
same() { cmp -s "$1" "$2" || fail "$1 differs from $2"; }
END

# finish: judges the case that is in name, codes, says, hides, seconds, script
finish()
{
    local folder status output pattern why=() begin
    [ -n "$name" ] || return
    [[ $name == *"$only"* ]] || return
    count=$((count + 1))
    folder=$work/$count
    cp -a "$work/fixture" "$folder"
    { cat "$work/prelude"; printf '%s\n' "$script"; } >"$work/script"
    begin=$EPOCHREALTIME
    # A group of its own, so that what outlives the script is ended with it; and a
    # hang-up counts, whoever started the tests.
    (cd "$folder" && exec env --default-signal=HUP timeout --kill-after=2 "$seconds" bash -u \
        "$work/script") >"$work/output" 2>&1 </dev/null &
    wait $!
    status=$?
    kill -KILL -- -$! 2>/dev/null
    output=$(head -c 1000000 "$work/output" | tr -d '\0')
    if [ "$status" -eq 98 ]; then
        echo "ok $count - $name # SKIP $(sed -n 's/^SKIPPED: //p' <<<"$output")"
        return
    fi
    [[ " $codes " == *" $status "* ]] || why+=("status $status, not $codes")
    for pattern in ${says[@]+"${says[@]}"}; do
        grep -qE -- "$pattern" <<<"$output" || why+=("does not say: $pattern")
    done
    for pattern in ${hides[@]+"${hides[@]}"}; do
        grep -qE -- "$pattern" <<<"$output" && why+=("says: $pattern")
    done
    if [ ${#why[@]} -eq 0 ]; then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name"
        printf '# %s\n' "${why[@]}"
        { head -c 2000 <<<"$output"; echo; } | sed 's/^/# | /'
        failed=1
    fi
    chmod -R u+rwX "$folder"
    rm -rf "$folder"
    spent=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
    [ "${spent%.*}" -lt 5 ] || echo "# $name: $spent s"
}

next()
{
    name=$1 codes=0 says=() hides=() seconds=10 script='' in_script=no
}

set -m
count=0 failed=0
make_fixture >"$work/log" 2>&1 || {
    echo "1..1"
    echo "not ok 1 - a run of six steps for the cases"
    sed 's/^/# /' "$work/log"
    exit 1
}
for table in "$here"/inputs/*.table; do
    next ''
    while IFS= read -r line; do
        case $in_script:$line in
        *:'== '*)
            finish
            next "${table##*/}: ${line#== }"
            ;;
        yes:*) script+=$line$'\n' ;;
        no:'code '*) codes=${line#code } ;;
        no:'says '*) says+=("${line#says }") ;;
        no:'hides '*) hides+=("${line#hides }") ;;
        no:'seconds '*) seconds=${line#seconds } ;;
        no:'$') in_script=yes ;;
        no:'' | no:'#'*) ;;
        *)
            echo "Bail out! $table: not a line of a case: $line"
            exit 1
            ;;
        esac
    done <"$table"
    finish
done
echo "1..$count"
exit "$failed"
