# shellcheck shell=bash disable=SC2034,SC2154 # variables of the bats files
# A node with prolog and epilog as `make install-node` lays them out, below $NODE,
# and programs that stand in for Slurm's: a cluster of 20 nodes is a folder of
# files, each request takes 20 ms and changes are made one after the other, as
# slurmctld makes them. $NODE/check, where a test writes it, stands in for the
# node's check.

JOBS=${TESSERA_JOBS:-$BATS_TEST_DIRNAME/../jobs}
BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}

# check_stands_in FOLDER FILE: FILE in place of node-health, which may be running,
# but for prolog and epilog themselves, which node-health.real is
check_stands_in() {
    cp "$2" "$1/check" && chmod 755 "$1/check"
    cat >"$1/.new" <<'END'
#!/bin/bash
[ "${1-}" != --act ] || exec "${0%/*}/node-health.real" "$@"
exec "${0%/*}/check" "$@"
END
    chmod 755 "$1/.new"
    mv -f "$1/.new" "$1/node-health"
}

# node_install: makes $NODE
node_install() {
    NODE=$(mktemp -d "${TMPDIR:-/tmp}/tessera-admin.XXXXXX")
    chmod 755 "$NODE"
    mkdir -p "$NODE"/{libexec/tessera,etc,slurm,cluster,bin}
    cp "$JOBS"/{prolog,epilog,quick} "$NODE/libexec/tessera"
    cp "$JOBS/lib/node_check.sh" "$NODE"
    cp "$BIN/../libexec/node-health" "$NODE/libexec/tessera/node-health"
    cp "$BIN/../libexec/node-health" "$NODE/libexec/tessera/node-health.real"
    ln -s ../libexec/tessera/node-health "$NODE/bin/tessera-health"
    cp "$JOBS/tessera.conf" "$NODE/etc"
    # other tests' users are here as well
    echo 'disable = "leftover";' >"$NODE/etc/health.cfg"
    LOG=$NODE/log
    configure TESSERA_ENFORCE=1
    configure "TESSERA_LOG=$LOG"
    configure "TESSERA_SLURM_BIN=$NODE/slurm"
    configure TESSERA_AGAIN_S=0
    : >"$LOG"
    slurm_stands_in
    for node in n{1..20}; do
        echo "IDLE|Unknown|none" >"$NODE/cluster/$node"
    done
}

configure() { # LINE
    echo "$1" >>"$NODE/etc/tessera.conf"
}

install_check() { # FILE
    check_stands_in "$NODE/libexec/tessera" "$1"
}

# check_says CODE-OF-EXIT JSON [WORDS ON STDERR]
check_says() {
    echo "$2" >"$NODE/verdict"
    printf '#!/bin/bash\necho "%s" >&2\necho %q\nexit %d\n' "${3:-}" \
        "$("$BIN/tessera-health" --read "$NODE/verdict")" "$1" >"$NODE/check"
    install_check "$NODE/check"
}

# bad_with CODE: a check that finds the node bad
bad_with() {
    check_says 2 "{\"host\":\"x\",\"verdict\":\"bad\",\"code\":\"$1\",\"reason\":\"tessera: $1 shm 0MiB/32\"}"
}

# as_slurmd prolog|epilog|quick NODE: as slurmd calls it
as_slurmd() {
    env -i SLURMD_NODENAME="$2" SLURM_JOB_ID="${job:-4711}" \
        SLURM_JOB_UID=60011 SLURM_JOB_GID=60011 \
        "$NODE/libexec/tessera/$1" 2>/dev/null
}

# prolog_is CODE [NODE]: how it ends
prolog_is() {
    run as_slurmd prolog "${2:-n1}"
    [ "$status" -eq "$1" ]
}

# drained: how many nodes are
drained() {
    grep -l DRAIN "$NODE"/cluster/n* | wc -l
}

slurm_stands_in() {
    cat >"$NODE/slurm/sinfo" <<'END'
#!/bin/bash
sleep 0.02
cd "${0%/*}/../cluster" || exit 1
words="$*" nodes=n*
[[ $words != *%G ]] || { cat ../gres 2>/dev/null || echo "(null)"; exit 0; }
[[ $words != *" -n "* ]] || { nodes=${words#* -n }; nodes=${nodes%% *}; }
[ "$nodes" != 'n*' ] || echo >>../sinfo.calls
for node in $nodes; do
    IFS='|' read -r state time reason <"$node"
    case $state in
    *DRAIN*) state=drained ;;
    DOWN*) state=down ;;
    *FAIL*) state=fail ;;
    *POWER*) state=idle~ ;;
    *) state=idle ;;
    esac
    [[ $* == *%E ]] && reason="|$reason" || reason=
    echo "$node|$state|all$reason"
done
END
    cat >"$NODE/slurm/squeue" <<'END'
#!/bin/bash
sleep 0.02
cat "${0%/*}/../jobs" 2>/dev/null
exit 0
END
    cat >"$NODE/slurm/scontrol" <<'END'
#!/bin/bash
sleep 0.02
cd "${0%/*}/../cluster" || exit 1
exec 9<.
flock 9
case $* in
"-o show node "*)
    IFS='|' read -r state time reason <"$4"
    echo "NodeName=$4 State=$state Reason=$reason"
    ;;
"create reservation reservationname="*)
    set -- "${3#*=}"
    [ -e "res.$1" ] || { TZ=UTC date +%FT%T >"res.$1" && exit 0; }
    echo "Error creating the reservation: Duplicate reservation name" >&2
    exit 1
    ;;
"delete reservationname="*) rm "res.${2#*=}" ;;
"-o show reservation")
    for res in res.*; do
        [ -e "$res" ] || { echo "No reservations in the system" && exit 0; }
        echo "ReservationName=${res#res.} StartTime=$(cat "$res") Nodes=n1"
    done
    ;;
"update nodename="*state=drain*)
    for word in "$@"; do
        case $word in
        nodename=*) node=${word#*=} ;;
        reason=*) reason=${word#*=} ;;
        esac
    done
    echo "IDLE+DRAIN|$(date +%FT%T)|$reason" >".new.$node"
    mv ".new.$node" "$node"
    ;;
"update nodename="*state=resume)
    echo "IDLE|Unknown|none" >".new.${2#*=}"
    mv ".new.${2#*=}" "${2#*=}"
    ;;
"show config") echo "PrologEpilogTimeout     = ${TIMEOUT:-60}" ;;
*)
    echo "not known: $*" >&2
    exit 1
    ;;
esac
END
    chmod 755 "$NODE"/slurm/*
}
