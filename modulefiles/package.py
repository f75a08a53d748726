# Spack: put this file into packages/tessera of a repository of packages of yours; the
# source, where `spack install --no-checksum tessera` is typed, is what
#     git archive --prefix=tessera-0.1.0/ -o tessera-0.1.0.tar.gz HEAD
# makes.
import os

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Tessera(MakefilePackage):
    """Trains large language models on Slurm clusters and keeps them training."""

    url = f"file://{os.getcwd()}/tessera-0.1.0.tar.gz"
    manual_download = True

    license("BSD-2-Clause")

    version("0.1.0")

    variant("mpi", default=True, description="Several ranks, by Open MPI")
    variant("cuda", default=False, description="Kernels for GPUs")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openmpi@4:", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("hdf5@1.10.7:~mpi")
    depends_on("libconfig@1.5:")
    depends_on("jansson")
    depends_on("openssl")
    depends_on("xxhash")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("curl")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("bzip2")
    depends_on("brotli")
    depends_on("libedit")

    conflicts("%gcc@:10")

    def features(self):
        return [f"{name.upper()}={int(self.spec.satisfies('+' + name))}" for name in ("mpi", "cuda")]

    def build(self, spec, prefix):
        make(*self.features())

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}", *self.features())

    def setup_run_environment(self, env):
        env.set("TESSERA_HOME", self.prefix)
