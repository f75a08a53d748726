#!/usr/bin/env bats
# The pair check on a network that is slow somewhere: six nodes with a rate of their
# own each, on two leaf switches that are joined to a third. The kernel makes a node,
# what joins two nodes, or a leaf's way up a third as fast as it should be, and that
# one is named. Once of three is enough, as other work is a slow network, too;
# TESSERA_FABRIC_TIMES=10: each ten times, of which all are to be right.
# shellcheck disable=SC2034,SC2154 # variables of slurm_helpers

load run_helpers
load slurm_helpers

RATE=300mbit
THIRD=100mbit
TIMES=${TESSERA_FABRIC_TIMES:-3}

setup_file() {
    "$CLUSTER" possible || return 0
    command -v tc >/dev/null || return 0
    export TESSERA_CLUSTER_LEAVES=2
    cluster_start 6
    # each takes 768 MiB, and the nodes share one machine
    echo 'disable = "triad";' >"$TESSERA_INSTALL/etc/health.cfg"
    kill "$(cat "$DIR/undisturbed.pid")" || : # nothing is compared with that run
    for node in n{1..6}; do
        "$CLUSTER" rate "$node" $RATE
    done
}

setup() {
    need_cluster
    command -v tc >/dev/null || skip "needs tc, of iproute2"
}

# What the check says of each node, "NODE STATE CODE" a line, and the busbw of each
# meeting in $DIR/pairs. Where MPI's start-up has lost a message it is tried again.
check_pairs() {
    local tries
    for tries in 1 2 3 4; do
        timeout 60 "$CLUSTER" exec --user timeout -k 5 40 srun --mpi=pmix \
            --nodes=6 --ntasks-per-node=1 /opt/tessera/bin/tessera-health job \
            --pairs --json >"$DIR/pairs" 2>"$DIR/pairs.log" || :
        grep -q '"verdict"' "$DIR/pairs" && break
    done
    jq -r '.host + " " + .verdict + " " + .code' "$DIR/pairs"
}

# named WANTED WHAT RATE: with that rate there these nodes, and no others, are
# warned of.
named() {
    local i right=0 said
    for ((i = 0; i < TIMES; i++)); do
        [ "$2" = nothing ] || "$CLUSTER" rate "$2" "$3"
        said=$(check_pairs | grep -v ' ok $' | xargs)
        case $2 in
        nothing) ;;
        n?) "$CLUSTER" rate "$2" $RATE ;;
        *) "$CLUSTER" rate "$2" undo ;;
        esac
        [ "$said" != "$1" ] || right=$((right + 1))
        echo "$2 $3: '$said'"
        [ -n "${TESSERA_FABRIC_TIMES:-}" ] || [ "$right" -eq 0 ] || return 0
        jq -r '.pairs[] | [.round, .rank, .peer_rank, .bytes, .busbw, .us] | join(" ")' \
            "$DIR/pairs"
    done
    echo "$2 $3: right in $right of $TIMES" | tee -a "${TESSERA_FABRIC_OUT:-/dev/null}"
    [ "$right" -eq "$TIMES" ]
}

@test "a sound network: nobody is named" {
    named "" nothing ""
}

@test "a slow node is named, and nobody else" {
    named "n2 warn PAIR_SLOW" n2 $THIRD
}

@test "a slow link is named, and neither of its nodes" {
    named "n1 warn LINK n2 warn LINK" n1-n2 $THIRD
}

# Three at once share it, whose rates together are nine times as much: other work beside the
# nodes makes rates within leaves a third lower, and three times were too few then.
@test "a leaf's slow way up is named: of two leaves both" {
    named "$(printf '%s warn LEAF ' n{1..6} | xargs)" s1 $THIRD
}

@test "every meeting tells the sizes that were measured" {
    check_pairs
    jq -se 'length == 6 and all(.[].pairs[]; .sizes[0].bytes == 8 and
        .us == .sizes[0].us and .bytes == .sizes[-1].bytes and
        .busbw == .sizes[-1].busbw and (.sizes | all(.us > 0)) and
        (.round > 1 or .sizes[1].bytes == 1048576) and (.rails | length) == 1)' \
        "$DIR/pairs"
}

# Wanted are four; n2 comes before n5 and n6 in the job's list. Where MPI's start-up
# has lost a message the check says nothing, and another job is tried.
@test "a slow node stands last, and is not trained on while a sound one idles" {
    local name
    "$CLUSTER" rate n2 $THIRD
    for name in slow slow2 slow3; do
        settings=TESSERA_SPARES=2 submit "$name" --nodes=6 \
            -- train.max_duration=20ba
        within 400 ended "$name"
        grep -q 'pair check gave no verdict' "$home/$name.out" || break
    done
    "$CLUSTER" rate n2 $RATE
    cat "$home/$name.out"
    state_is "$name" COMPLETED
    [ "$(jq -r 'select(.event == "node-warning") | .node + " " + .code' \
        "$home/runs/$name/ledger.jsonl")" = "n2 PAIR_SLOW" ]
    [ "$(hosts "$name" | xargs)" = "n1 n3 n4 n5" ]
}
