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

@test "training ends with the same bits on one rank, one node, two nodes" {
    make_data
    train 1 "$DIR/one"
    train 4 "$DIR/node"
    [ "$(digest "$DIR/node")" = "$(digest "$DIR/one")" ]
    nodes 'OMPI_COMM_WORLD_RANK / 2'
    local command ranks strategy
    for ranks in 3 4; do
        for strategy in ddp zero1; do
            command_of "$ranks" "$DIR/$strategy$ranks"
            "$MPIRUN" "$ranks" "$DIR/on-node" "${command[@]:2}" parallel.strategy=$strategy
            [ "$(digest "$DIR/$strategy$ranks")" = "$(digest "$DIR/one")" ]
        done
    done
    # each on a node of its own
    nodes OMPI_COMM_WORLD_RANK
    command_of 2 "$DIR/apart"
    "$MPIRUN" 2 "$DIR/on-node" "${command[@]:2}" parallel.strategy=zero1
    [ "$(digest "$DIR/apart")" = "$(digest "$DIR/one")" ]
}

@test "shard groups exchange once a step, and go on with more and fewer nodes: the same bits" {
    make_data
    local command
    local batch=(train.global_batch=32 parallel.slots=8 train.microbatch=1 scheduler.t_max=24ba)
    local groups=(parallel.strategy=zero3 parallel.shard_degree=2)
    train 1 "$DIR/one" "${batch[@]}"
    nodes 'OMPI_COMM_WORLD_RANK / 2'
    local steps=0
    for ranks in 4 8 6 4; do # 6: thirds are no subtrees
        command_of $ranks "$DIR/groups" "${batch[@]}" "${groups[@]}" \
            train.max_duration=$((steps += 6))ba
        "$MPIRUN" $ranks "$DIR/on-node" "${command[@]:2}"
    done
    [ "$(digest "$DIR/groups")" = "$(digest "$DIR/one")" ]
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
