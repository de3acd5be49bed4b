"""The generated parts of the docs are up to date with the code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup.crd.jobgroup import jobgroup_crd
from jobgroup.crd.reference import design, reference, transitions
from jobgroup.store.scripts import FOLDER
from testbed import ROOT

DOCS = ROOT / "docs"
SAGA = (FOLDER / "includes/saga.lua").read_text()


def test_the_pages_are_up_to_date() -> None:
    page = (DOCS / "design.md").read_text()
    assert (DOCS / "reference.md").read_text() == reference(), "run `make generate`"
    assert page == design(page, SAGA), "run `make generate`"


@pytest.mark.server
def test_make_generate_writes_them(tmp_path: Path) -> None:
    before = "# Design\n<!-- generated: saga -->\nold\n<!-- end -->\nthe rest\n"
    (tmp_path / "design.md").write_text(before)
    command = [sys.executable, "-m", "jobgroup.crd.reference", str(tmp_path)]
    subprocess.run(command, env={"PYTHONPATH": str(ROOT / "operator")}, check=True)
    assert (tmp_path / "reference.md").read_text() == reference()
    written = (tmp_path / "design.md").read_text()
    assert written == design(before, SAGA)
    assert "| ACTIVE | every job completed | COMPLETED |\n" in written
    assert "old" not in written
    assert written.endswith("<!-- end -->\nthe rest\n")


async def test_the_table_has_every_transition_that_lua_knows(redis: Redis) -> None:
    known = json.loads(await redis.eval(f"{SAGA}\nreturn cjson.encode(SAGA)", 0))
    told = {(state, event, to) for state, event, to, _ in transitions(SAGA)}
    assert told == {(state, *each) for state, events in known.items() for each in events.items()}


@pytest.mark.parametrize(
    "row",
    [
        "| `deletionPolicy` | `Compensate` or `Orphan` | `Compensate` | What happens ",
        "| `cancel` | `true` or `false` | `false` | Set to true ",
        "| `jobs` | list, at most 2,000 | **required** | The jobs: ",
        "| `jobs[].data` | any JSON |  | The data ",
        "| `jobs[].opts.backoff` | several types |  | The wait ",
        "| `jobs[].opts.keepLogs` | 0 or more |  | The number of log lines ",
        "| `compensation.*.when` | `Completed` or `Started` | `Completed` | Completed undoes ",
        "| `startedAt` | date-time |  | When the jobs were added to their queues. |",
        "| `lastScale.reason` | string, at most 1,024 |  | The reason, in a sentence. |",
        "| `maxReplicas` | 1 to 10,000 | `10` | The maximum number of replicas. ",
    ],
)
def test_a_field_has_its_type_default_and_description(row: str) -> None:
    assert f"\n{row}" in reference()


def test_refused_options_are_omitted() -> None:
    job = jobgroup_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    options = job["properties"]["jobs"]["items"]["properties"]["opts"]["properties"]
    assert options["parent"]["description"].startswith("Refused: ")
    assert "opts.parent" not in reference()
