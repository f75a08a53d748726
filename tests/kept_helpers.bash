# shellcheck shell=bash disable=SC2034,SC2154 # variables of who sources it
# Runs with checkpoint.keep_state on nodes of this machine: each rank is a node with a
# name and a folder of memory of its own, mounted over $DIR/node. After run_helpers.

# kept_nodes: $NODES/nodeR is the memory of node R; $DIR is there
kept_nodes() {
    unshare --uts --mount true || return 1
    export NODES
    NODES=$(mktemp -d /dev/shm/tessera-kept.XXXXXX)
    mkdir "$DIR/node"
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/sh' 'r=$OMPI_COMM_WORLD_RANK' \
        'mkdir -p "$NODES/node$r"' "export HERE=$DIR/node" \
        'exec unshare --uts --mount sh -c '\''hostname "node$0" &&
            mount --bind "$NODES/node$0" "$HERE" && echo $$ >"$NODES/pid$0" &&
            exec "$@"'\'' "$r" "$@"' >"$DIR/on-node"
    chmod +x "$DIR/on-node"
}

# kept RANKS DIR [key=value ...]: in the background; its process is $pid
kept() {
    local command ranks=$1 dir=$2
    rm -f "$NODES"/pid*
    command_of "$ranks" "$dir" "checkpoint.local_dir=$DIR/node/kept.%j" \
        checkpoint.keep_state=true checkpoint.interval=5ba log.level=info "${@:3}"
    "$MPIRUN" "$ranks" "$DIR/on-node" "${command[@]:2}" >"$dir.log" 2>&1 3>&- &
    pid=$!
}

# logged DIR: the last step that has ended there, 0 without one
logged() {
    tail -n 1 "$1/metrics.jsonl" 2>/dev/null |
        sed -nE 's/.*"step": ([0-9]+),.*/\1/p' | grep . || echo 0
}

# came_from DIR: the step that the last attempt went on from; 0: it began the run
came_from() {
    sed -nE 's/.*step ([0-9]+) came from .*/\1/p' "$1.log" | grep . || echo 0
}

# kept_steps NODE: those that lie whole in its folder, the newest last
kept_steps() {
    find "$NODES/node$1" -name 'step-*' -printf '%f\n' 2>/dev/null |
        sed -E 's/step-0*//' | sort -n
}
