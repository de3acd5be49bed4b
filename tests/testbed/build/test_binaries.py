"""Binaries are found, downloaded or built; error messages name what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.build import binaries, modules, toolchain
from testbed.build.cache import cache_dir, locked, require_space
from testbed.support.errors import Unavailable


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache, without binaries from elsewhere."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(modules, "BUILD_GIGABYTES", 0)
    return cache_dir()


def programs(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_kubebuilder_assets_come_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = cache / "assets"
    assets.mkdir()
    (assets / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert binaries.find("etcd") == {"etcd": assets / "etcd"}


def test_a_wrong_kubebuilder_assets_is_an_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(cache / "typo"))
    with pytest.raises(Unavailable, match="there is no such folder"):
        binaries.find("etcd")


def test_a_download_comes_before_a_build(cache: Path) -> None:
    downloaded = cache / "envtest" / "k8s" / "1.36.2-linux-amd64"
    downloaded.mkdir(parents=True)
    (downloaded / "kubectl").touch()
    assert binaries.find("kubectl") == {"kubectl": downloaded / "kubectl"}


def test_a_build_reports_its_progress() -> None:
    said = modules.progress(500, 2000, 60)
    assert said == "  500 of at most 2000 packages in 60 s, at most 3 min more"


def test_it_builds_once(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    built = binaries.ensure("pause") / "pause"
    assert os.access(built, os.X_OK)
    before = built.stat().st_mtime_ns
    assert "Built pause" in capfd.readouterr().out
    assert binaries.ensure("pause") / "pause" == built
    assert built.stat().st_mtime_ns == before
    assert capfd.readouterr().out == ""


def test_the_rest_of_an_interrupted_build_is_not_used(cache: Path) -> None:
    folder = binaries.KUBERNETES.built
    (folder / ".partial-1").mkdir(parents=True)
    (folder / ".partial-1" / "pause").write_text("half of it")
    built = binaries.ensure("pause") / "pause"
    assert b"half of it" not in built.read_bytes()
    assert list(folder.iterdir()) == [built]


def test_an_interrupted_build_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Path, arguments: list[str], *__: object) -> None:
        output = Path(arguments[arguments.index("-o") + 1])
        (output / "pause").write_text("half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(modules, "_go_with_progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        binaries.ensure("pause")
    assert programs(cache / "bin") == set()


def test_a_missing_network_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOFLAGS", "-modcacherw")
    monkeypatch.setenv("GOMODCACHE", str(cache / "modules"))
    with pytest.raises(Unavailable, match=r"the modules of etcd: .* out of reach"):
        binaries.ensure("etcd")
    assert programs(cache / "bin") == set()


def test_a_build_does_not_begin_on_a_disk_that_is_too_small(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "BUILD_GIGABYTES", 10**6)
    with pytest.raises(Unavailable, match=r"GB free and this step needs about"):
        binaries.ensure("pause")


def can_mount() -> bool:
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mounting a small disk takes CAP_SYS_ADMIN")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from testbed.build import binaries, install, modules\n"
        "modules.BUILD_GIGABYTES = 0\n"
        "install.STEPS = {'pause': lambda: str(binaries.ensure('pause'))}\n"
        "sys.exit(install.main())\n"
    )
    mount = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" "$3"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", disk, sys.executable, program],
        env={
            **os.environ,
            "JOBGROUP_CACHE": str(disk),
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "the disk is full; free about" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_go_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    toolchain.go.cache_clear()
    with pytest.raises(Unavailable, match="no recent go on PATH"):
        binaries.ensure("pause")
    assert programs(cache) == set()


def test_a_toolchain_that_is_too_old_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("go", "go version go1.20.1 linux/amd64"), ("node", "v18.1.0")):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\necho {version}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    asked: list[str] = []
    monkeypatch.setattr(toolchain, "from_wheel", lambda name, program: asked.append(name))
    toolchain.go.__wrapped__()
    toolchain.node.__wrapped__()
    assert asked == ["go", "node"]


def test_a_killed_download_is_not_used(cache: Path) -> None:
    left = cache / "envtest" / "partial" / "k8s" / "1.36.2-linux-amd64"
    left.mkdir(parents=True)
    (left / "kubectl").write_text("half of it")
    assert binaries._cached("kubectl") is None


def test_the_cache_can_be_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBGROUP_CACHE", "here")
    assert cache_dir() == tmp_path / "here"


def test_an_unwritable_cache_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBGROUP_CACHE", "/proc/nowhere")
    with pytest.raises(Unavailable, match="set JOBGROUP_CACHE to a folder you may write to"):
        cache_dir()


def test_enough_space_is_no_error(cache: Path) -> None:
    require_space(cache, 0)


def test_a_second_run_waits_for_the_first(cache: Path) -> None:
    program = (
        "from testbed.build.cache import locked\nwith locked('x', 'build pause'): print('mine')"
    )
    with locked("x"):
        second = subprocess.Popen(
            [sys.executable, "-u", "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert second.stdout is not None
        waits = f"Waiting for another run to build pause (it holds {cache / 'x.lock'}).\n"
        assert second.stdout.readline() == waits
    assert second.communicate()[0] == "mine\n"


def test_a_build_waits_for_no_other_program(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with locked("build-kind"), locked("download-envtest"):
        assert (binaries.ensure("pause") / "pause").exists()
    assert "Waiting for another run" not in capfd.readouterr().out


def test_a_build_keeps_the_folder_of_another_build(cache: Path) -> None:
    folder = binaries.KUBERNETES.built
    (folder / ".partial-kind").mkdir(parents=True)
    with locked("build-kind"):
        binaries.ensure("pause")
    assert {path.name for path in folder.iterdir()} == {".partial-kind", "pause"}


def test_what_the_demo_needs_is_built_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(binaries, "_download_envtest", lambda: None)
    monkeypatch.setattr(binaries, "ensure", lambda *names: asked.append(names))
    binaries.find("kind", "kubectl", "kube-controller-manager", "etcd")
    assert asked == [("kubectl", "etcd"), ("kind", "kube-controller-manager")]
