"""Programs from packages of Debian: what is refused, and that nothing incomplete stays."""

import os
from pathlib import Path

import pytest

from testbed.build.cache import cache_dir
from testbed.build.debian import Packages, mirror
from testbed.support.errors import Unavailable

OURS = Packages("trixie", ["redis-tools"], ["redis-cli"], version="8.0.2")


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder that is first on PATH, in front of a new cache."""
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    return tmp_path


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def leftovers() -> list[Path]:
    return list((cache_dir() / "toolchains").iterdir())


def test_a_mirror_out_of_reach_is_named_with_the_setting(
    monkeypatch: pytest.MonkeyPatch, programs: Path
) -> None:
    script(programs / "apt-get", "echo E: Failed to fetch >&2; exit 100")
    monkeypatch.setenv("DEBIAN_MIRROR", "http://127.0.0.1:1/debian")
    with pytest.raises(Unavailable, match=r"redis-cli 8.0.2.*Failed to fetch.*in DEBIAN_MIRROR"):
        OURS.ensure()
    assert leftovers() == []


def test_another_version_than_the_pinned_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, programs: Path
) -> None:
    monkeypatch.setenv("DEBIAN_MIRROR", "http://127.0.0.1:1/debian")
    script(
        programs / "apt-get",
        'for each; do case $each in *archives=*) touch "${each##*=}/redis.deb";; esac; done',
    )
    script(
        programs / "dpkg-deb",
        'mkdir -p "$3/lib/this-machine" && ln -s /bin/echo "$3/lib/this-machine/ld-linux-x.so.2"',
    )
    with pytest.raises(Unavailable, match=r"trixie has another version than 8.0.2; adapt"):
        OURS.ensure()
    assert leftovers() == []


def test_the_mirror_is_the_one_of_the_machine(programs: Path) -> None:
    script(
        programs / "apt-get",
        "echo contrib bookworm http://a/debian/; echo main bookworm-security http://b/debian/;"
        " echo main bookworm http://c/debian/",
    )
    assert mirror() == "http://c/debian/"


def test_a_machine_without_package_sources_is_told_the_setting(programs: Path) -> None:
    script(programs / "apt-get", "")
    with pytest.raises(Unavailable, match="no package source here; name a Debian mirror"):
        mirror()
