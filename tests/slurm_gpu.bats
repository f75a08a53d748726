#!/usr/bin/env bats
# GPUs that turn bad while a job trains, on a real Slurm: NVML is a library of tests, and
# each node's kernel log a file.

load run_helpers
load slurm_helpers

# The programs find GPUs where $NODE says how they are; training does not.
fake_gpus() {
    local node program
    install -D "$BIN/../fake/libnvidia-ml.so.1" "$TESSERA_INSTALL/fake/libnvidia-ml.so.1"
    echo 'gpu: { count = 2; }; disable = "triad,gpumem,gpugemm,hbm,pcie,peer,allreduce";' \
        >"$TESSERA_INSTALL/etc/health.cfg"
    for program in bin/tessera-health libexec/tessera/node-health; do
        mv "$TESSERA_INSTALL/$program" "$TESSERA_INSTALL/$program.real"
        cat >"$TESSERA_INSTALL/$program" <<'END'
#!/bin/bash
export LD_LIBRARY_PATH=/opt/tessera/fake NVML_FAKE=@/srv/cluster/nodes/$(uname -n)/gpus
exec "$0.real" "$@"
END
        chmod 755 "$TESSERA_INSTALL/$program"
    done
    for node in n{1..4}; do
        echo count=2 >"$TESSERA_CLUSTER_DIR/nodes/$node/gpus"
        : >"$TESSERA_CLUSTER_DIR/nodes/$node/kmsg"
        "$CLUSTER" exec --root --node "$node" mount --bind "/srv/cluster/nodes/$node/kmsg" /dev/kmsg
    done
}

# xid NODE NUMBER: the driver has just told
xid() {
    echo "4,9,$(awk '{ printf "%.0f", $1 * 1e6 }' /proc/uptime),-;NVRM: Xid (PCI:0000:10:00): $2, it says." \
        >"$TESSERA_CLUSTER_DIR/nodes/$1/kmsg"
}

setup_file() {
    "$CLUSTER" possible || return 0
    cluster_start 4
    fake_gpus
    slow_steps 0.1
}

setup() {
    need_cluster
    home=$TESSERA_CLUSTER_DIR/home
}

# alerts CODE: node and whether it was fatal
alerts() {
    events xid gpu-alert | jq -r "select(.code == \"$1\") | \"\(.node) \(.fatal)\""
}

@test "where only root may read the kernel's log a dead rank is an attempt more of the job, no requeue" {
    chmod 600 "$TESSERA_CLUSTER_DIR"/nodes/n?/kmsg
    settings="TESSERA_ALERTS_S=1" submit hidden --nodes=2 --no-kill --requeue \
        -- "'plugins=[\"slow.so\"]'"
    within 300 trained hidden 20
    mapfile -t first < <(hosts hidden)
    "$CLUSTER" exec --root --node "${first[1]}" kill -KILL "$(rank_on "${first[1]}")"
    completed hidden 300
    [ "$(last hidden attempt)" -eq 2 ]
    [ "$(job_field hidden Restarts)" -eq 0 ]
    ! events hidden requeue
    [ "$(grep -c 'Xids are not seen: .*dmesg_restrict' "$home/hidden.out")" -eq 2 ]
    chmod 644 "$TESSERA_CLUSTER_DIR"/nodes/n?/kmsg
}

@test "a GPU that is slowed, then a fatal Xid on another node: left out, drained, same bits" {
    settings="TESSERA_SPARES=1 TESSERA_ALERTS_S=1" submit xid --nodes=3 --no-kill --requeue \
        -- "'plugins=[\"slow.so\"]'"
    within 300 trained xid 20
    mapfile -t first < <(hosts xid)
    echo throttle=8 >"$TESSERA_CLUSTER_DIR/nodes/${first[0]}/gpus"
    within 120 grep -q GPU_SLOWED "$home/runs/xid/ledger.jsonl"
    # what the driver tells of a program is no fault of the GPU
    xid "${first[1]}" 13
    sleep 3
    [ "$(events xid start | wc -l)" -eq 1 ]
    xid "${first[1]}" 79
    completed xid 300
    [ "$(last xid attempt)" -eq 2 ]
    [ "$(alerts GPU_SLOWED)" = "${first[0]} false" ]
    [ "$(alerts XID)" = "${first[1]} true" ]
    events xid restart | grep "\"code\":75,.*gpu ${first[1]}: XID .*Xid 79"
    [ "$(job_field xid Restarts)" -eq 0 ]
    [ "$(hosts xid | wc -l)" -eq 2 ]
    [[ " $(hosts xid | xargs) " != *" ${first[1]} "* ]]
    within 60 node_state_is "${first[1]}" '*DRAIN*'
    [[ $(node_reason "${first[1]}") == "tessera: XID "* ]]
    [ "$("$CLUSTER" exec sinfo -h -N -p all -t drain,drng -o %N)" = "${first[1]}" ]
    # nobody looks any more
    for node in n{1..4}; do
        ! "$CLUSTER" exec --root --node "$node" pgrep -f 'health.real watch'
    done
}
