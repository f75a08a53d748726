#!/usr/bin/env bats
# Slurm's HealthCheckProgram on a real Slurm, called every other second: an idle node that
# turns bad is drained for its reason, and what an administrator has said of one stays.

load slurm_helpers

setup() {
    need_cluster
    export DIR TESSERA_CLUSTER_DIR TESSERA_INSTALL TESSERA_CLUSTER_OWNER=$$
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/tessera-quick.XXXXXX")
    chmod 755 "$DIR"
    TESSERA_CLUSTER_DIR=$DIR/cluster TESSERA_INSTALL=$DIR/stage/opt/tessera
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory \
        -C "$BATS_TEST_DIRNAME/.." install-node "B=$(dirname "$BIN")" \
        "DESTDIR=$DIR/stage" PREFIX=/opt/tessera >/dev/null
    printf 'TESSERA_%s\n' ENFORCE=1 DRAIN_PERCENT=70 AGAIN_S=0 \
        LOG=/srv/cluster/log/tessera >>"$TESSERA_INSTALL/etc/tessera.conf"
    TESSERA_CLUSTER_CONF='HealthCheckProgram=/opt/tessera/libexec/tessera/quick
HealthCheckInterval=2
HealthCheckNodeState=IDLE,CYCLE' "$CLUSTER" up 3 >/dev/null
    log=$TESSERA_CLUSTER_DIR/log/tessera
}

teardown() {
    [ -n "${DIR:-}" ] || return 0
    cat "$log" || true
    "$CLUSTER" down
    rm -rf "$DIR"
}

@test "an idle node that turns bad is drained, an administrator's is left alone" {
    "$CLUSTER" exec --root scontrol update nodename=n2 state=drain reason="fan is loud"
    "$CLUSTER" full n1
    "$CLUSTER" full n2
    within 120 node_state_is n1 'IDLE+DRAIN*'
    [[ $(node_reason n1) == "tessera: SHM_FULL shm "* ]]
    within 120 grep 'quick n2 .*is drained already (fan is loud.*), left so: tessera: SHM_FULL' "$log"
    [[ $(node_reason n2) == "fan is loud "* ]]
    [[ $(node_field n3 State) =~ ^IDLE(\+RESERVED)?$ ]]
    # who mends the node and resumes it is not overruled
    "$CLUSTER" full n1 undo
    "$CLUSTER" exec --root scontrol update nodename=n1 state=resume
    : >"$log"
    "$CLUSTER" full n2 undo # its looks go on
    "$CLUSTER" full n3
    within 120 node_state_is n3 'IDLE+DRAIN*'
    [[ $(node_field n1 State) =~ ^IDLE(\+RESERVED)?$ ]]
    [[ $(node_reason n2) == "fan is loud "* ]]
}
