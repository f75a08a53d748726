# shellcheck shell=bash disable=SC2034,SC2154 # variables of tests/gpu/run
# Where the libraries are that the programs open at run time, for tests/gpu/run:
# carried ones, the user's, the loader's own, the CUDA toolkit's, Python's.

# Names as the programs open them; NVRTC is cuDNN's, of cuBLASLt's major version.
library_names() {
    local files=("$PROGRAMS/products") name
    [ ! -x "$PROGRAMS/test_nccl" ] || files+=("$PROGRAMS/test_nccl")
    for name in cublasLt cudnn nccl; do
        grep -ahoE "lib$name\\.so\\.[0-9]+" "${files[@]}" | head -n 1
    done
    grep -aoE 'libcublasLt\.so\.[0-9]+' "$PROGRAMS/products" | head -n 1 | sed 's/cublasLt/nvrtc/'
}

library_folders() {
    local prefix
    printf '%s\n' ${LD_LIBRARY_PATH:+${LD_LIBRARY_PATH//:/ }} /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib \
        /usr/lib/*-linux-gnu /usr/lib64
    for prefix in /usr/lib /usr/local/lib /opt/*/lib /opt/*/.venv/lib "$HOME"/.local/lib \
        "${VIRTUAL_ENV:-/none}"/lib "${CONDA_PREFIX:-/none}"/lib "$HOME"/*/lib; do
        printf '%s\n' "$prefix"/python3*/*-packages/nvidia/*/lib
    done
    python3 -c 'import sys
for path in sys.path:
    print(path + "/nvidia")' 2>/dev/null | while read -r prefix; do
        [ ! -d "$prefix" ] || printf '%s\n' "$prefix"/*/lib
    done
}

# Sets LIBRARIES, a search path, and FOUND, a line "NAME PLACE" for each; PLACE
# is empty where there is none. The loader's own places need no mention.
find_libraries() {
    local name folder place folders
    LIBRARIES=$ROOT/lib
    FOUND=
    folders=$(library_folders)
    while read -r name; do
        place=
        ! ldconfig -p 2>/dev/null | grep -qF "$name " || place="the loader's"
        while [ -z "$place" ] && read -r folder; do
            if [ -e "$folder/$name" ]; then
                place=$folder/$name
                [[ :$LIBRARIES: == *":$folder:"* ]] || LIBRARIES=$LIBRARIES:$folder
            fi
        done <<<"$folders"
        FOUND+="$name $place"$'\n'
    done < <(library_names)
    for folder in /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
        [ ! -e "$folder/libcuda.so.1" ] || LIBRARIES=$LIBRARIES:$folder
    done
    LIBRARIES=$LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# say_libraries DEVICE: a check for each; without one all that follows would run
# on slower kernels of our own, or not at all. DEVICE is what the programs say
# that they have opened.
say_libraries() {
    local name place want
    for want in cublasLt cudnn nccl nvrtc; do
        read -r name place < <(grep "^lib$want\\." <<<"$FOUND")
        if [ -z "${name:-}" ]; then
            verdict "library-$want" FAILED "this build does not know it: its headers were missing (make info)"
        elif [ -z "$place" ]; then
            verdict "library-$want" FAILED "no $name in the toolkit's, the system's and Python's folders: install it or set LD_LIBRARY_PATH"
        else
            verdict "library-$want" ok "$name: $place"
        fi
    done
    if [[ "$1" =~ (cuBLASLt|cuDNN)\ 0 ]]; then
        verdict libraries-opened FAILED "${BASH_REMATCH[1]} was not opened: $1"
    else
        verdict libraries-opened ok "$1"
    fi
}
