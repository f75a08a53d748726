#!/usr/bin/env bats
# hooks.on_*: what commands get, and that nothing they do reaches the run.

load run_helpers

none_in() { # GROUP of processes
    ! pgrep -g "$1"
}

setup_file() {
    data_folder
    reference
}

@test "a command gets the event's line of JSON, once for each" {
    out=$DIR/out
    ends 0 '' train 2 "$DIR/a" hooks.interval=10ba "hooks.on_fit_start=cat >$out.1" \
        "hooks.on_batch_end=cat >>$out.2; echo \$TESSERA_EVENT >>$out.e" \
        "hooks.on_eval_end=cat >>$out.3" "hooks.on_fit_end=cat >$out.4"
    [[ $output != *"exit status"* ]]
    [ "$(jq -r '"\(.event) \(.step) \(.finished)"' "$out.1")" = "fit_start 0 false" ]
    # calls may be left out where steps are quicker than they are, not the last
    tail -n 1 "$out.2" | jq -e '.step == 24 and .finished and .loss > 0 and
        .scalars["train/loss"] == .loss and .run != ""'
    [ "$(tail -n 1 "$out.e")" = batch_end ]
    jq -es '.[-1].eval_loss > 0' "$out.3"
    [ "$(jq -r .event "$out.4")" = fit_end ]
    [ "$(digest "$DIR/a")" = "$(cat "$DIR/ref.digest")" ]
}

@test "hooks take turns, each call gets a line, and the end waits once" {
    ends 0 '' train 1 "$DIR/c" hooks.interval=1ba hooks.timeout_s=3 \
        "hooks.on_batch_end=while read -r line; do echo \"\$line\" >>$DIR/lines; done; sleep 0.2" \
        "hooks.on_eval_end=echo eval >>$DIR/evals"
    jq -es 'all(.event == "batch_end")' "$DIR/lines"
    [ -s "$DIR/evals" ]

    # five that never end, with signals ignored: one wait for all of them
    local hang="trap '' TERM; sleep 1000"
    local begin=$SECONDS
    ends 0 '' train 1 "$DIR/d" hooks.timeout_s=4 "hooks.on_fit_start=$hang" \
        "hooks.on_batch_end=$hang" "hooks.on_eval_end=$hang" \
        "hooks.on_epoch_start=$hang" "hooks.on_fit_end=$hang"
    echo "# five hanging commands, hooks.timeout_s=4: $((SECONDS - begin)) s" >&3
    [[ $output == *"were left out"* ]]
}

@test "a program of MPI in a hook is no rank of the run" {
    train 2 "$DIR/mpi" train.max_duration=2ba hooks.timeout_s=60 checkpoint.interval=1ba \
        "hooks.on_fit_end='$BIN/tessera-generate' '$DIR/ref' --prompt a --max-tokens 2 >'$DIR/mpi.text'"
    "$BIN/tessera-generate" "$DIR/ref" --prompt a --max-tokens 2 >"$DIR/alone.text"
    cmp "$DIR/alone.text" "$DIR/mpi.text"
}

@test "a hook, and what it submits, is no process of the attempt" {
    TESSERA_ATTEMPT_OF=4711 train 1 "$DIR/of" train.max_duration=1ba \
        "hooks.on_fit_start=echo \"of=\$TESSERA_ATTEMPT_OF.\" >'$DIR/of.env'"
    [ "$(cat "$DIR/of.env")" = of=. ]
}

@test "a command that writes without end is ended" {
    timeout 600 bash -c "$(declare -f command_of train); $(declare -p BIN CONF MPIRUN DIR SHORT)
        train 1 '$DIR/y' hooks.timeout_s=0.3 hooks.on_fit_end=yes" 2>&1 | tail -n 2 >"$DIR/y.end"
    [[ $(cat "$DIR/y.end") == *"1 took too long"* ]]
}

@test "what a command leaves behind holds nothing of the run open" {
    # mpirun waits for whoever has the ranks' outputs
    local begin=$SECONDS
    train 2 "$DIR/e" "hooks.on_fit_end=setsid sleep 1000 & echo \$! >$DIR/left; ls -l /proc/self/fd >$DIR/fds" \
        >"$DIR/e.log" 2>&1
    echo "# a daemon behind a run: $((SECONDS - begin)) s" >&3
    kill -0 "$(cat "$DIR/left")" # it is still there
    kill "$(cat "$DIR/left")"
    ! grep -q " [4-9] -> \| [1-9][0-9] -> " "$DIR/fds"
}

@test "commands that fail, hang, fork or read nothing do the run no harm" {
    ends 0 "hooks.on_fit_start ended with exit status 3" train 1 "$DIR/b" hooks.timeout_s=5 \
        "hooks.on_fit_start=exit 3" \
        "hooks.on_batch_end=(trap '' TERM HUP; sleep 1000) & echo \$\$ >>$DIR/pid; sleep 1000" \
        "hooks.on_eval_end=exec <&-; kill -9 \$\$" \
        "hooks.on_fit_end=no-such-command"
    [[ $output == *"hooks.on_batch_end took longer than hooks.timeout_s"* ]]
    [[ $output == *"hooks.on_eval_end was ended by signal 9"* ]]
    [[ $output == *"hooks.on_fit_end ended with exit status 127"* ]]
    [[ $output == *"hooks.on_fit_start: of 1 calls 1 failed"* ]]
    [ "$(digest "$DIR/b")" = "$(cat "$DIR/ref.digest")" ]
    jq -es 'map(select(.event == "hooks")) | .[0].hooks.fit_end.failed == 1' \
        "$DIR/b/ledger.jsonl"
    # and none of their processes is left
    while read -r group; do
        wait_for 5 none_in "$group"
    done <"$DIR/pid"
}
