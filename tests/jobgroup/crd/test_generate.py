"""`make generate` writes one CRD for each kind, and deploy/crds/ holds what it writes."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobgroup.crd.generate import CRDS, files
from jobgroup.resource.kinds import API_GROUP, KINDS, VERSION, Kind
from testbed import ROOT


def test_there_is_a_crd_for_each_kind() -> None:
    assert tuple(CRDS) == KINDS
    assert [name for name, _ in files()] == [f"{kind.plural}.yaml" for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_crd_defines_its_kind(kind: Kind) -> None:
    crd = CRDS[kind]()
    names, [version] = crd["spec"]["names"], crd["spec"]["versions"]
    assert crd["metadata"]["name"] == f"{kind.plural}.{API_GROUP}"
    assert (names["kind"], names["plural"], names["shortNames"]) == (
        kind.name,
        kind.plural,
        [kind.short_name],
    )
    assert (crd["spec"]["group"], version["name"]) == (API_GROUP, VERSION)


def test_the_files_are_generated_from_the_models() -> None:
    stored = {path.name: path.read_text() for path in (ROOT / "deploy/crds").iterdir()}
    assert stored == dict(files()), "run `make generate`"


@pytest.mark.server
def test_make_generate_writes_the_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobgroup.crd.generate", str(tmp_path)]
    subprocess.run(command, env={"PYTHONPATH": str(ROOT / "operator")}, check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict(files())


def test_the_text_is_the_same_each_time_and_has_no_references() -> None:
    assert dict(files()) == dict(files())
    assert all("&id" not in text for _, text in files())
