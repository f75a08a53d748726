#!/usr/bin/env bats
# What make does in a build folder that it finds.

# plan FOLDER TARGET NAME=VALUE...: what would be compiled, nothing is
plan() {
    local folder=$1 target=$2
    shift 2
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory -n \
        -C "$BATS_TEST_DIRNAME/.." "B=$folder" "$folder/$target" "$@"
}

@test "what a feature decides is made anew when the feature changes" {
    local folder=$BATS_TEST_TMPDIR/build
    mkdir -p "$folder/kernels"
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory \
        -C "$BATS_TEST_DIRNAME/.." "B=$folder" CUDA=0 MPI=0 "$folder/features"
    touch "$folder/kernels/kernels.o" "$folder/kernels/kernel_work.o"
    run plan "$folder" kernels/kernels.o CUDA=0 MPI=0
    [[ $output == *"up to date"* ]]
    # as before a build with CUDA, or by a machine that has it
    sed -i 's/CUDA=0/CUDA=1/' "$folder/features"
    touch "$folder/kernels/kernels.o" "$folder/kernels/kernel_work.o"
    run plan "$folder" kernels/kernel_work.o CUDA=0 MPI=0
    [[ $output == *"up to date"* ]]
    grep -q CUDA=0 "$folder/features"
    run plan "$folder" kernels/kernels.o CUDA=0 MPI=0
    [[ $output == *"CC    kernels/kernels.c"* ]]
}
