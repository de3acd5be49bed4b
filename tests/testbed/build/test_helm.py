"""Which Helm is used: the one in HELM, else a suitable one on PATH, else a built one."""

import subprocess
from pathlib import Path

import pytest

from testbed.build import helm
from testbed.build.binaries import MAJOR, MINOR
from testbed.support.errors import Unavailable


class Building:
    """Replaces the Go module, whose build would take minutes."""

    def ensure(self, *_: str) -> Path:
        return Path("/built")


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELM", raising=False)


def on_path(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = folder / "helm"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    return program


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [
        ("v3.22.0", True),
        ("v3.14.4+g81c902a", True),
        ("v3.13.9", False),
        ("v4.0.1", False),
        ("", False),
    ],
)
def test_the_machines_own_is_used_if_it_is_suitable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_taken: bool
) -> None:
    monkeypatch.setattr(helm, "MODULE", Building())
    own = on_path(tmp_path, version, monkeypatch)
    assert helm.find_helm() == (own if is_taken else Path("/built/helm"))


def test_the_one_that_helm_names_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(tmp_path, "v3.22.0", monkeypatch)
    monkeypatch.setenv("HELM", "/bin/true")
    assert helm.find_helm() == Path("/bin/true")


def test_a_wrong_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM", "/typo/helm")
    with pytest.raises(Unavailable, match="HELM is /typo/helm, and there is no such program"):
        helm.find_helm()


def test_the_built_one_reports_its_version_and_that_of_kubernetes(tmp_path: Path) -> None:
    program = helm.MODULE.ensure("helm") / "helm"

    def says(*arguments: str) -> str:
        return subprocess.check_output([program, *arguments], cwd=tmp_path, text=True)

    assert says("version", "--template", "{{.Version}}") == helm.HELM_VERSION
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: chart\nversion: 1.0.0\n")
    (chart / "templates" / "said.yaml").write_text("said: {{ .Capabilities.KubeVersion }}\n")
    assert f"said: v{MAJOR}.{MINOR}.0" in says("template", str(chart))
