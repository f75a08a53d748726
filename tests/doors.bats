#!/usr/bin/env bats
# make doors: what another user of a node can do to a run.

@test "names that are taken, planted checkpoints and a held lock cost a run nothing" {
    run "$BATS_TEST_DIRNAME/doors"
    echo "$output"
    [ "$status" -ne 77 ] || skip "${output##*$'\n'}"
    [ "$status" -eq 0 ]
    grep -x "planted: 8 of 8 refused" <<<"$output"
    grep -x "guard: 2 of 2 starts not held up" <<<"$output"
    [ "${lines[-1]}" = "doors: 24 of 24, home unchanged" ]
}
