#!/usr/bin/env bats
# What prolog and epilog do as root on a real Slurm: drain what is bad, believe
# no user, touch nothing of the administrator's, and let jobs start when in
# doubt. Nodes are bad because their /dev/shm is full. Where no job is needed,
# prolog and epilog are called as slurmd does it.

load slurm_helpers
load admin_helpers

setup_file() {
    "$CLUSTER" possible || return 0
    cluster_start 6
    cp "$TESSERA_INSTALL/etc/tessera.conf" "$DIR/tessera.conf"
    cp "$TESSERA_INSTALL/libexec/tessera/node-health" \
        "$TESSERA_INSTALL/libexec/tessera/node-health.real"
}

setup() {
    need_cluster
    log=$TESSERA_CLUSTER_DIR/log/tessera
    : >"$log"
}

teardown() {
    [ -n "${home:-}" ] || return 0
    cat "$log"
    cp "$DIR/tessera.conf" "$TESSERA_INSTALL/etc/tessera.conf"
    install_check "$TESSERA_INSTALL/libexec/tessera/node-health.real"
    forget_drains
    for node in n{1..6}; do
        "$CLUSTER" full "$node" undo
        is_idle "$node" ||
            "$CLUSTER" exec --root scontrol update nodename="$node" state=resume
        within 60 is_idle "$node"
    done
}

# Locks and refusals are reservations, which nodes show for their minute; Slurm
# 20.11 shows nothing else then.
is_idle() { # NODE
    [[ $(node_field "$1" State) =~ ^(IDLE|IDLE\+RESERVED|RESERVED)$ ]]
}

install_check() { # FILE
    check_stands_in "$TESSERA_INSTALL/libexec/tessera" "$1"
}

# What decisions have left in slurmctld, so that each test has its own.
forget_drains() {
    "$CLUSTER" exec scontrol -o show reservation |
        sed -n 's/^ReservationName=\(tessera-[^ ]*\) .*/\1/p' |
        while read -r name; do
            "$CLUSTER" exec --root scontrol delete "reservationname=$name" \
                </dev/null || true # a minute's may just have gone
        done
}

configure() { # LINE
    echo "$1" >>"$TESSERA_INSTALL/etc/tessera.conf"
}

as_slurmd() { # prolog|epilog NODE
    "$CLUSTER" exec --root --node "$2" env -i SLURMD_NODENAME="$2" \
        SLURM_JOB_ID=4711 SLURM_JOB_UID=60011 SLURM_JOB_GID=60011 \
        "/opt/tessera/libexec/tessera/$1"
}

drained() { # NODE
    node_state_is "$1" 'IDLE+DRAIN*' &&
        [[ $(node_reason "$1") == "tessera: SHM_FULL shm "* ]] &&
        [ "$(node_reason "$1" | grep -o tessera: | wc -l)" -eq 1 ]
}

@test "prolog and epilog drain a bad node, once, with one reason" {
    run as_slurmd prolog n1
    [ "$status" -eq 0 ]
    run as_slurmd epilog n1
    [ "$status" -eq 0 ]
    is_idle n1
    "$CLUSTER" full n1
    run as_slurmd prolog n1
    [ "$status" -eq 1 ]
    drained n1
    reason=$(node_reason n1)
    run as_slurmd prolog n1
    [ "$status" -eq 1 ]
    run as_slurmd epilog n1
    [ "$status" -eq 0 ]
    [ "$(node_reason n1)" = "$reason" ]
    "$CLUSTER" full n2
    run as_slurmd epilog n2
    [ "$status" -eq 0 ]
    drained n2
}

# Jobs that leave a verdict on a node that is well, in all the ways that should
# not be believed, or would have the epilog do something as root.
# shellcheck disable=SC2016 # expanded in the job
forgeries=(
    'plain:echo "$V" >$F'
    'symlink:ln -s /etc/shadow $F'
    'other:true'
    'pipe:mkfifo $F'
    'large:{ head -c 70000 /dev/zero | tr "\0" x; echo "$V"; } >$F'
    'elsewhere:echo "${V/$SLURMD_NODENAME/n9}" >$F'
)

forge() { # NAME COMMAND NODE
    cat >"$home/$1.forge" <<END
#!/bin/bash
F=/var/spool/tessera/verdict.\$SLURM_JOB_ID.\$SLURMD_NODENAME
V='{"schema":"tessera-health/1","host":"'\$SLURMD_NODENAME'","verdict":"bad",'
V+='"code":"SHM_FULL","reason":"tessera: SHM_FULL shm 0MiB/64"}'
$2
touch $1.forged
until [ -e go ]; do sleep 0.1; done
END
    user sbatch --parsable --exclusive --nodelist="$3" --output="$1.out" \
        "$1.forge" >"$DIR/$1.job"
}

no_forgery_runs() {
    [ -z "$("$CLUSTER" exec squeue -h)" ]
}

@test "the epilog does not believe a forged verdict" {
    rm -f "$home/go"
    i=0
    for forgery in "${forgeries[@]}"; do
        i=$((i + 1))
        forge "${forgery%%:*}" "${forgery#*:}" n$i
    done
    for forgery in "${forgeries[@]}"; do
        within 180 test -e "$home/${forgery%%:*}.forged"
    done
    # Somebody else leaves one for a job that is not theirs.
    file=$TESSERA_CLUSTER_DIR/spool/verdict.$(job_of other).n3
    echo '{"host":"n3","verdict":"bad","code":"OTHER"}' >"$file"
    chown 60012:60012 "$file"
    touch "$home/go"
    within 180 no_forgery_runs
    for node in n{1..6}; do
        is_idle "$node"
        [ -z "$(node_reason "$node")" ]
    done
    grep "n1 job $(job_of plain): .*SHM_FULL is not confirmed" "$log"
    for name in symlink other pipe large; do
        grep "job $(job_of $name): .* not a small file of user 60011" "$log"
    done
    grep "job $(job_of elsewhere): .* no verdict on this node" "$log"
    rm -f "$TESSERA_CLUSTER_DIR"/spool/verdict.*
}

@test "only an administrator who trusts the users lets them drain" {
    configure TESSERA_TRUST_USERS=1
    touch "$home/go"
    forge plain "${forgeries[0]#*:}" n1
    within 180 drained_by_user n1
}

drained_by_user() {
    node_state_is "$1" 'IDLE+DRAIN*' && [ "$(node_reason "$1" |
        sed 's/ \[.*//')" = "tessera: SHM_FULL said job=$(job_of plain), not confirmed" ]
}

@test "an administrator's own drain keeps its reason" {
    rm -f "$home/own.go"
    user sbatch --parsable --nodelist=n1 --output=own.out \
        --wrap "'until [ -e own.go ]; do sleep 0.1; done'" >"$DIR/own.job"
    within 180 state_is own RUNNING
    "$CLUSTER" exec --root scontrol update nodename=n1 state=drain \
        reason="fan is loud"
    "$CLUSTER" full n1
    touch "$home/own.go"
    within 180 node_state_is n1 'IDLE+DRAIN*'
    [[ $(node_reason n1) == "fan is loud "* ]]
    within 60 grep 'is drain.* already (fan is loud.*), left so: tessera: SHM_FULL' \
        "$log"
}

@test "the breaker: too many bad nodes at once are not the nodes' fault" {
    configure TESSERA_DRAIN_PERCENT=34
    for node in n{1..6}; do
        "$CLUSTER" full "$node"
    done
    for node in n{1..6}; do
        as_slurmd epilog "$node" &
    done
    wait
    count=0
    for node in n{1..6}; do
        if drained "$node"; then
            count=$((count + 1))
        else
            is_idle "$node"
            spared=$node
        fi
    done
    # on a busy machine some find no answer or no time, and leave their node
    [ "$count" -ge 1 ] && [ "$count" -le 2 ]
    [ "$(grep -Ec ' (not drained|drained): |not drained: ' "$log")" -eq 6 ]
    run as_slurmd prolog "$spared"
    # where the second found no time above, this one may be it
    [ "$status" -eq 0 ] || { [ "$count" -eq 1 ] && drained "$spared"; }
    # the lock, which is gone by itself where its end found no answer
    unlocked() {
        ! "$CLUSTER" exec scontrol show reservation |
            grep 'ReservationName=tessera-drain '
    }
    within 180 unlocked
}

@test "a fault with too many drains is latched, whatever is undrained" {
    configure TESSERA_STORM_NODES=2
    for node in n1 n2 n3 n4; do
        "$CLUSTER" full "$node"
        as_slurmd epilog "$node"
        "$CLUSTER" exec --root scontrol update nodename="$node" state=resume ||
            true # it was not drained
    done
    [ "$(grep -c ': drained: tessera: SHM_FULL' "$log")" -eq 2 ]
    grep 'n3 .*not drained: 2 nodes were drained for the same within 600 s' "$log"
    grep 'n4 .*not drained: too many .* deletes the reservation tessera-latched.SHM_FULL' "$log"
    # what keeps this keeps no job away, be it as long as it may
    for node in n1 n2 n3; do
        "$CLUSTER" full "$node" undo
    done
    [ "$("$CLUSTER" exec srun -w n1,n2,n3 --time=UNLIMITED hostname | sort | xargs)" = \
        "n1 n2 n3" ]
    "$CLUSTER" exec --root scontrol delete reservationname=tessera-latched.SHM_FULL
    forget_drains
    run as_slurmd prolog n4
    [ "$status" -eq 1 ]
    drained n4
}

@test "a job that fills /dev/shm drains nothing, and what it left is removed" {
    run "$CLUSTER" exec srun -N2 -w n1,n2 bash -c \
        'mkdir /dev/shm/x; cat /dev/zero >/dev/shm/full'
    for node in n1 n2; do
        within 60 is_idle "$node"
        within 60 grep "$node job .*: removed what user 60011 has left" "$log"
        [ -z "$(node_reason "$node")" ]
        [ -z "$("$CLUSTER" exec --root --node "$node" ls /dev/shm)" ]
    done
}

@test "without TESSERA_ENFORCE nothing is drained, only said" {
    configure TESSERA_ENFORCE=0
    "$CLUSTER" full n1
    run as_slurmd prolog n1
    [ "$status" -eq 0 ]
    run as_slurmd epilog n1
    [ "$status" -eq 0 ]
    is_idle n1
    [ "$(grep -c 'dry run, would drain: tessera: SHM_FULL' "$log")" -eq 2 ]
}

@test "settings that others can write are not read" {
    "$CLUSTER" full n1
    chmod 666 "$TESSERA_INSTALL/etc/tessera.conf"
    run as_slurmd prolog n1
    chmod 644 "$TESSERA_INSTALL/etc/tessera.conf"
    [ "$status" -eq 0 ]
    [[ $output == *"must belong to root and be writable by root only"* ]]
    is_idle n1
}

@test "a check that takes all its time is still heard" {
    configure TESSERA_PROLOG_S=1
    cat >"$DIR/slow" <<'END'
#!/bin/bash
sleep 1.3
echo 'verdict n1 bad SHM_FULL SHM_FULL tessera: SHM_FULL shm 0/64'
exit 2
END
    install_check "$DIR/slow"
    run as_slurmd prolog n1
    [ "$status" -eq 1 ]
    drained n1
}

@test "a check that hangs, crashes or is not there lets the job start" {
    configure TESSERA_PROLOG_S=1
    configure TESSERA_EPILOG_S=1
    printf '#!/bin/bash\ntrap "" TERM\nwhile :; do sleep 1; done\n' >"$DIR/hangs"
    printf '#!/bin/bash\nkill -SEGV $$\n' >"$DIR/crashes"
    printf '#!/bin/bash\necho nonsense\nexit 3\n' >"$DIR/nonsense"
    for check in hangs crashes nonsense; do
        install_check "$DIR/$check"
        run as_slurmd prolog n1
        [ "$status" -eq 0 ]
        run as_slurmd epilog n1
        [ "$status" -eq 0 ]
        is_idle n1
    done
    rm "$TESSERA_INSTALL/libexec/tessera/node-health"
    [ "$("$CLUSTER" exec srun -w n1 hostname)" = n1 ]
    within 60 is_idle n1
}

@test "the epilog removes the job's shared memory and nothing else" {
    "$CLUSTER" exec --root --node n1 bash -c '
        mkdir /dev/shm/tessera.4711 /dev/shm/keep && touch /dev/shm/keep/file
        ln -s /dev/shm/keep /dev/shm/tessera.4711/link
        mkdir /dev/shm/tessera-ckpt.4711 /dev/shm/tessera-ckpt.4711.60011.00ff
        touch /dev/shm/tessera.4711/segment /dev/shm/tessera.4712
        chown -R 60011 /dev/shm/tessera.4711 /dev/shm/tessera-ckpt.4711*'
    as_slurmd epilog n1
    [ "$("$CLUSTER" exec --root --node n1 ls /dev/shm | xargs)" = \
        "keep tessera.4712" ]
    [ "$(grep -c removed "$log")" -eq 0 ]
    "$CLUSTER" exec --root --node n1 test -e /dev/shm/keep/file
    # of somebody else, or a link: left alone
    "$CLUSTER" exec --root --node n1 ln -s keep /dev/shm/tessera.4711
    as_slurmd epilog n1
    "$CLUSTER" exec --root --node n1 test -e /dev/shm/keep/file
    "$CLUSTER" exec --root --node n1 rm -r /dev/shm/tessera.4711 /dev/shm/keep
}
