#!/usr/bin/env bats
# What root's check finds in recorded machines: tests/health_trees/NAME.tree is one, a
# text with the files that a check reads, and what must be found.
#
#     # what it shows, and by whose documentation
#     check memory               the check (--only)
#     phase prolog
#     limits memory: { available_min_mib = 4096; };      a line of health.cfg
#     nvml throttle=8            what the driver's library of tests says
#     expect bad CODE WORDS      state, code or -, words of the reason, if any
#     == /proc/meminfo           a file; a blank line before the next is its own
#     MemAvailable:    2097152 kB
#     == /sys/bus/pci/devices/0000:5e:00.0 -> ../../../devices/pci0000:5d/0000:5e:00.0
#     -- again 3600              so many seconds later, with an `expect` of its own;
#     gone /proc/meminfo         what is not there any more, files that changed; after
#     -- boot                    another start of the machine instead, or
#     -- repaired                tessera-health --repaired
#
# /proc/uptime and the boot's id are there by themselves.
# shellcheck disable=SC2086 # words of a line

HEALTH=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}/../libexec/node-health

put_clock() {
    mkdir -p "$ROOT/proc/sys/kernel/random"
    echo "$UPTIME.00 1.00" >"$ROOT/proc/uptime"
    echo "boot-$BOOT" >"$ROOT/proc/sys/kernel/random/boot_id"
}

# One look; what it finds besides what is expected is said.
look() {
    local verdict state code reason
    verdict=$(NVML_FAKE=$NVML LD_LIBRARY_PATH=${HEALTH%/*}/../fake "$HEALTH" "$PHASE" \
        --only "$CHECK" --words --config "$DIR/health.cfg" --root "$ROOT" 2>&1) || :
    read -r _ _ state code _ reason <<<"${verdict%%$'\n'*}"
    ((LOOKS += 1))
    [[ $verdict == 'verdict '* && "$state $code" == "$EXPECT" && $reason == *"$WORDS"* ]] ||
        echo "$TREE, look $LOOKS: not '$EXPECT $WORDS' but: $verdict"
}

# The next part of a tree: what passes before it.
pass() {
    case $1 in
    again) ((UPTIME += $2)) ;;
    boot) BOOT=$((BOOT + 1)) UPTIME=300 ;;
    repaired) "$HEALTH" --repaired --root "$ROOT" || echo "$TREE: not repaired" ;;
    *) echo "$TREE: '-- $1'?" ;;
    esac
    put_clock
}

put_path() {
    FILE=$ROOT$1
    mkdir -p "${FILE%/*}"
    if [ "${2:-}" = '->' ]; then
        ln -sfn "$3" "$FILE"
    else
        : >"$FILE"
    fi
}

judge() {
    local line word rest FILE='' DIR=$BATS_TEST_TMPDIR/$1 UPTIME=100000 BOOT=1 LOOKS=0
    local TREE=$1 ROOT=$BATS_TEST_TMPDIR/$1/root CHECK='' PHASE='' NVML='' EXPECT='' WORDS=''
    mkdir -p "$ROOT"
    : >"$DIR/health.cfg"
    put_clock
    while IFS= read -r line || [ -n "$line" ]; do
        read -r word rest <<<"$line"
        case $FILE:$word in
        *:--)
            look
            FILE=''
            pass $rest
            ;;
        *:==) put_path $rest ;;
        /*) printf '%s\n' "$line" >>"$FILE" ;;
        :check) CHECK=$rest ;;
        :phase) PHASE=$rest ;;
        :nvml) NVML=$rest ;;
        :limits) printf '%s\n' "$rest" >>"$DIR/health.cfg" ;;
        :gone) rm -r "${ROOT:?}$rest" ;;
        :expect)
            read -r word line WORDS <<<"$rest"
            EXPECT="$word $line" ;;
        : | :\#*) ;;
        *) echo "$TREE: '$line'?" ;;
        esac
    done <"$2"
    look
}

@test "each recorded machine is judged as it says" {
    for tree in "$BATS_TEST_DIRNAME"/health_trees/*.tree; do
        judge "$(basename "$tree" .tree)" "$tree"
    done >"$BATS_TEST_TMPDIR/wrong"
    cat "$BATS_TEST_TMPDIR/wrong"
    [ ! -s "$BATS_TEST_TMPDIR/wrong" ]
}
