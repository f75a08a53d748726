# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/{pro,epi}log
# For prolog and epilog: root, and nothing in the environment but what slurmd
# sets. All that is not known for certain leaves the node as it is.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C

# Whatever is drained by us starts like this; any other reason is someone else's
# and stays.
readonly OURS='tessera: '

say()
{
    local line
    line="$(date +%FT%T) ${0##*/} ${SLURMD_NODENAME:-?}"
    line+=" job ${SLURM_JOB_ID:-?}: $*"
    echo "$line" >&2
    logger -t tessera -- "${0##*/}: job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null
    [ -z "$TESSERA_LOG" ] || echo "$line" >>"$TESSERA_LOG"
}

# read_settings FILE: as root, so only if nobody else can have written it.
read_settings()
{
    local owner mode
    TESSERA_ENFORCE=0 TESSERA_SPOOL=/var/spool/tessera TESSERA_LOG=
    TESSERA_DRAIN_PERCENT=10 TESSERA_TRUST_USERS=0
    TESSERA_PROLOG_S=8 TESSERA_EPILOG_S=20
    [ -f "$1" ] || return
    read -r owner mode < <(stat -L -c '%u %a' "$1")
    if [ "$owner" != 0 ] || [ $((0$mode & 022)) -ne 0 ]; then
        say "$1: not read: it must belong to root and be writable by root only"
        return
    fi
    # shellcheck source=jobs/tessera.conf
    . "$1"
}

# json_text LINE KEY: the first string of that name in a line of JSON.
json_text()
{
    local pattern="\"$2\": ?\"([^\"]*)\""
    [[ $1 =~ $pattern ]] && printf '%s' "${BASH_REMATCH[1]}"
}

# check PHASE SECONDS: runs the check; sets check_rc and check_reason. The check
# keeps its time itself and then says what it has found; it is ended from outside
# only if it cannot.
check()
{
    local line limit_s=${2%%[!0-9]*}
    line=$(timeout --kill-after=2 $((10#${limit_s:-0} + 2)) \
        "$prefix/bin/tessera-health" "$1" --json --budget "$2" 2>/dev/null \
        </dev/null)
    check_rc=$?
    line=$(grep '"verdict"' <<<"$line" | tail -n 1)
    check_reason=$(json_text "$line" reason)
    check_reason=${check_reason:-$(json_text "$line" code)}
}

# May one more node be drained? Prints why not.
breaker()
{
    local all ours max
    all=$(sinfo -h -N -o '%N|%E' 2>/dev/null | sort -u) || all=
    [ -n "$all" ] || { echo "sinfo does not answer"; return; }
    ours=$(grep -c "|$OURS" <<<"$all")
    all=$(cut -d'|' -f1 <<<"$all" | sort -u | wc -l)
    max=$((all * TESSERA_DRAIN_PERCENT / 100))
    [ "$max" -ge 1 ] || max=1
    [ "$ours" -lt "$max" ] ||
        echo "$ours of $all nodes are drained by tessera, the limit is $max"
}

# drain TEXT: TEXT may have our prefix already. Returns 0 if the node is drained
# afterwards, by us or by anyone.
drain()
{
    local reason node state why
    reason=$(tr -dc '[:print:]' <<<"$OURS${1#"$OURS"}" | tr -d "\"'" |
        cut -c 1-150)
    node=$(timeout 5 scontrol -o show node "$SLURMD_NODENAME" 2>/dev/null)
    state=$(sed -n 's/.* State=\([^ ]*\) .*/\1/p' <<<"$node")
    why=$(sed -n 's/.* Reason=//p' <<<"$node")
    case $state in
    '')
        say "state unknown, not drained: $reason"
        return 1
        ;;
    *DRAIN* | *DOWN* | *FAIL*)
        say "is $state already (${why:-no reason}), left so: $reason"
        return 0
        ;;
    esac
    why=$(breaker)
    if [ -n "$why" ]; then
        say "not drained: $why: $reason"
        return 1
    fi
    if [ "$TESSERA_ENFORCE" != 1 ]; then
        say "dry run, would drain: $reason"
        return 1
    fi
    if timeout 5 scontrol update nodename="$SLURMD_NODENAME" state=drain \
        reason="$reason"; then
        say "drained: $reason"
        return 0
    fi
    say "scontrol failed, not drained: $reason"
    return 1
}
