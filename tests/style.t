#!/bin/sh
# The rules of style and of layers, as a test.
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
echo 1..2
check tests/layers
check tests/style --format
