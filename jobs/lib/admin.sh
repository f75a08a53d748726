# shellcheck shell=bash disable=SC2034,SC2154 # variables of jobs/{pro,epi}log
# For prolog and epilog: root, and nothing in the environment but what slurmd
# sets. All that is not known for certain leaves the node as it is, and is said.
#
# Whatever may hang (file systems, slurmctld, GPUs) is asked by a child that is
# left behind when it does not answer, and all of it together has END_S seconds:
# slurmd drains a node whose prolog or epilog takes too long.

inherited=${PATH:-}
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin

readonly END_S=45 LOG_S=6 CLEAN_S=15
# The log begins anew at the first size, but once a day only and, where much is
# written, at the second: who fills it does not push out what others need to see.
readonly LOG_BYTES=1048576 LOG_BYTES_MAX=16777216 DECISION_S=4
end_s=$((SECONDS + END_S))
log_left_s=$LOG_S logger=1 log_is_new=1

# bounded SECONDS COMMAND...: sets out (stdout and stderr) and rc, 124 if there
# is no answer. Nothing is waited for that cannot be killed.
bounded()
{
    local limit_s=$1 text=
    shift
    [ "$limit_s" -le $((end_s - SECONDS)) ] || limit_s=$((end_s - SECONDS))
    out='' rc=124
    [ "$limit_s" -ge 1 ] || return
    # slurmd waits for the last writer to our stderr, so who may hang has none
    IFS= read -r -d '' -t $((limit_s + 2)) text < <(
        exec 2>/dev/null
        timeout --kill-after=1 "$limit_s" "$@" </dev/null 2>&1 | tr -d '\0'
        printf '\nrc=%d' "${PIPESTATUS[0]}"
    )
    out=$text
    case $text in
    *$'\n'rc=*)
        rc=${text##*$'\n'rc=}
        out=${text%$'\n'rc=*}
        ;;
    esac
    out=${out%$'\n'}
}

# The log has time of its own, since the last words are the most needed: LOG_S
# for all of them. A log that did not answer once is not written to again.
say()
{
    local out rc line begin_s=$SECONDS end_s=$((SECONDS + log_left_s))
    printf -v line '%(%FT%T)T %s %s job %s: %s' -1 "${0##*/}" \
        "${SLURMD_NODENAME:-?}" "${SLURM_JOB_ID:-?}" "$*"
    line=${line//[[:cntrl:]]/?}
    printf '%s\n' "$line" >&2
    [ "$log_left_s" -lt 1 ] || say_to_file "$line"
    if [ "$logger" = 1 ]; then
        bounded 2 logger -t tessera -- "${line#* }"
        [ "$rc" -ne 124 ] && [ "$rc" -ne 137 ] || logger=0
    fi
    log_left_s=$((log_left_s - (SECONDS - begin_s)))
}

# say, for what becomes of the node: there is time for it whatever was said before.
decide()
{
    [ "$log_left_s" -ge "$DECISION_S" ] || log_left_s=$DECISION_S
    say "$@"
}

say_to_file()
{
    local answer=
    [ -n "$TESSERA_LOG" ] || return
    # one process and no program, so that it is done also where much goes on
    IFS= read -r -d '' -t $((log_left_s < 3 ? log_left_s : 3)) answer < <(
        exec 2>&1
        [ "$log_is_new" = 0 ] || rotate_log
        printf '%s\n' "$1" >>"$TESSERA_LOG" && echo '=written'
    )
    log_is_new=0
    case $answer in
    *=written*) ;;
    ?*) printf '%s\n' "TESSERA_LOG: $answer" >&2 ;;
    *)
        kill -KILL $! 2>/dev/null
        printf '%s\n' "TESSERA_LOG $TESSERA_LOG does not answer" >&2
        TESSERA_LOG=
        ;;
    esac
}

rotate_log()
{
    local size
    size=$(stat -c %s "$TESSERA_LOG" 2>/dev/null || echo 0)
    [ "$size" -ge "$LOG_BYTES" ] || return
    [ "$size" -ge "$LOG_BYTES_MAX" ] ||
        [ -z "$(find "$TESSERA_LOG.old" -mtime -1 2>/dev/null)" ] || return
    mv -f "$TESSERA_LOG" "$TESSERA_LOG.old"
}

# --- settings -----------------------------------------------------------------

# setting NAME VALUE: takes it, or adds to $wrong what it should be.
setting()
{
    local min=0 max=1 text="'${2:0:80}'"
    case $1 in
    TESSERA_SPOOL | TESSERA_LOG | TESSERA_SLURM_BIN | TESSERA_PROBES | TESSERA_LIBRARY_PATH)
        if [[ $2 =~ ^(/[A-Za-z0-9._/@%+:-]+)?$ ]]; then
            printf -v "$1" %s "$2"
        else
            wrong+=" $1=$text: give a path from / on;"
        fi
        return
        ;;
    TESSERA_CLEAN)
        case $2 in
        '' | /dev/shm | /tmp | '/dev/shm /tmp') TESSERA_CLEAN=$2 ;;
        *) wrong+=" $1=$text: give /dev/shm, /tmp or both;" ;;
        esac
        return
        ;;
    TESSERA_ENFORCE | TESSERA_TRUST_USERS | TESSERA_STRESS) ;;
    TESSERA_DRAIN_PERCENT) min=1 max=100 ;;
    TESSERA_PROLOG_S | TESSERA_EPILOG_S) min=1 max=40 ;;
    TESSERA_STRESS_S) min=1 max=25 ;;
    TESSERA_AGAIN_S) max=20 ;;
    TESSERA_STORM_NODES) max=100000 ;;
    TESSERA_STORM_S) max=86400 ;;
    *)
        wrong+=" ${1:0:80}: there is no such setting;"
        return
        ;;
    esac
    if [[ $2 =~ ^[0-9]{1,6}$ ]] && ((10#$2 >= min && 10#$2 <= max)); then
        printf -v "$1" %d $((10#$2))
    else
        wrong+=" $1=$text: give a whole number from $min to $max;"
    fi
}

# check_owners FILE: whose the settings are, which must be root's alone, and sets
# others to whose else it is what runs as root beside them.
check_owners()
{
    local owner mode file line=
    others=
    bounded 3 stat -L -c '%u %a %n' "$1" "$here/lib/admin.sh" "$here/node-health"
    while read -r owner mode file; do
        [ "$file" != "$1" ] || line=$owner
        [[ $owner =~ ^[0-9]+$ && $mode =~ ^[0-7]+$ ]] || continue
        [ "$owner" != 0 ] || [ $((0$mode & 022)) -ne 0 ] || continue
        if [ "$file" = "$1" ]; then
            say "$1: not read, so this is a dry run: it must belong to root and" \
                "be writable by root only"
            return 1
        fi
        others+="$file belongs to $owner (mode $mode), "
    done < <(printf '%s\n' "$out")
    [ -n "$line" ] || say "no settings, so this is a dry run: ${out%%$'\n'*}"
    [ -n "$line" ]
}

# read_settings FILE: as root, so only if nobody else can have written it, and
# as words, not as a program. A wrong one is never taken for permission.
read_settings()
{
    local others line name value
    TESSERA_ENFORCE=0 TESSERA_SPOOL='' TESSERA_LOG='' TESSERA_SLURM_BIN=''
    TESSERA_DRAIN_PERCENT=10 TESSERA_TRUST_USERS=0 TESSERA_AGAIN_S=3
    TESSERA_PROLOG_S=8 TESSERA_EPILOG_S=20 TESSERA_CLEAN=/dev/shm
    TESSERA_STORM_NODES=5 TESSERA_STORM_S=600 TESSERA_STRESS=0 TESSERA_STRESS_S=15
    TESSERA_PROBES=$here/../../bin/tessera-health TESSERA_LIBRARY_PATH=
    wrong=
    check_owners "$1" || return
    bounded 3 cat "$1"
    [ "$rc" -eq 0 ] || wrong=" $out;"
    while IFS= read -r line; do
        line=${line%%#*}
        line=${line%"${line##*[![:space:]]}"}
        line=${line#"${line%%[![:space:]]*}"}
        [ -n "$line" ] || continue
        name=${line%%=*} value=${line#*=}
        [[ $value =~ ^\"(.*)\"$ || $value =~ ^\'(.*)\'$ ]] &&
            value=${BASH_REMATCH[1]}
        setting "$name" "$value"
    done < <(printf '%s\n' "$out")
    [ -z "$wrong" ] || say "$1:$wrong nothing is drained until that is right"
    [ -z "$others" ] || say "warning: ${others}who can do what root can here:" \
        "give it to root, writable by root only"
}

# Slurm's programs: where a setting says, in the system's folders, beside the
# slurmd that called us, or on its PATH.
find_slurm()
{
    local folder slurmd
    slurmd=$(readlink "/proc/$PPID/exe")
    PATH=${TESSERA_SLURM_BIN:+$TESSERA_SLURM_BIN:}$PATH
    IFS=: read -ra inherited < <(printf '%s\n' "$inherited")
    for folder in "${slurmd%/*}/../bin" "${inherited[@]}"; do
        [[ $folder == /* ]] && PATH+=:$folder
    done
    command -v scontrol sinfo >/dev/null ||
        say "no scontrol in $PATH: no node can be drained; set TESSERA_SLURM_BIN"
}

# --- looking ------------------------------------------------------------------

# Sets gres to how many GPUs Slurm's Gres has, asked for this node alone and not
# twice a day, at another time on each node. What looks like a slice of MIG is no
# GPU of its own, but not all slices look like one, and a Gres may have more than
# there are on purpose.
find_gres()
{
    local cache=/run/tessera/gpus entry slices='^gpu:.*[0-9]g\.'
    gres=
    if [ -n "$(find "$cache" -mmin -720 2>/dev/null)" ]; then
        read -r gres <"$cache"
    else
        bounded 5 sinfo -a -h -N -n "$SLURMD_NODENAME" -o %G
        [ "$rc" -eq 0 ] && [ -n "$out" ] || return
        out=${out%%$'\n'*}
        for entry in ${out//,/ }; do
            [[ $entry =~ $slices ]] && continue
            [[ $entry =~ ^gpu:(.*:)?([0-9]+)(\(|$) ]] || continue
            gres=$((${gres:-0} + BASH_REMATCH[2]))
        done
        mkdir -p "${cache%/*}" && printf '%s\n' "$gres" >"$cache" &&
            touch -d "now + $((RANDOM % 720)) minutes" "$cache"
        gres_is_new=1
    fi
    [[ $gres =~ ^[1-9][0-9]{0,3}$ ]] || gres=
}

# Sets gpus to how many this node must have, to tell a GPU that is not even on
# the bus any more: the most that the driver has ever had here, but no more than
# Slurm's Gres. Where the driver itself is gone that holds as well.
find_gpus()
{
    local most=/var/lib/tessera/gpus gres gres_is_new=0 here_now=0 known=0
    gpus=
    find_gres
    [ -n "$gres" ] || return
    if [ -d /proc/driver/nvidia ]; then
        # one folder each, also of those that an option of the driver leaves out
        # shellcheck disable=SC2016 # expanded by the child
        bounded 3 bash -c 'shopt -s nullglob
            set -- /proc/driver/nvidia/gpus/*/information
            [ $# -eq 0 ] || grep -L "^GPU Excluded:.*Yes" "$@"'
        [ -z "$out" ] || here_now=$(printf '%s\n' "$out" | grep -c '^/')
    fi
    read -r known 2>/dev/null <"$most"
    [[ $known =~ ^[1-9][0-9]{0,2}$ ]] || known=0
    if [ "$here_now" -gt "$known" ]; then
        known=$here_now
        mkdir -p "${most%/*}" && printf '%s\n' "$known" >"$most"
    fi
    if [ "$gres" -gt "$known" ] && [ "$gres_is_new" = 1 ]; then
        say "warning: GPU_GRES Slurm's Gres has $gres GPUs, and $known is the" \
            "most that this node ever had"
    fi
    gpus=$((gres < known ? gres : known))
    [ "$gpus" -gt 0 ] || gpus=
}

# check PHASE SECONDS [CHECKS [PROGRAM...]]: looks at the node, by these checks
# alone if they are given; sets check_state (ok, warn, bad or unknown),
# check_reason, check_codes and check_bad, the checks that found it bad. Whatever
# is not ok is said.
check()
{
    local line rest words='' program=("${@:4}")
    [ $# -gt 3 ] || program=("$here/node-health")
    bounded $(($2 + 2)) "${program[@]}" "$1" --words --budget "$2" \
        ${gpus:+--gpus "$gpus"} ${3:+--only "$3"}
    check_state='' check_reason='' check_codes='' check_bad=''
    while IFS= read -r line; do
        case $line in
        'verdict '*)
            read -r _ _ check_state check_reason check_codes rest \
                < <(printf '%s\n' "$line")
            [ "$rest" = - ] || check_reason=$rest
            ;;
        'bad '*) check_bad=${line#bad } ;;
        ?*) words+=" $line" ;;
        esac
    done < <(printf '%s\n' "$out")
    words=${words:0:300}
    case $rc:$check_state in
    0:ok) [ -z "$words" ] || say "the check is ok, but says:$words" ;;
    1:warn) say "warning: $check_reason$words" ;;
    2:bad) say "bad: $check_reason$words" ;;
    3:unknown | 76:unknown) say "not known: $check_reason$words" ;;
    124:* | 137:*) say "the check does not answer within $2 s$words" ;;
    64:*) say "nothing is checked, the settings are wrong:$words" ;;
    126:* | 127:*) say "nothing is checked, the check does not start:$words" ;;
    *) say "nothing is checked, the check ended with code $rc:$words" ;;
    esac
    case $rc:$check_state in
    0:ok | 1:warn | 2:bad) ;;
    *) check_state=unknown ;;
    esac
}

# probe CHECKS SECONDS: check() by the probes of the installed tree, which jobs run
# as well, where nobody else computes on the node. check_state is unknown where
# they cannot run; what root would run must be root's alone.
probe()
{
    local owner mode limit_s=$((end_s - SECONDS - 10))
    check_state=unknown
    [ "$limit_s" -lt "$2" ] || limit_s=$2
    bounded 5 stat -L -c '%u %a' "$TESSERA_PROBES"
    read -r owner mode < <(printf '%s\n' "$out")
    if [ "$rc" -ne 0 ]; then
        say "not probed for $1, set TESSERA_PROBES: ${out:-no answer}"
    elif [ "$owner" != 0 ] || [ $((0$mode & 022)) -ne 0 ]; then
        say "not probed for $1: $TESSERA_PROBES must belong to root and be" \
            "writable by root only"
    elif ! bounded 5 squeue -h -w "$SLURMD_NODENAME" -o %A || [ "$rc" -ne 0 ]; then
        say "not probed for $1, whose jobs are here is not known: $out"
    elif printf '%s\n' "$out" | grep -qvx "${SLURM_JOB_ID:-}\|"; then
        say "not probed for $1: other jobs are on the node"
    elif [ "$limit_s" -lt 5 ]; then
        say "not probed for $1: no time is left"
    else
        check job "$limit_s" "$1" env -u CUDA_VISIBLE_DEVICES \
            ${TESSERA_LIBRARY_PATH:+"LD_LIBRARY_PATH=$TESSERA_LIBRARY_PATH"} \
            "$TESSERA_PROBES"
    fi
}

# Whether users' files fill that folder.
used_up()
{
    case $1:,$check_codes, in
    /dev/shm:*,SHM_USED,* | /tmp:*,TMP_USED,*) return 0 ;;
    esac
    return 1
}

# Says whose files are the most in a folder.
say_owner()
{
    # shellcheck disable=SC2016 # expanded by the child
    bounded 5 bash -c 'find "$1" -xdev -mindepth 1 -printf "%U %b\n" |
        awk "{ b[\$1] += \$2 } END { for (u in b) if (b[u] >= m) { m = b[u]; w = u }
            printf \"user %s has %d MiB\", w, m / 2048 }"' _ "$1"
    if [ "$rc" -eq 0 ]; then
        say "$1 stays full: $out there"
    else
        say "$1 stays full, and whose files are there is not told within 5 s"
    fi
}

# look PHASE SECONDS: the same, where what users have left does not count, and
# bad is only what is bad again after a pause.
look()
{
    local folder
    find_gpus
    check "$1" "$2"
    for folder in $TESSERA_CLEAN; do
        used_up "$folder" && remove_leavings "$folder" && check "$1" "$2"
    done
    for folder in /dev/shm /tmp; do
        used_up "$folder" && say_owner "$folder"
    done
    [ "$check_state" = bad ] || return
    if [ $((SECONDS + TESSERA_AGAIN_S + 5)) -gt "$end_s" ]; then
        decide "no time for a second look: left as it is"
        check_state=unknown
        return
    fi
    sleep "$TESSERA_AGAIN_S"
    check "$1" "$2" "$check_bad"
    [ "$check_state" = bad ] ||
        decide "bad at first, but not at a second look: left as it is"
}

# remove_leavings FOLDER: of ordinary users who have neither a job nor a process
# here. It is done with the rights of each, so that nothing else can be removed,
# whatever links and names there are; and what was changed since we asked Slurm
# for jobs stays (also folders that had to be opened first, until the next time).
remove_leavings()
{
    local folder=$1 now busy owner owners uid_min done=1
    if [ "$TESSERA_ENFORCE" != 1 ] || [ -n "$wrong" ]; then
        say "dry run, would remove what users without a job left in $folder"
        return 1
    fi
    now=$(date +%s.%N)
    bounded 5 squeue -h -w "$SLURMD_NODENAME" -o '%A %U'
    if [ "$rc" -ne 0 ]; then
        say "$folder is not cleaned, whose jobs are here is not known: $out"
        return 1
    fi
    busy=$(printf '%s\n' "$out" |
        awk -v own="${SLURM_JOB_ID:-}" '$1 != own { print $2 }')
    bounded 3 ps -eo ruid=,euid=
    [ "$rc" -eq 0 ] || return 1
    busy=" $(printf '%s\n' "$busy" "$out" | xargs) "
    uid_min=$(awk '$1 == "UID_MIN" { print $2 }' /etc/login.defs 2>/dev/null)
    # shellcheck disable=SC2016 # expanded by the child
    bounded 3 bash -c 'find "$1" -xdev -mindepth 1 -maxdepth 1 -printf "%U\n" \
        2>/dev/null | sort -u | head -n 64' _ "$folder"
    owners=$out
    if [ "$rc" -ne 0 ]; then
        say "$folder is not cleaned, listing it takes more than 3 s"
        return 1
    fi
    # the node must still be looked at afterwards
    local end_s=$((SECONDS + CLEAN_S < end_s ? SECONDS + CLEAN_S : end_s))
    for owner in $owners; do
        if [[ ! $owner =~ ^[0-9]+$ || $busy == *" $owner "* ]] ||
            [ "$owner" -lt "${uid_min:-1000}" ] || [ "$owner" -eq 65534 ]; then
            continue
        fi
        if [ "$SECONDS" -ge "$end_s" ]; then
            say "$folder is not cleaned to the end: no time is left"
            break
        fi
        # shellcheck disable=SC2016 # expanded by the child
        as_user "$owner" 65534 5 bash -c 'cd /
            find "$1" -xdev -mindepth 1 -uid "$2" -type d ! -perm -700 \
                -exec chmod u+rwx {} + 2>/dev/null
            find "$1" -xdev -mindepth 1 -uid "$2" ! -newerct "@$3" \
                -delete -printf . 2>/dev/null | wc -c' _ "$folder" "$owner" "$now"
        if [ "$rc" -ne 0 ]; then
            say "what user $owner has left in $folder is not removed to the" \
                "end (code $rc): ${out:0:200}"
        elif [ "$out" -gt 0 ]; then
            say "removed what user $owner has left in $folder: $out files"
        else
            continue
        fi
        done=0
    done
    return "$done"
}

# as_user UID GID SECONDS COMMAND...: bounded, and with no more rights. The + is
# for logins that are numbers: setpriv would take 1000 for a name first.
as_user()
{
    bounded "$3" chroot --userspec="+$1:+$2" --groups= / setpriv \
        --inh-caps=-all env -i "PATH=$PATH" LC_ALL=C "${@:4}"
}

# --- draining -----------------------------------------------------------------

# drain TEXT: whether it may be drained, and the way there, is decided in
# src/control/drain.h. Returns 0 if the node takes no jobs afterwards, whoever
# drained it, and this is no dry run.
drain()
{
    local line said=0 left_s=$((end_s - SECONDS - 2)) options=() answers child
    [ "$TESSERA_ENFORCE" != 1 ] || options+=(--enforce)
    [ -z "$wrong" ] || options+=("--wrong=$wrong")
    [ "$left_s" -ge 5 ] || left_s=5
    # who may hang has no stderr of ours, see bounded
    exec {answers}< <(
        exec 2>&1 timeout --kill-after=1 "$left_s" "$here/node-health" \
            --drain="$1" --node="$SLURMD_NODENAME" "${options[@]}" \
            --percent="$TESSERA_DRAIN_PERCENT" --storm="$TESSERA_STORM_S" \
            --storm-nodes="$TESSERA_STORM_NODES" --within=$((left_s - 1)) \
            </dev/null
    )
    child=$!
    while IFS= read -r -u "$answers" -t $((left_s + 2)) line; do
        decide "$line"
        said=1
    done
    exec {answers}<&-
    wait "$child"
    rc=$?
    [ "$said" = 1 ] || decide "not drained, no answer (code $rc): $1"
    return "$rc"
}
