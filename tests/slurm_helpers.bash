# shellcheck shell=bash disable=SC2034,SC2154 # variables of the bats files
# Shared by the bats files that run jobs on the local Slurm cluster: a cluster
# with Tessera installed, prolog and epilog included, and its user's home with
# data and a configuration of 160 steps, a commit every tenth.

CLUSTER=$BATS_TEST_DIRNAME/cluster
BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}
TEMPLATE=/opt/tessera/share/tessera/pretrain.sbatch
STEPS=160

# cluster_start NODES: installs into $DIR, starts the cluster, makes the data
# and, meanwhile, the run that nothing disturbs: on one rank, without Slurm, and one thread,
# since two beside other work wait for each other. What is to be
# otherwise than here for both is the caller's before_training.
cluster_start() {
    export DIR TESSERA_CLUSTER_DIR TESSERA_CLUSTER_OWNER=${TESSERA_CLUSTER_OWNER:-$$}
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-slurm.XXXXXX")
    chmod 755 "$DIR"
    TESSERA_CLUSTER_DIR=$DIR/cluster
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory \
        -C "$BATS_TEST_DIRNAME/.." install "B=$(dirname "$BIN")" \
        "DESTDIR=$DIR/stage" PREFIX=/opt/tessera >"$DIR/install.log" 2>&1
    export TESSERA_INSTALL=$DIR/stage/opt/tessera
    cat >>"$TESSERA_INSTALL/etc/tessera.conf" <<'END'
TESSERA_ENFORCE=1
TESSERA_SPOOL=/var/spool/tessera
TESSERA_DRAIN_PERCENT=50
TESSERA_AGAIN_S=0
TESSERA_LOG=/srv/cluster/log/tessera
END
    "$CLUSTER" up "$1" >/dev/null
    home=$TESSERA_CLUSTER_DIR/home
    "$BATS_TEST_DIRNAME/english-text" 400000 >"$DIR/text"
    "$BIN/tessera-data" tokenize --seq-len 64 --eval-fraction 0.05 \
        --out "$home/data" "$DIR/text"
    cat >"$home/run.cfg" <<END
run: { dir = "runs/none"; };
model: { preset = "mpt-tiny"; };
data: { train = "data/train"; eval = "data/eval"; seq_len = 64; };
train: { max_duration = "${STEPS}ba"; global_batch = 16; seed = 17; };
optimizer: { lr = 3e-3; };
scheduler: { warmup = "10ba"; };
eval: { interval = "1dur"; samples = 16; };
checkpoint: { interval = "10ba"; keep = 3; };
END
    ! declare -F before_training >/dev/null || before_training
    chown -R 60011:60011 "$home"
    (cd "$home" && exec nice "$BIN/tessera-train" run.cfg hardware.threads=1 \
        "run.dir=$DIR/undisturbed" >"$DIR/undisturbed.log" 2>&1) 3>&- &
    echo $! >"$DIR/undisturbed.pid"
}

# With TESSERA_KEEP=FOLDER the jobs' output and Slurm's logs are copied there.
cluster_stop() {
    local pid
    [ -n "${DIR:-}" ] || return 0
    [ -z "${TESSERA_KEEP:-}" ] ||
        cp -r "$TESSERA_CLUSTER_DIR/home" "$TESSERA_CLUSTER_DIR/log" \
            "$TESSERA_KEEP"
    "$CLUSTER" down
    # Mostly it has finished, and its number may be somebody else's now.
    pid=$(cat "$DIR/undisturbed.pid" 2>/dev/null) &&
        grep -qsF "run.dir=$DIR/" "/proc/$pid/cmdline" &&
        kill -KILL "$pid" && within 60 test ! -e "/proc/$pid"
    rm -rf "$DIR"
}

# of a file that has nothing else to end
teardown_file() {
    cluster_stop
}

# Skips the test, visibly, where the cluster cannot run.
need_cluster() {
    local why
    why=$("$CLUSTER" possible) || skip "no local cluster: $why"
    home=$TESSERA_CLUSTER_DIR/home
}

# within SECONDS COMMAND...: until it succeeds. All deadlines are generous: the
# machine may be busy.
within() {
    local end=$((SECONDS + 3 * $1))
    shift
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $end ]; then
            echo "waited in vain for: $*"
            return 1
        fi
        sleep 0.2
    done
}

user() { # COMMAND...: of the researcher, on the login node
    "$CLUSTER" exec --user bash -lc "module load tessera && $*"
}

# submit NAME SBATCH-OPTIONS... [-- key=value...]: a job that trains runs/NAME.
# On a busy machine messages of MPI's start-up are lost, and it waits for good.
# Settings of the launch script are taken from $settings.
submit() {
    local name=$1 options=() script=${script:-$TEMPLATE}
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    [ $# -eq 0 ] || shift
    user "TESSERA_SPARES=0 TESSERA_START_S=60 ${settings:-} sbatch --parsable --job-name=$name" \
        "--ntasks-per-node=1 --time=20 --output=$name.out ${options[*]}" \
        "$script run.cfg run.dir=runs/$name $*" >"$DIR/$name.job"
}

job_of() { # NAME
    cat "$DIR/$1.job"
}

# As root, so that the user's questions to Slurm are those of his jobs.
job_field() { # NAME FIELD
    "$CLUSTER" exec --root scontrol -o show job "$(job_of "$1")" |
        tr ' ' '\n' | sed -n "s/^$2=//p"
}

state_is() { # NAME STATE...
    local state
    state=$(job_field "$1" JobState)
    [[ " ${*:2} " == *" $state "* ]]
}

ended() { # NAME
    state_is "$1" COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL
}

# last NAME KEY: of the newest line of metrics
last() {
    tail -n 1 "$home/runs/$1/metrics.jsonl" 2>/dev/null |
        sed -n "s/.*\"$2\": \([0-9]*\).*/\1/p"
}

trained() { # NAME STEP: it has come so far
    [ "$(last "$1" step)" -ge "$2" ]
}

attempt_above() { # NAME ATTEMPT: a later one has made a step
    [ "$(last "$1" attempt)" -gt "$2" ]
}

# events NAME EVENT: those lines of the ledger, with the same spacing for all
# writers.
events() {
    sed 's/": /":/g; s/, "/,"/g' "$home/runs/$1/ledger.jsonl" |
        grep "\"event\":\"$2\""
}

# hosts NAME: of the newest attempt, a line each
hosts() {
    events "$1" start | tail -n 1 |
        sed 's/.*"hosts":\[//; s/\].*//; s/[" ]//g' | tr ',' '\n'
}

node_field() { # NODE FIELD
    "$CLUSTER" exec scontrol -o show node "$1" |
        sed -n "s/.* $2=\([^ ]*\).*/\1/p"
}

node_state_is() { # NODE PATTERN
    # shellcheck disable=SC2053 # a pattern
    [[ $(node_field "$1" State) == $2 ]]
}

node_reason() { # NODE
    "$CLUSTER" exec scontrol -o show node "$1" |
        sed -n 's/.* Reason=\(.*\)/\1/p'
}

digest() { # RUN-FOLDER
    "$BIN/tessera-ckpt" digest "$1/checkpoints/$(printf 'step-%09d' $STEPS)"
}

# same_bits NAME: the run is finished, with the bits of the undisturbed one.
same_bits() {
    within 1200 test -d \
        "$DIR/undisturbed/checkpoints/$(printf 'step-%09d' $STEPS)"
    local mine theirs
    mine=$(digest "$home/runs/$1")
    theirs=$(digest "$DIR/undisturbed")
    echo "$1 $mine, undisturbed $theirs"
    [ -n "$mine" ] && [ "$mine" = "$theirs" ]
}

# completed NAME SECONDS: the job ends well, with the bits that it should have.
completed() {
    if ! within "$2" ended "$1" || ! state_is "$1" COMPLETED; then
        "$CLUSTER" status
        echo "$1: $(job_field "$1" JobState)"
        tail -n 30 "$home/$1.out"
        return 1
    fi
    same_bits "$1"
}

# The signal that Slurm sends the batch script before the end of its time.
warn_job() { # NAME
    user scancel --signal=USR1 --batch "$(job_of "$1")"
}

# went_on NAME: its second attempt began at the step after the one at which the
# first was asked to stop.
went_on() {
    local stopped
    stopped=$(events "$1" stop | head -n 1 | sed 's/.*"step":\([0-9]*\).*/\1/')
    grep -A 1 "\"step\": $stopped," "$home/runs/$1/metrics.jsonl" |
        tail -n 1 | grep "\"attempt\": 2, \"step\": $((stopped + 1)),"
}

# rank_on NODE: the training process there, by its number in the node. It has
# another of the same name for a moment, when it asks Slurm something.
rank_on() {
    "$CLUSTER" exec --root --node "$1" pgrep -o -x tessera-train
}

note() {
    echo "# $*" >&3
}

# slow_steps SECONDS: slow.so in the home folder, a plug-in by which each step takes so
# much longer, whatever computes.
slow_steps() {
    cc -std=gnu17 -Wall -Werror -shared -fPIC -DWAIT_S="$1" -I "$TESSERA_INSTALL/include" \
        "$BATS_TEST_DIRNAME/plugin_waits.c" -o "$home/slow.so"
    chown 60011:60011 "$home/slow.so"
    chmod 755 "$home/slow.so"
}
