#!/bin/bash
# A report in a real browser, headless Chromium: no script error, nothing
# fetched, every plot drawn, light and dark, wide and narrow. Chromium is
# TESSERA_CHROMIUM, one that is installed, or Debian's package, unpacked into
# TESSERA_INTEROP_DIR (default build/peers), where it stays; without any the
# test is skipped. No root is needed.
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
ROOT=${TESSERA_INTEROP_DIR:-$HERE/../../build/peers}/chromium
PLOTS="loss learning-rate gradient-norm throughput mfu step-time rank-spread
    loader checkpoint-stall checkpoint-size memory tasks timeline goodput"

# The package, with what of its libraries is not installed, and letters.
unpack_chromium() {
    local names package
    [ -e "$ROOT/complete" ] && return
    command -v apt-get dpkg-deb >/dev/null || return 1
    rm -rf "$ROOT"
    mkdir -p "$ROOT/debs"
    names=$(apt-get install -s --no-install-recommends chromium-headless-shell \
        2>/dev/null | awk '/^Inst/ { print $2 }')
    [ -n "$names" ] || return 1
    # shellcheck disable=SC2086 # a list of names
    (cd "$ROOT/debs" && apt-get download $names fonts-dejavu-core) \
        >/dev/null 2>&1 || return 1
    for package in "$ROOT"/debs/*.deb; do
        dpkg-deb -x "$package" "$ROOT" || return 1
    done
    rm -r "$ROOT/debs"
    touch "$ROOT/complete"
}

# Sets chromium=() to the command, with an environment of its own.
find_chromium() {
    local name
    for name in ${TESSERA_CHROMIUM:+"$TESSERA_CHROMIUM"} \
        chromium-headless-shell chromium google-chrome; do
        if command -v "$name" >/dev/null; then
            chromium=("$name" --headless)
            return
        fi
    done
    unpack_chromium || return 1
    cat >"$ROOT/fonts.conf" <<END
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>$ROOT/usr/share/fonts</dir><cachedir>$ROOT/cache</cachedir></fontconfig>
END
    chromium=(env "FONTCONFIG_FILE=$ROOT/fonts.conf"
        "LD_LIBRARY_PATH=$ROOT/usr/lib/x86_64-linux-gnu:$ROOT/usr/lib/x86_64-linux-gnu/pulseaudio"
        "$ROOT/usr/lib/chromium/chromium-headless-shell")
}

# browse OPTION...: its console goes to $WORK/console
browse() {
    HOME=$WORK/home timeout 60 "${chromium[@]}" --no-sandbox --disable-gpu \
        --hide-scrollbars --enable-logging=stderr --v=0 \
        --host-resolver-rules="MAP * ~NOTFOUND" "$@" 2>"$WORK/console"
}

no_errors() {
    if grep -E 'CONSOLE|Uncaught|SyntaxError|Refused to' "$WORK/console"; then
        return 1
    fi
}

make_runs() {
    awk -v dir="$WORK" 'BEGIN {
        for (r = 1; r <= 2; r++) {
            run = dir "/run" r
            system("mkdir -p " run)
            ledger = run "/ledger.jsonl"
            printf "{\"event\": \"start\", \"time\": 1800000000, \"attempt\": 1, \"ranks\": 2, \"hosts\": [\"a\"]}\n{\"event\": \"hardware\", \"time\": 1800000001, \"attempt\": 1, \"step\": 0, \"devices\": \"\", \"threads\": 1, \"memory_planned\": 9000000}\n" >ledger
            for (i = 1; i <= 3000; i++) {
                if (i == 900)
                    printf "{\"event\": \"drain\", \"time\": %d, \"attempt\": 1, \"node\": \"a\", \"reason\": \"uncorrectable errors of the memory\"}\n", 1800000100 >ledger
                printf "{\"attempt\": 1, \"step\": %d, \"tokens\": %d, \"loss\": %g, \"lr\": 0.001, \"grad_norm\": %g, \"step_ms\": 90, \"tokens_per_s\": %d, \"mfu\": 0.4, \"time\": %.3f, \"loader_ms\": 1.5, \"step_ms_min\": 89, \"step_ms_max\": %g, \"slowest_rank\": 1}\n", i, i * 99, 2 + 40 / (i + 9) + rand() / 3, 1 + rand(), 1000 + 50 * rand(), 1800000002 + i / 10, 90 + rand() >(run "/metrics.jsonl")
                if (i % 300 == 0) {
                    printf "{\"event\": \"commit\", \"time\": %.3f, \"attempt\": 1, \"step\": %d, \"bytes\": 5000000, \"seconds\": 0.4, \"stage_s\": 0.01}\n", 1800000002 + i / 10, i >ledger
                    printf "{\"attempt\": 1, \"step\": %d, \"eval_loss\": %g, \"tokens\": 9, \"seconds\": 0.1}\n{\"attempt\":1,\"step\":%d,\"tasks\":[{\"task\":\"</svg><script>alert(1)</script>\",\"examples\":9,\"accuracy\":%g}]}\n", i, 2 + 40 / i, i, i / 4000 >(run "/eval.jsonl")
                }
            }
        }
    }'
}

# Every plot is in the page as the browser has it, with lines in it.
has_plots() { # PAGE
    browse --dump-dom "file://$1" >"$WORK/dom" || return 1
    no_errors || return 1
    local name
    for name in $PLOTS; do
        sed -n "/<svg id=\"$name\"/,/<\/svg>/p" "$WORK/dom" |
            grep -q '<path\|<circle' || { echo "no plot $name"; return 1; }
    done
    # the script has run to its end, and changed nothing else
    grep -q '<div id="tip"' "$WORK/dom"
}

# A picture with many colours: a blank page has one.
shows() { # PAGE WIDTH SCHEME
    local picture=$WORK/$2-$3.png
    browse --window-size="$2,1400" --screenshot="$picture" \
        --blink-settings="preferredColorScheme=$3" "file://$1" >/dev/null ||
        return 1
    no_errors && [ "$(wc -c <"$picture")" -gt 20000 ] &&
        echo "$(wc -c <"$picture") bytes of PNG"
}

# On a telephone no column of text shrinks to a letter: tables scroll instead,
# and the page itself is no wider than the screen.
columns_are_wide() { # PAGE
    sed '$d' "$1" >"$WORK/narrow.html"
    cat >>"$WORK/narrow.html" <<'END'
<script>
var least = 1e9;
document.querySelectorAll('details').forEach(function (d) { d.open = true });
document.querySelectorAll('td:not(.n)').forEach(function (c) {
    least = Math.min(least, c.getBoundingClientRect().width) });
document.title = 'least ' + Math.round(least) + ' page ' +
    document.documentElement.scrollWidth;
</script>
</body></html>
END
    browse --window-size=400,1400 --dump-dom "file://$WORK/narrow.html" |
        sed -n 's/.*<title>\(least [0-9]* page [0-9]*\)<.*/\1/p' |
        awk '{ print; good = $2 >= 150 && $2 < 1e9 && $4 <= 400 }
            END { exit !good }'
}

[ -x "$BIN/tessera-report" ] || skip "$BIN/tessera-report was not built: make"
work_make
find_chromium || skip "no Chromium, and Debian's package cannot be had"
mkdir "$WORK/home"
make_runs

check "a report of one run" \
    "$BIN/tessera-report" "$WORK/run1" --out "$WORK/one.html"
check "a report of two" \
    "$BIN/tessera-report" "$WORK/run1" "$WORK/run2" --out "$WORK/two.html"
check "the browser finds every plot, and no error" has_plots "$WORK/one.html"
check "... of two runs" has_plots "$WORK/two.html"
check "columns of text are wide on a telephone" \
    columns_are_wide "$WORK/one.html"
check "... of two runs" columns_are_wide "$WORK/two.html"
for width in 400 1600; do
    check "it shows them $width pixels wide" shows "$WORK/one.html" "$width" 1
    check "... in the dark" shows "$WORK/one.html" "$width" 0
    check "dark is another picture" \
        bash -c "! cmp -s '$WORK/$width-0.png' '$WORK/$width-1.png'"
done

finish_points
