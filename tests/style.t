#!/bin/sh
# The rules of style and of layers, and man pages, as a test.
cd "$(dirname "$0")/.." || exit
number=0
check() {
    number=$((number + 1))
    if said=$("$@" 2>&1); then
        echo "ok $number - $*"
    else
        echo "not ok $number - $*"
    fi
    echo "$said" | sed 's/^/# /'
}
# nothing that troff warns of, and no sentence that a macro for two fonts swallows:
# such a macro sets its words without the blanks between them
man_pages() {
    ! grep -nE '^\.[BIR]{2} [^"]*\)[.,;:] +[A-Z]' docs/man/*.1 || return 1
    command -v groff >/dev/null || return 0
    for page in docs/man/*.1; do
        groff -ww -man -Tutf8 "$page" 2>&1 >/dev/null
    done | grep . && return 1
    return 0
}
echo 1..3
check tests/layers
check tests/style --format
check man_pages
