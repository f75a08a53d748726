#!/usr/bin/env bats
# Memory shared by the ranks of a node, messages between nodes, and where memory
# can't be shared: the bits are the same.

load run_helpers

setup() {
    PROGRAM=$BIN/../tests/test_reduce_n1234
    DIR=$BATS_TEST_TMPDIR
    unshare --uts --mount true || skip "nodes can't be made up here"
}

# reduces RANKS: all points pass; the log is in $DIR/log
reduces() {
    timeout -k 5 600 "$MPIRUN" "$1" "$PROGRAM" >"$DIR/tap" 2>"$DIR/log"
    grep -q '^ok' "$DIR/tap"
    [ "$(grep -cE '^not ok|SKIP' "$DIR/tap")" = 0 ]
}

# nodes NUMBER: $DIR/on-node starts a rank on the node of this number, an expression
nodes() {
    printf '%s\n' '#!/bin/sh' "exec unshare --uts sh -c 'hostname node\$(($1))
        exec \"\$@\"' sh \"\$@\"" >"$DIR/on-node"
    chmod +x "$DIR/on-node"
}

@test "sums and weights on two nodes, of several ranks and of one" {
    for ranks in 2 3 4; do
        TESSERA_TEST_NODE_RANKS=2 reduces $ranks
    done
    TESSERA_TEST_NODE_RANKS=1 reduces 3
    TESSERA_TEST_NODE_RANKS=3 reduces 4
    [ "$(grep -c "not memory" "$DIR/log")" = 0 ]
}

@test "one rank can't open the others' memory: messages, said once" {
    for hidden in 0 2; do
        TESSERA_TEST_HIDE_PROC=$hidden reduces 3
        [ "$(grep -c "use messages, not memory: .*/proc/" "$DIR/log")" = 1 ]
    done
    # on one of two nodes: the other still shares
    TESSERA_TEST_NODE_RANKS=2 TESSERA_TEST_HIDE_PROC=3 reduces 4
    [ "$(grep -c "use messages, not memory: rank 3 .*/proc/" "$DIR/log")" = 1 ]
}

# between DIR KEY=VALUE [key=value ...]: bytes between nodes, by tests/count_messages.c with KEY
between() {
    command_of 4 "$1" log.level=info "${@:3}"
    env "$2" COUNT_FILE="$1.count" LD_PRELOAD="$DIR/count.so" "${command[@]}" 2>"$1.log" || return
    awk '{ bytes += $4 } END { printf "%.0f\n", bytes }' "$1.count".?
}

@test "nodes in order or dealt ranks in turn: the same bits and the same bytes between them" {
    make_data
    mpicc -Wall -Werror -shared -fPIC -o "$DIR/count.so" "$BATS_TEST_DIRNAME/count_messages.c"
    train 1 "$DIR/one"
    for strategy in ddp/0 zero1/0 zero2/0 zero3/2 zero3/4; do
        degree=${strategy#*/} strategy=${strategy%/*}
        set -- "parallel.strategy=$strategy" "parallel.shard_degree=$degree"
        bytes=$(between "$DIR/$strategy$degree" COUNT_NODE=2 "$@")
        [ "$bytes" -gt 1000000 ]
        [ "$(between "$DIR/turn$strategy$degree" COUNT_NODES=2 "$@")" = "$bytes" ]
        grep "dealt ranks over the nodes in turn" "$DIR/turn$strategy$degree.log"
        for run in "$DIR"/{,turn}$strategy$degree; do
            grep '"node_ranks": \[2, 2\]' "$run/ledger.jsonl"
            [ "$(digest "$run")" = "$(digest "$DIR/one")" ]
        done
    done
}

@test "neighbours that share weights on two nodes for no need are told" {
    make_data
    nodes '(OMPI_COMM_WORLD_RANK + NODES) / 4'
    local command
    for NODES in 3 2; do
        export NODES
        command_of 4 "$DIR/nodes$NODES"
        "$MPIRUN" 4 "$DIR/on-node" "${command[@]:2}" parallel.strategy=zero3 \
            parallel.shard_degree=2 2>"$DIR/log$NODES"
    done
    grep "shard_degree (2): ranks 0 to 1 are on more nodes .* from node0 to node1" \
        "$DIR/log3"
    [ "$(grep -c "more nodes" "$DIR/log2")" = 0 ]
    grep '"node0", "node1"\], "node_ranks": \[1, 3\]' "$DIR"/nodes3/ledger*
    [ "$(digest "$DIR/nodes3")" = "$(digest "$DIR/nodes2")" ]
}

@test "weights are shared within uneven nodes by what divides them" {
    make_data
    nodes 'OMPI_COMM_WORLD_RANK / 4'
    local command
    command_of 6 "$DIR/uneven"
    "$MPIRUN" 6 "$DIR/on-node" "${command[@]:2}" parallel.strategy=zero3 \
        parallel.slots=6 train.global_batch=12 2>"$DIR/log"
    grep '"node_ranks": \[4, 2\]' "$DIR"/uneven/ledger*
    grep -E 'shard_degree *[=:] *2;' "$DIR/uneven/config.cfg"
    # as it is planned for 4 and 2
    "$BIN/tessera-plan" "${command[@]:3}" parallel.strategy=zero3 parallel.slots=6 \
        train.global_batch=12 --ranks 6 --node-ranks 4 --json >"$DIR/plan.json"
    [ "$(jq .shard_degree "$DIR/plan.json")" -eq 2 ]
    grep "\"memory_planned\": $(jq .bytes_per_rank.total "$DIR/plan.json")," "$DIR"/uneven/ledger*
}
