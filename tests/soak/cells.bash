# shellcheck shell=bash
# What the sections of tests/soak/matrix share: a run, its journal, cells.

WORK=$(mktemp -d "${TMPDIR:-/tmp}/tessera-soak.XXXXXX")
RUN=$WORK/run JOURNAL=$WORK/journal STORE=$WORK/store
CELLS=0 WRONG=0 NOTE= LABEL= OTHER=
unset TESSERA_CRASH_AT TESSERA_CRASH_STOP TESSERA_CRASH_TRACE
trap 'rm -rf "$WORK" ${OTHER:+"$OTHER"}' EXIT
trap 'exit 1' HUP INT TERM

complain() {
    echo "tests/soak/matrix: $*" >&2
    exit 1
}

victim() {
    "$SOAK/victim" "$@"
}

cell() { # WHAT WHO SCENARIO
    CELLS=$((CELLS + 1))
    LABEL=$(printf '%-44s %-10s %-6s' "$1" "$2" "$3")
}

outcome() { # TEXT
    echo "$LABEL -> $1"
}

wrong() { # TEXT
    WRONG=$((WRONG + 1))
    # the victim may have said it already
    case $1 in
    *", WRONG: "*) outcome "$1" ;;
    *) outcome "$1, WRONG" ;;
    esac
}

# A run as it is before this scenario's save; its journal says the same.
fresh() { # SCENARIO [BASE]
    rm -rf "$RUN" "$JOURNAL"
    if [ "$1" = first ]; then
        mkdir "$RUN"
    else
        [ -e "$WORK/base" ] || base
        cp -a "$WORK/base" "$RUN"
        cp "$WORK/base.journal" "$JOURNAL"
    fi
}

base() {
    tests/mpirun 2 "$SOAK/victim" save "$WORK/base" "$WORK/base.journal" 1:1 2:2 ||
        complain "no save without faults"
}

# The save of this scenario by so many ranks; "next": and one more.
saves() { # RANKS SCENARIO [-p] [-l] [-t SECONDS] [next]
    local ranks=$1 scenario=$2 flags=() steps=(3:3)
    local program=("$SOAK/victim")
    shift 2
    case $scenario in
    same) steps=(2:4) ;;
    aside)
        steps=(2:4)
        local -x LD_PRELOAD=$SOAK/shim.so SHIM_FAULT=renameat2:EINVAL:1:always
        ;;
    esac
    while [ $# -gt 0 ]; do
        if [ "$1" = next ]; then steps+=(5:5); else flags+=("$1"); fi
        shift
    done
    [ "$ranks" -eq 1 ] || program=(tests/mpirun "$ranks" "$SOAK/victim")
    # the outer redirection takes bash's own message about the death
    {
        timeout -k 5 90 "${program[@]}" "${flags[@]}" save "$RUN" "$JOURNAL" \
            "${steps[@]}" >"$WORK/out" 2>"$WORK/err"
    } 2>/dev/null
}

# The save above ended with this status; it should have been killed.
died() { # STATUS
    [ "$1" -ne 0 ] && [ "$1" -ne 124 ] && return
    wrong "it did not die there (status $1)"
    return 1
}

# Load with a fresh process and go on from there.
judge() { # FLAGS WANT
    local text flags=()
    read -ra flags <<<"$1"
    if text=$(timeout -k 5 60 "$SOAK/victim" "${flags[@]}" check "$RUN" \
        "$JOURNAL" ${2:+"$2"} 2>"$WORK/err"); then
        outcome "$NOTE$text"
    else
        wrong "$NOTE${text:-the check died: $(tail -n 1 "$WORK/err")}"
    fi
}
