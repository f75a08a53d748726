# shellcheck shell=bash disable=SC2034 # variables of the scripts beside it
# What the demonstrations share: a Slurm cluster on this machine with Tessera
# installed on it, jobs, and what a run has written. They set RUN, the run
# directory, JOB, and KEEP_LOG, whose end is shown when they fail; and have a
# function `verdict PASS|FAIL`, their last line.

BIN=${TESSERA_BIN:-$PWD/build/bin}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-demo.XXXXXX")
BEGIN=$SECONDS

cleanup() {
    local code=$?
    trap - EXIT INT TERM
    [ -z "${TESSERA_CLUSTER_DIR:-}" ] || tests/cluster down || true
    if [ $code -ne 0 ] && [ -n "${KEEP_LOG:-}" ] && [ -e "$KEEP_LOG" ]; then
        echo "--- the end of the job's output:"
        tail -n 40 "$KEEP_LOG"
    fi
    [ -n "${TESSERA_DEMO_KEEP:-}" ] || rm -rf "$WORK"
    [ $code -eq 0 ] || verdict FAIL
    exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() {
    printf '%4ds  %s\n' $((SECONDS - BEGIN)) "$*"
}

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# field FILE NAME: that field's value in every line of a JSON-lines file
field() {
    sed -nE 's/.*"'"$2"'": ?("([^"]*)"|([-0-9.e+]+)).*/\2\3/p' "$1"
}

# Can there be a cluster here? Otherwise the reason is in WHY_NOT.
cluster_possible() {
    WHY_NOT="not root"
    [ "$(id -u)" -eq 0 ] || return 1
    WHY_NOT="no Slurm or no namespaces here"
    command -v slurmctld >/dev/null && unshare --net --mount --pid --fork true 2>/dev/null
}

start_cluster() { # NODES
    say "installing, starting a Slurm cluster of $1 nodes"
    make --no-print-directory install "DESTDIR=$WORK/stage" PREFIX=/opt/tessera >/dev/null
    cat >>"$WORK/stage/opt/tessera/etc/tessera.conf" <<END
TESSERA_ENFORCE=1
TESSERA_SPOOL=/var/spool/tessera
END
    chmod 755 "$WORK"
    export TESSERA_INSTALL=$WORK/stage/opt/tessera TESSERA_CLUSTER_OWNER=$$
    eval "$(tests/cluster up "$1")"
}

# the last training node; the batch script runs on the first
last_node() {
    grep '"event": *"start"' "$RUN/ledger.jsonl" | tail -n 1 |
        sed -E 's/.*"hosts": *\[([^]]*)\].*/\1/; s/[" ]//g; s/.*,//'
}

on() { # as the researcher
    tests/cluster exec --user bash -lc "$*"
}

job_state() {
    tests/cluster exec scontrol show job "$1" 2>/dev/null |
        sed -nE 's/.*JobState=([A-Z_]+).*/\1/p'
}

# wait_until SECONDS WHAT COMMAND...
wait_until() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "waited in vain for $what"
        sleep 0.2
    done
}

trained() { # STEPS
    [ "$(field "$RUN/metrics.jsonl" step 2>/dev/null | tail -n 1)" -ge "$1" ] 2>/dev/null
}

attempt_above() { # N: a step of a later attempt has been logged
    [ "$(field "$RUN/metrics.jsonl" attempt | tail -n 1)" -gt "$1" ]
}

ended() {
    case $(job_state "$JOB") in
    COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;;
    esac
    return 1
}

attempts_table() {
    echo
    echo "attempt  step  hosts                 code  reason"
    awk '
        function get(name,    r) {
            if (match($0, "\"" name "\": *\"[^\"]*\"")) {
                r = substr($0, RSTART, RLENGTH); sub(/^"[^"]*": *"/, "", r); sub(/"$/, "", r); return r }
            if (match($0, "\"" name "\": *\\[[^]]*\\]")) {
                r = substr($0, RSTART, RLENGTH); sub(/^"[^"]*": *\[/, "", r); gsub(/[]"]/, "", r); return r }
            if (match($0, "\"" name "\": *[-0-9]+")) {
                r = substr($0, RSTART, RLENGTH); sub(/^"[^"]*": */, "", r); return r }
            return "" }
        get("event") == "start" { n = get("attempt"); last = n; hosts[n] = get("hosts"); code[n] = "-"; why[n] = "killed with its node" }
        get("event") == "commit" { step[get("attempt")] = get("step") }
        get("event") == "stop" && get("attempt") in hosts && get("code") != "" { n = get("attempt"); code[n] = get("code"); why[n] = get("reason") }
        END { for (i = 1; i <= last; i++) printf "%7d  %4s  %-20s  %4s  %s\n", i, step[i], hosts[i], code[i], why[i] }
    ' "$1"
}
