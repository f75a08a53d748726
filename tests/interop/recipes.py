"""Runs a Spack recipe against a double of Spack's directives: what it depends on is
what the Makefile asks pkg-config for, and make is told of each variant."""
import pathlib
import re
import sys
import types

said = {"depends_on": [], "variant": [], "version": []}


def directive(name):
    return lambda *args, **more: said.setdefault(name, []).append((args, more))


class MakefilePackage:
    pass


makefile = types.ModuleType("spack_repo.builtin.build_systems.makefile")
makefile.MakefilePackage = MakefilePackage
package = types.ModuleType("spack.package")
calls = []
for name in ("license", "version", "variant", "depends_on", "conflicts"):
    setattr(package, name, directive(name))
package.make = lambda *args: calls.append(args)
for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["spack.package"] = package
sys.modules[makefile.__name__] = makefile

path = pathlib.Path(sys.argv[1])
scope = {}
exec(compile(path.read_text(), str(path), "exec"), scope)

spack_names = {"libcrypto": "openssl", "libxxhash": "xxhash", "libpcre2-8": "pcre2",
               "libcurl": "curl", "zlib": "zlib-api", "libzstd": "zstd", "libutf8proc": "utf8proc"}
wanted = re.search(r"^PKGS := (.*)$", (path.parent.parent / "Makefile").read_text(), re.M)[1].split()
have = {re.match(r"[a-z0-9-]+", args[0])[0] for args, _ in said["depends_on"]}
missing = {spack_names.get(name, name) for name in wanted} - have
assert not missing, missing

for on in (True, False):
    recipe = scope["Tessera"]()
    recipe.spec = types.SimpleNamespace(satisfies=lambda text: text in ("+mpi", "+cuda") and on)
    recipe.build(recipe.spec, "/p")
    recipe.install(recipe.spec, "/p")
    built, installed = calls[-2:]
    assert built == (f"MPI={int(on)}", f"CUDA={int(on)}"), built
    assert installed[:2] == ("install", "PREFIX=/p") and installed[2:] == built, installed
assert said["version"][0][0][0] == re.search(
    r"^VERSION +:= (.*)$", (path.parent.parent / "Makefile").read_text(), re.M)[1]
print(len(have), "dependencies")
