#!/bin/bash
# The recipes of modulefiles/ before those who build by them: EasyBuild finds every
# dependency among its easyconfigs, a parser of Singularity's recipes reads the
# definition of the container, and Spack's recipe, for whose tool there is no package,
# is run against a double of its directives.
# shellcheck disable=SC2317 # functions that check calls
# shellcheck source=tests/interop/interop.bash
. "$(dirname "$0")/interop.bash"
RECIPES=$(realpath "$HERE/../../modulefiles")

easybuild() {
    local tcl
    tcl=$(find /usr/lib /usr/share/modules -name modulecmd.tcl 2>/dev/null | head -n 1)
    mkdir -p "$WORK/modules/libexec"
    ln -sf "$tcl" "$WORK/modules/libexec/modulecmd.tcl"
    EB_PYTHON=$VENV/bin/python MODULESHOME=$WORK/modules EASYBUILD_PREFIX=$WORK/eb EASYBUILD_TMPDIR=$WORK/tmp \
        EASYBUILD_MODULES_TOOL=EnvironmentModules EASYBUILD_MODULE_SYNTAX=Tcl \
        EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES=1 \
        "$VENV/bin/eb" --allow-modules-tool-mismatch "$@"
}

dependencies_found() {
    easybuild --dry-run --robot "$RECIPES"/Tessera-*.eb >"$WORK/plan"
    tail -n 20 "$WORK/plan"
    for name in HDF5 libconfig Jansson PCRE2 utf8proc cURL zstd OpenMPI Tessera; do
        grep -q "(module: $name/" "$WORK/plan" || return 1
    done
    grep -c '(module: ' "$WORK/plan"
}

styled() {
    easybuild --check-style "$RECIPES"/Tessera-*.eb
}

container() {
    (cd "$RECIPES/.." && "$VENV/bin/python" -c '
from spython.main.parse.parsers import SingularityParser
[recipe] = SingularityParser("modulefiles/tessera.def").parse().values()
assert recipe.fromHeader == "debian:bookworm-slim", recipe.fromHeader
assert recipe.files[0] == "build/deb /deb", recipe.files
assert any("tessera_*.deb" in line for line in recipe.install)
assert "tessera" in recipe.cmd
print(len(recipe.install), "lines of %post")') &&
        "$VENV/bin/spython" recipe --parser singularity "$RECIPES/tessera.def" 2>&1 | grep '^FROM debian'
}

spack() {
    python "$RECIPES/package.py"
}

venv_make recipes easybuild==5.4.1 pycodestyle spython==0.3.14 || skip "$VENV_MISSING"
work_make
PEER=recipes.py
check "EasyBuild has a recipe for each dependency, down to the compiler" dependencies_found
check "EasyBuild's style" styled
check "the container's definition is read" container
check "Spack's recipe says what is built, with and without its variants" spack
finish_points
