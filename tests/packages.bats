#!/usr/bin/env bats
# What make install and make deb make: a tree that plug-ins are built from, and two
# packages that dpkg installs.

load run_helpers

setup_file() {
    data_folder
    built install "PREFIX=$DIR/tree" "MODULEDIR=$DIR/tree/modules"
}

# built TARGET NAME=VALUE...: make, with the features of the programs here
built() {
    # shellcheck disable=SC2046 # several words
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory \
        -C "$BATS_TEST_DIRNAME/.." "B=$(dirname "$BIN")" \
        $(grep -oE '(MPI|CUDA)=[01]' "$(dirname "$BIN")/features") "$@" >"$DIR/make.log" 2>&1
}

@test "a plug-in is built by pkg-config from an installed tree, and runs there" {
    local flags
    export PKG_CONFIG_PATH=$DIR/tree/share/pkgconfig
    [ "$(pkg-config --modversion tessera)" = "$("$DIR/tree/bin/tessera" --version | grep -o '[0-9.]*$')" ]
    flags=$(pkg-config --cflags tessera)
    cp "$(pkg-config --variable=examplesdir tessera)/plugin.c" "$DIR/mine.c"
    # shellcheck disable=SC2086 # several words
    cc -std=gnu17 -Wall -Werror -shared -fPIC $flags "$DIR/mine.c" -o "$DIR/mine.so"
    chmod go-w "$DIR/mine.so"
    BIN=$DIR/tree/bin train 1 "$DIR/run" train.max_duration=2ba \
        'plugins=({path="'"$DIR/mine.so"'";options="target=0.1 patience=1";})'
    [ "$(wc -l <"$DIR/run/loss.csv")" -eq 2 ]
    # the modulefile names the same folder
    grep -q "PKG_CONFIG_PATH *\"$PKG_CONFIG_PATH\"" "$DIR"/tree/modules/tessera/*
}

# head_of FILE: its commands for who has only the programs, a line each
head_of() {
    sed -n '/^# and where only the programs are/,/^# [A-Z]\|^[^#]/p' "$1" | sed -n 's/^#   //p' |
        sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' | sed "s|PREFIX|$DIR/tree|g; s|TEXT|$DIR/text|"
}

@test "an installed configuration whose data is in a clone says what makes it, and that runs" {
    local file name count=0
    PATH=$DIR/tree/bin:$PATH
    for file in "$DIR"/tree/share/tessera/conf/*.cfg "$DIR"/tree/share/tessera/conf/sweeps/small.cfg; do
        name=$(basename "$file" .cfg)
        grep -q '^#   tessera-data tokenize' "$file"
        grep -qE '^ *(train|eval|dir|weights) = "\.\.|[{] (dir|weights) = "\.\.' "$file" || continue
        count=$((count + 1))
        mkdir "$DIR/$name"
        cd "$DIR/$name"
        head_of "$file" >commands
        if [ "$name" = small ]; then
            sed -i 's/^tessera-sweep.*/& --list/' commands
        else # all that lies in the clone has another place
            for key in run.dir data.train data.eval; do grep -q "$key=" commands; done
            sed -i 's/^sbatch .*pretrain.sbatch/tessera-train/; s|^tessera-train.*|& train.max_duration=1ba|' commands
            sed -i "s|^tessera-train.*elastic.*|& checkpoint.local_dir=$DIR/local|" commands
        fi
        [ "$name" = lora-smollm2 ] && grep -q model.weights= commands && continue
        bash -e commands >log 2>&1 || { cat log; return 1; }
        [ "$name" != small ] || continue
        [ -n "$(newest mine)" ]
        # without them it says the first
        run tessera-train "$file" run.dir=other
        [ "$status" = 93 ] && [[ "$output" == *"make a data set with: tessera-data tokenize"* ]]
    done
    [ "$count" = 6 ]
}

@test "make uninstall takes all but the administrator's settings" {
    cp -r "$DIR/tree" "$DIR/kept"
    built uninstall "PREFIX=$DIR/tree" "MODULEDIR=$DIR/tree/modules"
    [ "$(cd "$DIR/tree" && find . -type f -o -type l)" = ./etc/tessera.conf ]
    rm -r "$DIR/tree"
    mv "$DIR/kept" "$DIR/tree"
}

# field PACKAGE NAME
field() {
    dpkg-deb --field "$PACKAGES"/"$1"_*.deb "$2"
}

# a root of its own that has the system's libraries and what was installed
inside() {
    # shellcheck disable=SC2016 # the other shell's variables
    unshare -m --propagation private bash -ec '
        root=$1
        shift
        mkdir -p "$root"/{proc,tmp,usr/lib}
        for folder in lib lib64; do [ -L "/$folder" ] && ln -sfn "usr/$folder" "$root/$folder"; done
        mount --bind /usr/lib "$root/usr/lib"
        [ ! -d /usr/lib64 ] || { mkdir -p "$root/usr/lib64"; mount --bind /usr/lib64 "$root/usr/lib64"; }
        mount -t proc proc "$root/proc"
        exec chroot "$root" "$@"' inside "$DIR/root" "$@"
}

@test "make deb: two packages, of which dpkg finds all that they need here" {
    command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-shlibdeps: apt-get install dpkg-dev"
    [ "$(id -u)" -eq 0 ] || skip "dpkg needs root"
    PACKAGES=$(dirname "$BIN")/deb
    DEBFULLNAME=Packages DEBEMAIL=packages@hpc.example.edu built deb
    [ "$(grep -c warning "$DIR/make.log")" -eq 0 ]
    [[ $(field tessera Depends) == *libc6*libhdf5*libjansson4*libpcre2* ]]
    [[ ! $(field tessera-node Depends) =~ hdf5|openmpi|curl ]]
    [[ $(field tessera Recommends) == *"tessera-node (= $(field tessera-node Version))"* ]]
    # no file in both, and the root part is what install-node installs
    for name in tessera tessera-node; do
        dpkg-deb -c "$PACKAGES/${name}"_*.deb >"$DIR/$name.list"
        # all of it root's, and written by nobody else
        [ -z "$(awk '$2 != "root/root" || $1 ~ /^[^l](....w|.......w)/' "$DIR/$name.list")" ]
        awk '$1 !~ /^d/ { print $6 }' "$DIR/$name.list" | sort >"$DIR/$name.files"
    done
    [ -z "$(comm -12 "$DIR/tessera.files" "$DIR/tessera-node.files")" ]
    [ "$(grep -v /doc/ "$DIR/tessera-node.files" | xargs)" = \
        "./etc/tessera/tessera.conf ./usr/libexec/tessera/epilog ./usr/libexec/tessera/node-health ./usr/libexec/tessera/prolog ./usr/libexec/tessera/quick" ]
    if command -v lintian >/dev/null; then
        # with CUDA the libraries are those that no package of Debian has
        lintian --allow-root --fail-on error --suppress-tags custom-library-search-path "$PACKAGES"/*.deb
    fi

    # a root whose dpkg knows the packages of this system
    mkdir -p "$DIR/root/var/lib/dpkg/info" "$DIR/root/var/lib/dpkg/updates"
    cp /var/lib/dpkg/status "$DIR/root/var/lib/dpkg"
    dpkg --root="$DIR/root" --no-triggers --install "$PACKAGES"/*.deb 2>&1 | grep -v 'missing'
    [ "$(dpkg-query --root="$DIR/root" -W -f '${db:Status-Abbrev}' tessera)" = "ii " ]
    unshare -m true 2>/dev/null || skip "mounting needs root"
    inside /usr/bin/tessera-plan model.preset=mpt-tiny | grep -q 'per rank'
    inside /usr/bin/tessera-train --help | grep -q 'run.dir'

    # the root part obeys /etc/tessera there
    echo TESSERA_LOG=/tmp/node.log >>"$DIR/root/etc/tessera/tessera.conf"
    echo 'shm: { free_min_mib = 1e9; };' >"$DIR/root/etc/tessera/health.cfg"
    SLURMD_NODENAME=n1 SLURM_JOB_ID=1 SLURM_JOB_UID=60011 \
        inside /usr/libexec/tessera/node-health --act prolog || true
    grep '1e+09' "$DIR/root/tmp/node.log"

    # settings stay until they are purged
    dpkg --root="$DIR/root" --no-triggers --remove tessera tessera-node
    grep -q node.log "$DIR/root/etc/tessera/tessera.conf"
    [ ! -e "$DIR/root/usr/libexec/tessera" ]
    dpkg --root="$DIR/root" --no-triggers --purge tessera-node
    [ ! -e "$DIR/root/etc/tessera/tessera.conf" ]
}
