"""The diagnostics that are saved for namespaces; a script replaces kubectl."""

from pathlib import Path

import pytest

from testbed.cluster import diagnostics
from testbed.cluster.kubectl import Kubectl

KUBECTL = """#!/bin/sh
case "$*" in
  *"get pods --output=name") printf 'pod/one\\npod/two\\n' ;;
  *"get events"*) echo "events of $2" ;;
  *"get jobgroups,"*) echo "objects of $2" ;;
  *"logs two"*--previous) echo "Error: it never ended" >&2; exit 1 ;;
  *logs*) echo "$4 in $2 ${7:---now}" ;;
esac
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    return Kubectl(str(program), "story")


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_events_objects_and_logs_of_each_namespace_are_saved(
    kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E2E_FAILURES", str(tmp_path / "failures"))
    folder = diagnostics.save("test_x", kubectl, kubectl.within("system"))
    assert folder == tmp_path / "failures" / "test_x"
    assert {each.name for each in folder.iterdir()} == {"story", "system"}
    for namespace in ("story", "system"):
        assert contents(folder / namespace) == {
            "events.txt": f"events of {namespace}\n",
            "objects.yaml": f"objects of {namespace}\n",
            "one.log": f"one in {namespace} --now\n",
            "one.previous.log": f"one in {namespace} --previous\n",
            "two.log": f"two in {namespace} --now\n",
            "two.previous.log": "Error: it never ended\n",
        }


def test_by_default_they_are_in_the_cache(
    kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("E2E_FAILURES", raising=False)
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path / "cache"))
    assert diagnostics.save("test_x", kubectl) == tmp_path / "cache/e2e-failures/test_x"
