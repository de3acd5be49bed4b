"""Programs from packages of a chosen Debian, unpacked into the cache with the libraries they need.

Nothing is installed: a program starts through the dynamic loader of its own Debian, so that it runs
on another release too. apt checks the signatures of the packages. A pin names the version of the
program, not Debian's revision of it, because a mirror holds only the latest revision.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.build.cache import cache_dir, locked, require_space
from testbed.support.commands import completed, run
from testbed.support.errors import Unavailable

GIGABYTES = 0.3
ADVICE = "check that this machine reaches a Debian mirror, or name one in DEBIAN_MIRROR"


@dataclass(frozen=True)
class Packages:
    """Packages of one Debian release, the programs in them, and the version of the first one."""

    suite: str
    names: Sequence[str]
    programs: Sequence[str]
    version: str

    @property
    def home(self) -> Path:
        """Return the folder of the unpacked packages."""
        return cache_dir() / "toolchains" / f"{self.programs[0]}-{self.version}-{self.suite}"

    def ensure(self) -> Path:
        """Unpack the packages, unless they are there; return the first program."""
        if not self.home.exists():
            with locked(f"debian-{self.home.name}", f"unpack {self.programs[0]} {self.version}"):
                if not self.home.exists():
                    self._unpack()
        return self.home / "bin" / self.programs[0]

    def _unpack(self) -> None:
        """Unpack into a temporary folder, then move it: it is never incomplete."""
        require_space(cache_dir(), GIGABYTES)
        print(f"Unpacking {self.programs[0]} {self.version} of Debian {self.suite}.", flush=True)
        partial = self.home.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "bin").mkdir(parents=True)
        try:
            self._download(partial / "apt")
            for package in sorted((partial / "apt").glob("archives/*.deb")):
                doing = f"Unpacking {package.name}"
                run("dpkg-deb", "--extract", package, partial / "root", doing=doing)
            shutil.rmtree(partial / "apt")
            for program in self.programs:
                self._write_starter(partial, program)
            self._check_version(partial)
            partial.rename(self.home)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _download(self, folder: Path) -> None:
        """Download the packages and all that they depend on, with settings of apt of our own."""
        for each in ("lists/partial", "archives/partial", "parts"):
            (folder / each).mkdir(parents=True)
        # Nothing counts as installed, so that apt downloads the C library too.
        (folder / "status").touch()
        (folder / "debian.list").write_text(f"deb {mirror()} {self.suite} main\n")
        settings = {
            "Dir::Etc::sourcelist": folder / "debian.list",
            "Dir::Etc::sourceparts": folder / "parts",
            "Dir::Etc::preferencesparts": folder / "parts",
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "Dir::Cache::archives": folder / "archives",
            "APT::Sandbox::User": "root",
        }
        options = [f"--option={name}={value}" for name, value in settings.items()]
        what = f"{self.programs[0]} {self.version}"
        doing = f"Downloading the package lists for {what}"
        run("apt-get", "update", *options, "--error-on=any", doing=doing, advice=ADVICE)
        command = ("apt-get", "install", "--download-only", "--yes", "--no-install-recommends")
        run(*command, *options, *self.names, doing=f"Downloading {what}", advice=ADVICE)

    def _write_starter(self, folder: Path, program: str) -> None:
        """Write bin/<program>, which starts the program with its own loader and libraries."""
        root = folder / "root"
        loaders = [*root.glob("usr/lib/*/ld-linux-*.so.*"), *root.glob("lib/*/ld-linux-*.so.*")]
        loader = loaders[0].relative_to(root)
        libraries = ":".join(f"$root/{part}/{loader.parent.name}" for part in ("usr/lib", "lib"))
        starter = folder / "bin" / program
        starter.write_text(
            '#!/bin/sh\nroot=$(readlink -f "$0")\nroot=${root%/bin/*}/root\n'
            f'exec "$root/{loader}" --library-path "{libraries}"'
            f' --argv0 {program} "$root/usr/bin/{program}" "$@"\n'
        )
        starter.chmod(0o755)

    def _check_version(self, folder: Path) -> None:
        said = completed([folder / "bin" / self.programs[0], "--version"], None)
        if f"v={self.version} " not in said.stdout:
            raise Unavailable(
                f"Debian {self.suite} has another version than {self.version}; adapt"
                f" testbed/servers/redis.py to it. It printed: {said.stdout}{said.stderr}"
            )


def mirror() -> str:
    """Return the Debian mirror: DEBIAN_MIRROR if set, else the one that apt uses here."""
    if given := os.environ.get("DEBIAN_MIRROR"):
        return given
    asked = ("indextargets", "--format=$(COMPONENT) $(RELEASE) $(REPO_URI)", "Created-By: Packages")
    targets = run("apt-get", *asked, doing="Reading the package sources of apt", advice=ADVICE)
    for component, release, address in map(str.split, targets.splitlines()):
        # bookworm-updates and bookworm-security have other archives.
        if component == "main" and "-" not in release:
            return address
    raise Unavailable("apt has no package source here; name a Debian mirror in DEBIAN_MIRROR.")
