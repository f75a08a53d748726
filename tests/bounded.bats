#!/usr/bin/env bats
# tests/bounded, which runs every test of make check: what hangs is told of and ended.

bounded() {
    run "$BATS_TEST_DIRNAME/bounded" "$@"
    echo "$output"
}

script() { # NAME, and its text on standard input, with % for the @ of a test
    sed 's/^%/@/' >"$BATS_TEST_TMPDIR/$1"
    chmod +x "$BATS_TEST_TMPDIR/$1"
}

@test "the words and the code of a test are passed on" {
    bounded sh -c 'echo ok 1; exit 3'
    [ "$status" -eq 3 ] && [ "$output" = "ok 1" ]
    bounded sh -c 'kill -SEGV $$'
    [ "$status" -eq 139 ]
    bounded "$BATS_TEST_TMPDIR/none"
    [ "$status" -ne 0 ]
    printf '#!/usr/bin/env perl\nprint "ok 2\\n"' >"$BATS_TEST_TMPDIR/unexecutable"
    bounded "$BATS_TEST_TMPDIR/unexecutable"
    [ "$status" -eq 0 ] && [ "$output" = "ok 2" ]
}

@test "a test that hangs fails by its name, those behind it run, and the file tidies up" {
    script hangs.bats <<'END'
#!/usr/bin/env bats
teardown_file() {
    echo "# tidied" >&3
}

%test "one" {
    sleep 1000 3>&- &
    wait $!
}

%test "two" {
    true
}
END
    TESSERA_SILENCE_S=4 bounded bats --tap "$BATS_TEST_TMPDIR/hangs.bats"
    [ "$status" -ne 0 ]
    [[ $output == *"no word for 4 s"*"sleep"*"not ok 1 one"*"ok 2 two"*"# tidied"* ]]
}

@test "an mpirun whose ranks are gone is ended" {
    script mpirun <<'END'
#!/usr/bin/perl
fork or exit;
sleep 1000;
END
    # shellcheck disable=SC2016
    TESSERA_MPIRUN_S=2 bounded sh -c \
        '"$0/mpirun"; echo "code $?"' "$BATS_TEST_TMPDIR"
    [ "$status" -eq 0 ]
    [[ $output == *"outlived its ranks by 2 s"*"code 137"* ]]
}

@test "an mpirun with a rank is not" {
    script mpirun <<'END'
#!/bin/sh
sleep 6
END
    TESSERA_MPIRUN_S=2 bounded "$BATS_TEST_TMPDIR/mpirun"
    [ "$status" -eq 0 ] && [ -z "$output" ]
}
