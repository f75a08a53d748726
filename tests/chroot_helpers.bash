# shellcheck shell=bash
# Another Debian in a folder, for scripts that build and test there. debootstrap makes
# it from the archive that this machine's apt uses; it is kept for the next time.

# chroot_possible SUITE...: fails and says why this machine can't
chroot_possible()
{
    local suite
    [ "$(id -u)" = 0 ] || { echo "debootstrap and chroots need root" && return 1; }
    for suite in "$@"; do
        [ -e "/usr/share/debootstrap/scripts/$suite" ] && continue
        echo "there is no debootstrap that knows $suite: apt-get install debootstrap"
        return 1
    done
    unshare --mount true 2>/dev/null ||
        { echo "no mount namespace may be made here" && return 1; }
    [ -n "$(chroot_archive)" ] || { echo "apt knows no archive of Debian" && return 1; }
}

chroot_archive()
{
    # shellcheck disable=SC2016 # apt's own
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' \
        'Component: main' 2>/dev/null | grep -v security | head -n 1 || true
}

# inside ROOT SCRIPT: what is mounted, and whatever runs, is in namespaces of its own and
# ends with it, and with this script. ROOT is also their root, not its processes' alone:
# namespaces that are made inside, and entered, have it as well.
inside()
{
    # shellcheck disable=SC2016 # the inner shell's
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child \
        --propagation private bash -euc '
        mount --bind "$1" "$1"
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        mount --rbind /sys "$1/sys"
        cd "$1"
        pivot_root . .
        umount -l .
        cd /
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            DEBIAN_FRONTEND=noninteractive /bin/bash -euc "$2"' - "$1" "$2"
}

# chroot_make ROOT SUITE SCRIPT PACKAGE...: unless it is there. The script runs inside
# before packages are installed, which is a second step: an older debootstrap cannot
# order all of them. ROOT.log says why it failed.
chroot_make()
{
    local root=$1 suite=$2 script=$3
    [ ! -e "$root/ready" ] || return 0
    rm -rf "$root"
    mkdir -p "$root"
    { debootstrap --variant=minbase "$suite" "$root" "$(chroot_archive)" &&
        cp /etc/resolv.conf "$root/etc" &&
        echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/quick" && inside "$root" "$script
            apt-get -qq update
            apt-get -y -qq --no-install-recommends install make perl ${*:4}" &&
        touch "$root/ready"; } >"$root.log" 2>&1 </dev/null
}

# chroot_tree ROOT: this tree in ROOT/tessera, nothing of an earlier one but its build,
# which is made again: files keep no times, or one that is older than an object of
# another tree would be taken for what that was made of
chroot_tree()
{
    mkdir -p "$1/tessera"
    find "$1/tessera" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    git ls-files -z --cached --others --exclude-standard |
        tar --null --ignore-failed-read -T - -cf - | tar -C "$1/tessera" -xmf -
}
