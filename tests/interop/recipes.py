"""Runs a Spack recipe against a double of Spack's directives: what it depends on is
what the Makefile asks pkg-config for, and make is told of each variant."""
import pathlib
import re
import sys
import types

said = {name: [] for name in ("license", "version", "variant", "depends_on", "conflicts")}
calls = []
modules = {}
for name in ("spack.package", "spack_repo.builtin.build_systems.makefile"):
    for end in range(1, name.count(".") + 2):
        part = ".".join(name.split(".")[:end])
        modules[part] = sys.modules[part] = types.ModuleType(part)
modules["spack_repo.builtin.build_systems.makefile"].MakefilePackage = object
for name in said:
    setattr(modules["spack.package"], name,
            lambda *args, said=said[name], **more: said.append(args))
modules["spack.package"].make = lambda *args: calls.append(args)

path = pathlib.Path(sys.argv[1])
makefile = (path.parent.parent / "Makefile").read_text()
scope = {}
exec(compile(path.read_text(), str(path), "exec"), scope)

spack_names = {"libcrypto": "openssl", "libxxhash": "xxhash", "libpcre2-8": "pcre2",
               "libcurl": "curl", "zlib": "zlib-api", "libzstd": "zstd", "libutf8proc": "utf8proc"}
wanted = re.search(r"^PKGS := (.*)$", makefile, re.M)[1].split()
have = {re.match(r"[a-z0-9-]+", args[0])[0] for args in said["depends_on"]}
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
assert said["version"][0][0] == re.search(r"^VERSION +:= (.*)$", makefile, re.M)[1]
print(len(have), "dependencies")
