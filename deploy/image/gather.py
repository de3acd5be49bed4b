"""Gather what a Python program needs of this machine, and nothing else: `gather.py ROOT FOLDER...`.

The Dockerfile runs it. ROOT becomes the root of an image: the interpreter, its standard library,
the shared libraries that these and the programs in FOLDER load, certificates, and one user who is
not root. There is no shell in it, no package manager, no pip and no compiler.
"""

import compileall
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

# Of the standard library: what builds, installs, tests or shows things, and what others installed.
LEFT_OUT = (
    "__pycache__",
    "config-*",
    "dist-packages",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtle*",
    "venv",
    # Extensions of these kinds, whose libraries are large.
    "_curses*",
    "_dbm*",
    "_gdbm*",
    "_sqlite3*",
    "_test*",
    "_tkinter*",
    "_xx*",
    "nis.*",
    "readline*",
)
USER = "nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def main(root: Path, folders: Iterable[Path]) -> None:
    """Fill the root."""
    interpreter = Path(sys.executable).resolve()
    modules = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(modules, inside(root, modules), ignore=shutil.ignore_patterns(*LEFT_OUT))
    take(root, interpreter)
    (inside(root, interpreter).parent / "python3").symlink_to(interpreter.name)
    extensions = [
        file for folder in (inside(root, modules), *folders) for file in folder.rglob("*.so*")
    ]
    libraries = {
        library
        for file in (interpreter, *extensions)
        for library in needed_by(file)
        if not any(library.is_relative_to(folder) for folder in folders)
    }
    for library in libraries:
        take(root, library)
    tell_the_loader(root, libraries)
    take(root, CERTIFICATES)
    (root / "etc/passwd").write_text(USER)
    (root / "etc/group").write_text("nonroot:x:65532:\n")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    note_packages(root, [interpreter, modules / "os.py", *libraries])
    # Nobody may write there later, so what Python would keep for its next start is made now.
    for folder in (root, *folders):
        compileall.compile_dir(
            folder, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )


def inside(root: Path, path: Path) -> Path:
    """Say where in the root a file of this machine belongs, once the links on its way are gone."""
    return root / (path.parent.resolve() / path.name).relative_to("/")


def take(root: Path, path: Path) -> None:
    """Copy a file, whatever links lead to it, to the place it has here."""
    first = root / path.parts[1]
    if (Path("/") / path.parts[1]).is_symlink() and not first.is_symlink():
        first.symlink_to((Path("/") / path.parts[1]).readlink())
    place = inside(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place)


def needed_by(file: Path) -> list[Path]:
    """Return the shared libraries that the loader finds for a program or another library."""
    told = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    if missing := re.findall(r"(\S+) => not found", told.stdout):
        sys.exit(f"gather.py: {file} needs {', '.join(missing)}, which this image has not")
    return [Path(path) for path in re.findall(r"\s(/\S+) \(0x", told.stdout)]


def tell_the_loader(root: Path, libraries: Iterable[Path]) -> None:
    """Let the loader find libraries also in folders that it does not know by itself."""
    folders = sorted({str(library.parent.resolve()) for library in libraries})
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.conf").write_text("".join(f"{folder}\n" for folder in folders))
    subprocess.run(["/sbin/ldconfig", "-r", root], check=True)


def note_packages(root: Path, files: Iterable[Path]) -> None:
    """Note which of Debian's packages are here in part, where scanners look for known holes."""
    # dpkg knows some files by names from before /lib became a link to /usr/lib.
    names = [str(file.parent.resolve() / file.name) for file in files]
    names += [name.removeprefix("/usr") for name in names]
    found = subprocess.run(
        ["dpkg-query", "--search", *names], capture_output=True, text=True, check=False
    )
    folder = root / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True)
    for package in sorted({line.rpartition(": ")[0] for line in found.stdout.splitlines()}):
        status = subprocess.run(
            ["dpkg-query", "--status", package], capture_output=True, check=True
        )
        (folder / package.partition(":")[0]).write_bytes(status.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
