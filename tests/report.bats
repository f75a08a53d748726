#!/usr/bin/env bats
# tessera-report and tessera-top: what they write of runs made by hand, bad
# input, hostile text, a million steps.

bats_require_minimum_version 1.5.0

BIN=${TESSERA_BIN:-$BATS_TEST_DIRNAME/../build/bin}

setup_file() {
    export DIR=$BATS_FILE_TMPDIR
    make_run "$DIR/one" 200 2e-3
    make_run "$DIR/two" 150 6e-3
}

# make_run DIR STEPS LR: two attempts, the second begins again ten steps before
make_run() {
    mkdir -p "$1"
    awk -v steps="$2" -v lr="$3" -v dir="$1" 'BEGIN {
        srand(18)
        t = 1800000000
        ledger = dir "/ledger.jsonl"
        for (a = 1; a <= 2; a++) {
            from = a == 1 ? 0 : steps / 2 - 10
            printf "{\"event\": \"start\", \"time\": %.3f, \"attempt\": %d, \"job\": 7, \"ranks\": 4, \"hosts\": [\"n1\", \"n2\"]}\n", t, a >ledger
            printf "{\"event\": \"hardware\", \"time\": %.3f, \"attempt\": %d, \"devices\": \"4 GPUs for 4 ranks\", \"step\": %d, \"memory_planned\": 4000000000, \"threads\": 2}\n", t + 2, a, from >ledger
            t += 3
            for (i = from + 1; i <= (a == 1 ? steps / 2 : steps); i++) {
                t += 0.1
                printf "{\"attempt\": %d, \"step\": %d, \"tokens\": %d, \"loss\": %.6f, \"lr\": %g, \"grad_norm\": %.4f, \"step_ms\": 90, \"tokens_per_s\": 11000, \"mfu\": 0.41, \"time\": %.3f, \"loader_ms\": 1.5, \"step_ms_min\": 89, \"step_ms_max\": %.2f, \"slowest_rank\": 3}\n", a, i, i * 1024, 2 + 4 / i + rand() / 9, lr, 1 + rand(), t, 90 + rand() >(dir "/metrics.jsonl")
                if (i % 40 == 0) {
                    printf "{\"event\": \"commit\", \"time\": %.3f, \"attempt\": %d, \"step\": %d, \"bytes\": 5000000, \"seconds\": 0.4, \"stage_s\": 0.01}\n", t, a, i >ledger
                    printf "{\"attempt\": %d, \"step\": %d, \"eval_loss\": %.5f, \"tokens\": 4096, \"seconds\": 0.02}\n", a, i, 2.1 + 4 / i >(dir "/eval.jsonl")
                    printf "{\"attempt\":%d,\"step\":%d,\"tasks\":[{\"task\":\"words\",\"examples\":9,\"right\":3,\"accuracy\":0.3333}],\"gauntlet\":null}\n", a, i >(dir "/eval.jsonl")
                }
            }
            if (a == 1) {
                printf "{\"event\":\"exclude\",\"time\":%.3f,\"attempt\":2,\"job\":7,\"node\":\"n2\",\"code\":\"gpu_ecc\",\"reason\":\"2 uncorrectable errors\"}\n", t + 4 >ledger
                printf "{\"event\":\"restart\",\"time\":%.3f,\"attempt\":1,\"job\":7,\"code\":75,\"reason\":\"rank 3 is silent\"}\n", t + 5 >ledger
                t += 9
            }
        }
        printf "{\"event\": \"memory\", \"time\": %.3f, \"attempt\": 2, \"planned\": 4000000000, \"peak\": 3900000000}\n", t + 1 >ledger
        printf "{\"event\": \"stop\", \"time\": %.3f, \"attempt\": 2, \"step\": %d, \"code\": 0, \"reason\": \"max_duration reached\"}\n", t + 1, steps >ledger
        printf "{\"attempt\":2,\"step\":%d,\"number\":0,\"prompt\":\"Once\",\"text\":\" upon a time\",\"tokens\":3,\"end\":\"tokens\"}\n", steps >(dir "/samples.jsonl")
        printf "run: {\n    dir = \"%s\";\n};\ntrain: {\n    max_duration = \"%dba\";\n    seed = 17;\n};\noptimizer: {\n    lr = %s;\n};\n", dir, steps, lr >(dir "/config.cfg")
    }'
}

lacks() { # PATTERN [FILE]
    if LC_ALL=C grep -En "$@"; then
        return 1
    fi
}

report() { # EXIT ARGUMENT ...
    local want=$1
    shift
    run "$BIN/tessera-report" "$@"
    [ "$status" -eq "$want" ] || { echo "$status: $output"; return 1; }
}

PLOTS="loss learning-rate gradient-norm throughput mfu step-time rank-spread
    loader checkpoint-stall checkpoint-size memory tasks timeline goodput"

@test "a page with every plot, and all figures" {
    report 0 "$DIR/one" --out "$DIR/one.html" \
        --json "$DIR/one.json" --price 3
    for name in $PLOTS; do
        grep -q "<svg id=\"$name\"" "$DIR/one.html"
    done
    grep -q "GPU hours" "$DIR/one.html"
    grep -q "uncorrectable errors" "$DIR/one.html"
    grep -q "upon a time" "$DIR/one.html"
    # cells do not shrink to a letter (measured in tests/interop/report.sh)
    lacks 'th,td\{[^}]*overflow-wrap:anywhere' "$DIR/one.html"
    # nothing is fetched
    lacks 'src=|href=|url\(|@import|https?:' "$DIR/one.html"
    grep -q '"replayed_steps": 10' "$DIR/one.json"
    grep -q '"excluded_nodes": 1' "$DIR/one.json"
    grep -q '"last_step": 200' "$DIR/one.json"
}

@test "the kinds of time add up to the wall time" {
    report 0 "$DIR/one" --json "$DIR/sum.json"
    awk '/^  "seconds": \{/ { inside = 1; next }
        inside && /\}/ { inside = 0 }
        inside { gsub(/[,]/, ""); sum += $NF }
        /"wall_s"/ { gsub(/,/, ""); wall = $2 }
        END { exit !(wall > 30 && sum - wall < 1e-6 && wall - sum < 1e-6) }' \
        "$DIR/sum.json"
}

@test "several runs over each other, with the settings that differ" {
    report 0 "$DIR/one" "$DIR/two" --out "$DIR/both.html"
    # a sweep's runs by their values, which their names would be cut before
    cp -r "$DIR/one" "$DIR/000-train.max_duration=200ba-optimizer.lr=2e-3"
    cp -r "$DIR/two" "$DIR/001-train.max_duration=150ba-optimizer.lr=6e-3"
    report 0 "$DIR"/00[01]-* --out "$DIR/swept.html"
    grep -q '>000: 200ba, 0.002<' "$DIR/swept.html" && grep -q '>001: 150ba, 0.006<' "$DIR/swept.html"
    grep -q "one, training" "$DIR/both.html"
    grep -q "two, training" "$DIR/both.html"
    sed -n '/Settings that differ/,/Settings that are the same/p' \
        "$DIR/both.html" >"$DIR/differ"
    grep -q optimizer.lr "$DIR/differ"
    lacks train.seed "$DIR/differ"
    # two of one name are told apart by their paths
    mkdir -p "$DIR/x" && cp -r "$DIR/two" "$DIR/x/one"
    report 0 "$DIR/one" "$DIR/x/one" --out "$DIR/names.html"
    grep -q "x/one, training" "$DIR/names.html"
}

@test "commands and options of plug-ins stay in the run's folder" {
    cp -r "$DIR/one" "$DIR/private"
    cat >>"$DIR/private/config.cfg" <<'END'
hooks: {
    on_fit_end = "curl -H token:hunter2 https://example.org";
};
plugins = ( { path = "x.so"; options = "key=hunter2"; } );
algorithms = ( { name = "plugin"; path = "x.so"; options = "key=hunter2"; } );
END
    report 0 "$DIR/private" --out "$DIR/private.html" --json "$DIR/private.json"
    grep -q 'hooks.on_fit_end</code></td><td>(not shown)' "$DIR/private.html"
    grep -q '"plugins": "(not shown)"' "$DIR/private.json"
    lacks hunter2 "$DIR/private.html"
    lacks hunter2 "$DIR/private.json"
}

@test "text from files can do nothing in a page or a terminal" {
    local run_dir="$DIR/<script>alert(1)<" bad='\u001b]0;x\u0007<script>alert(2)</script>\"onload=\"alert(3)'
    cp -r "$DIR/one" "$run_dir"
    cat >>"$run_dir/ledger.jsonl" <<END
{"event": "exclude", "time": 1800000100, "attempt": 2, "node": "$bad", "reason": "$bad"}
{"event": "$bad", "time": 1800000101, "attempt": 2, "reason": "$bad"}
END
    echo "{\"attempt\":2,\"step\":200,\"number\":1,\"prompt\":\"$bad\",\"text\":\"$bad\\u202e\"}" >>"$run_dir/samples.jsonl"
    echo "{\"attempt\":2,\"step\":200,\"tasks\":[{\"task\":\"$bad\",\"examples\":1,\"accuracy\":1}]}" >>"$run_dir/eval.jsonl"
    printf 'evil: {\n <script>alert(4)</script> = "</style><script>";\n};\n' >>"$run_dir/config.cfg"
    report 0 "$run_dir" "$DIR/one" --out "$DIR/bad.html"
    report 0 "$run_dir" --out "$DIR/bad1.html"
    for page in bad bad1; do
        # the page's own script alone
        [ "$(grep -o '<script' "$DIR/$page.html" | wc -l)" -eq 1 ]
        lacks '"onload' "$DIR/$page.html"
        lacks "$(printf '[\001-\010\033]')" "$DIR/$page.html"
    done
    run -0 "$BIN/tessera-top" "$run_dir" --once
    lacks "$(printf '[\001-\010\033]')" <<<"$output"
}

@test "bad input is one line of error" {
    bad() { # WORDS ARGUMENT ...
        local words=$1
        shift
        run "$BIN/tessera-report" "$@"
        [ "$status" -ne 0 ] && [ "$status" -lt 128 ]
        [[ "$output" == *"$words"* ]]
        [ "${#lines[@]}" -eq 1 ]
    }
    cd "$DIR"
    mkdir -p empty
    bad "give a run directory" --out x.html
    bad "neither metrics.jsonl nor ledger.jsonl" empty
    bad "no such run directory" nowhere
    bad "is no folder" one/config.cfg
    bad "no option --frobnicate" one --frobnicate
    bad "--price takes" one --price nan
    bad "at most 8" one one one one one one one one one
    bad "nowhere/x.html" one --out nowhere/x.html
    mkdir -p pipe && mkfifo pipe/metrics.jsonl
    bad "no regular file" pipe
    # what others may have put there: links to any file, and a file without end
    for file in metrics.jsonl ledger.jsonl eval.jsonl samples.jsonl config.cfg; do
        rm -rf link && cp -r one link && mv "link/$file" link/behind
        ln -s behind "link/$file"
        bad "link/$file: is a link" link
        rm "link/$file" && mkfifo "link/$file"
        bad "link/$file: is no regular file" link
        rm "link/$file"
        truncate -s 8T "link/$file" 2>/dev/null || truncate -s 1T "link/$file"
        run timeout 20 "$BIN/tessera-report" link
        [ "$status" -eq 93 ]
        [[ "$output" == *"link/$file: 64 MiB without the end of a line"* ]]
    done
    rm -r link
    cp -r two large
    seq -f 'a%.0f = 1;' 200000 >large/config.cfg
    bad "config.cfg: more than 1048576 bytes" large
    rm large/config.cfg && truncate -s 2M large/config.cfg
    bad "config.cfg: more than 1048576 bytes" large
    [ ! -e nowhere ]
}

@test "files that are torn, empty or alone" {
    cd "$DIR"
    for file in ledger metrics; do
        mkdir -p "alone-$file"
        cp "one/$file.jsonl" "alone-$file"
        truncate -s -20 "alone-$file/$file.jsonl"
        report 0 "alone-$file" --out alone.html --json alone.json
        grep -q '"skipped_lines": 1' alone.json
    done
    # the last line of settings counts without its end
    cp -r one endless && printf 'last = 4711;' >>endless/config.cfg
    report 0 endless --out endless.html
    grep -q '<code>last</code></td><td>4711</td>' endless.html
    mkdir -p zero && touch zero/metrics.jsonl zero/ledger.jsonl zero/config.cfg
    report 0 zero --out zero.html
    grep -q "No step is recorded" zero.html
    head -c 300000 /dev/urandom >zero/metrics.jsonl
    head -c 300000 /dev/urandom >zero/ledger.jsonl
    head -c 300000 /dev/urandom >zero/config.cfg
    report 0 zero --out zero.html
}

@test "an attempt whose start nobody told has no time" {
    mkdir -p "$DIR/nostart"
    echo '{"event": "commit", "time": 1800000000, "attempt": 1, "step": 5, "bytes": 9, "seconds": 1}' \
        >"$DIR/nostart/ledger.jsonl"
    report 0 "$DIR/nostart" --out "$DIR/nostart.html"
    lacks '[0-9]{4,}d' "$DIR/nostart.html"
    run -0 "$BIN/tessera-top" "$DIR/nostart" --once
    [[ "${lines[0]}" == "nostart  attempt 1, 1 rank on 1 node" ]]
}

@test "tessera top: one picture, plain, of a given width of nothing but ASCII" {
    run -0 "$BIN/tessera-top" "$DIR/one" --once
    [[ "$output" == *"200/200"*"100.0 %"* ]]
    [[ "$output" == *"1 left out"* ]]
    [[ "$output" == *"n2: 2 uncorrectable errors"* ]]
    [[ "$output" == *"89.0 to 90."*"by the ranks' clocks, waiting for others"*"included"* ]]
    # of a run that has ended: why, and no time that is left
    [[ "$output" == *"ended"*"code 0: max_duration reached"* ]]
    lacks ETA <<<"$output"
    lacks '[^ -~]' <<<"$output"
    [ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' <<<"$output")" -le 80 ]
    run -64 "$BIN/tessera-top"
    run -64 "$BIN/tessera-top" "$DIR/one" --interval 0
    run -93 "$BIN/tessera-top" "$DIR/empty" --once
    # where the output is no terminal it ends with the run
    run -0 timeout 20 "$BIN/tessera-top" "$DIR/one"
}

@test "events say what has changed, and lines break between words" {
    cp -r "$DIR/one" "$DIR/changed"
    cat >>"$DIR/changed/ledger.jsonl" <<'END'
{"event": "settings", "time": 1800000100, "attempt": 2, "step": 9, "changed": {"optimizer.lr": ["0.002", "0.001"], "data.mixture": ["", "a 0.5"], "hooks.on_fit_end": ["", "curl hunter2"]}}
{"event": "data", "time": 1800000101, "attempt": 2, "step": 9, "parts": [{"from": 0, "streams": [{"name": "old"}]}, {"from": 9, "streams": [{"name": "docs"}, {"name": "code"}]}]}
{"event": "plugins", "time": 1800000102, "attempt": 2, "plugins": [{"name": "loss_target"}]}
END
    run -0 "$BIN/tessera-top" "$DIR/changed" --once
    words=$(tr -s ' \n' ' ' <<<"$output")
    [[ "$words" == *"settings optimizer.lr 0.002 -> 0.001, data.mixture empty -> a 0.5, hooks.on_fit_end (not shown) -> (not shown)"* ]]
    [[ "$words" == *"data docs, code"* ]]
    [[ "$words" == *"plugins loss_target"* ]]
    [[ "$words" == *"goodput "[0-9.]*" %; initialization"*"detection"*" %"* ]]
    lacks hunter2 <<<"$output"
    lacks '^.{81}' <<<"$output"
    report 0 "$DIR/changed" --out "$DIR/changed.html"
    grep -q 'optimizer.lr 0.002 -&gt; 0.001' "$DIR/changed.html"
    lacks hunter2 "$DIR/changed.html"
}

@test "tessera top without a terminal ends with a run that failed" {
    mkdir -p "$DIR/failed"
    ends() { # EVENT...: after attempt 1 has begun
        printf '{"event": "start", "time": 1800000000, "attempt": 1, "ranks": 1}\n' \
            >"$DIR/failed/ledger.jsonl"
        printf '{"attempt": 1, "time": %s}\n' "$@" >>"$DIR/failed/ledger.jsonl"
        run timeout "$seconds" "$BIN/tessera-top" "$DIR/failed" --interval 0.1
    }
    local seconds=20 code
    for code in 0 1 64 93 137; do
        ends "1800000001, \"event\": \"stop\", \"code\": $code"
        [ "$status" -eq 0 ]
    done
    ends '1800000001, "event": "stop", "by": "launch", "code": 93'
    [ "$status" -eq 0 ]
    ends '1800000001, "event": "stop", "code": 75' \
        '1800000002, "event": "give-up", "code": 93'
    [ "$status" -eq 0 ]
    seconds=1
    for code in 75 85; do
        ends "1800000001, \"event\": \"stop\", \"code\": $code"
        # timeout(1) asked it to end
        [ "$status" -eq 124 ]
    done
    ends '1800000001, "event": "restart", "code": 137'
    [ "$status" -eq 124 ]
    # given up once, and begun again
    ends '1800000001, "event": "give-up", "code": 93' \
        '1800000002, "event": "commit", "step": 1'
    [ "$status" -eq 124 ]
}

@test "tessera top tells of hooks and trackers that failed" {
    mkdir -p "$DIR/events"
    cat >"$DIR/events/ledger.jsonl" <<'END'
{"event": "start", "time": 1800000000, "attempt": 1, "ranks": 1}
{"event": "tracking-lost", "time": 1800000001, "attempt": 1, "sink": "mlflow", "records": 3, "reason": "no answer"}
{"event": "hooks", "time": 1800000002, "attempt": 1, "hooks": {"eval_end": {"called": 9, "failed": 2, "ended": 1, "replaced": 3}}}
{"event": "hooks", "time": 1800000003, "attempt": 1, "hooks": [7]}
END
    run -0 "$BIN/tessera-top" "$DIR/events" --once
    [[ "$output" == *"tracking-lost no answer"* ]]
    [[ "$output" == *"on_eval_end: of 9 calls 2 failed, 1 took too long"* ]]
    report 0 "$DIR/events" --out "$DIR/events.html"
    grep -q "of 9 calls 2 failed, 1 took too long, 3 were left out" \
        "$DIR/events.html"
}

@test "tessera top follows a run, and leaves the terminal as it was" {
    command -v script >/dev/null || skip "no script(1)"
    mkdir -p "$DIR/live"
    head -n 5 "$DIR/one/metrics.jsonl" >"$DIR/live/metrics.jsonl"
    head -n 2 "$DIR/one/ledger.jsonl" >"$DIR/live/ledger.jsonl"
    TERM=xterm LC_ALL=C.UTF-8 script -qec "stty rows 30 cols 100; exec $BIN/tessera-top $DIR/live --interval 0.1" \
        "$DIR/typescript" >/dev/null 2>&1 </dev/null 3>&- &
    local pid=$! top _
    for _ in $(seq 600); do
        grep -aq "5, 5.1K tokens" "$DIR/typescript" 2>/dev/null && break
        sleep 0.1
    done
    sed -n 6,9p "$DIR/one/metrics.jsonl" >>"$DIR/live/metrics.jsonl"
    for _ in $(seq 600); do
        grep -aq "9, 9.2K tokens" "$DIR/typescript" && break
        sleep 0.1
    done
    top=$(pgrep -f "tessera-top $DIR/live --interval" | tail -n 1)
    kill -INT "$top"
    wait "$pid"
    grep -aq "9, 9.2K tokens" "$DIR/typescript"
    # the screen and the cursor are given back, last of all
    tail -c 200 "$DIR/typescript" | grep -aq "$(printf '\033\\[?25h\033\\[?1049l')"
}

@test "a million steps" {
    mkdir -p "$DIR/long"
    awk 'BEGIN { for (i = 1; i <= 1000000; i++)
        printf "{\"attempt\": 1, \"step\": %d, \"tokens\": %d, \"loss\": %s, \"lr\": 0.001, \"grad_norm\": 1.%d, \"step_ms\": 90.125, \"tokens_per_s\": 11000.5, \"mfu\": 0.41, \"mfu_causal\": 0.4, \"peak_flops\": 1e12, \"peak_source\": \"measured\", \"time\": %d.250, \"loader_ms\": 1.5, \"step_ms_min\": 89.5, \"step_ms_max\": 9%d.5, \"slowest_rank\": 3}\n", i, i * 1024, i == 500000 ? "19000000" : "2." (i % 89), i % 97, 1800000000 + i / 10, i % 7 }' \
        >"$DIR/long/metrics.jsonl"
    local from=$EPOCHREALTIME
    report 0 "$DIR/long" --out "$DIR/long.html" --json "$DIR/long.json"
    echo "# 10^6 steps: $(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }'), $(wc -c <"$DIR/long.html") bytes" >&3
    [ "$(wc -c <"$DIR/long.html")" -lt 2000000 ]
    # the one step that went wrong is seen
    grep -Eq '19000000|1\.9e\+?0?7' "$DIR/long.json"
    rm -r "$DIR/long"
}
