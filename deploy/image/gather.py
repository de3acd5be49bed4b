"""Copy what a Python program needs from this machine, and nothing else: `gather.py ROOT FOLDER...`.

The Dockerfile runs it. ROOT becomes the root of an image with the interpreter, its standard
library, the shared libraries that these and the programs in FOLDER load, CA certificates, and one
user other than root. It contains no shell, no package manager, no pip and no compiler.
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

# Parts of the standard library that only build, install, test or display, and installed packages.
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
    # Extension modules whose shared libraries are large.
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
    """Fill the root folder."""
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
    configure_loader(root, libraries)
    take(root, CERTIFICATES)
    (root / "etc/passwd").write_text(USER)
    (root / "etc/group").write_text("nonroot:x:65532:\n")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    record_packages(root, [interpreter, modules / "os.py", *libraries])
    # The files are read-only at run time, so Python could not write its bytecode cache then.
    for folder in (root, *folders):
        compileall.compile_dir(
            folder, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )


def inside(root: Path, path: Path) -> Path:
    """Return the place in the root of a file of this machine, with symbolic links resolved."""
    return root / (path.parent.resolve() / path.name).relative_to("/")


def take(root: Path, path: Path) -> None:
    """Copy a file to the same place in the root, with symbolic links resolved."""
    first = root / path.parts[1]
    if (Path("/") / path.parts[1]).is_symlink() and not first.is_symlink():
        first.symlink_to((Path("/") / path.parts[1]).readlink())
    place = inside(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place)


def needed_by(file: Path) -> list[Path]:
    """Return the shared libraries that the loader finds for a program or another library."""
    listed = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    if missing := re.findall(r"(\S+) => not found", listed.stdout):
        sys.exit(f"gather.py: {file} needs {', '.join(missing)}, which this image does not have")
    return [Path(path) for path in re.findall(r"\s(/\S+) \(0x", listed.stdout)]


def configure_loader(root: Path, libraries: Iterable[Path]) -> None:
    """Configure the loader to find libraries in folders that are not its defaults."""
    folders = sorted({str(library.parent.resolve()) for library in libraries})
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.conf").write_text("".join(f"{folder}\n" for folder in folders))
    subprocess.run(["/sbin/ldconfig", "-r", root], check=True)


def record_packages(root: Path, files: Iterable[Path]) -> None:
    """Record the Debian packages that the files come from, for vulnerability scanners."""
    # dpkg lists some files under /lib, which has become a link to /usr/lib.
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
