"""What the operator remembers of objects: never an older one than it has seen, and not too much."""

from typing import Any

import pytest

from handlers.memory import MOST_BYTES, MOST_JOBS, MOST_OBJECTS, Memory

Body = dict[str, Any]


def body(version: str, uid: str = "u", jobs: int = 1, **spec: Any) -> Body:
    meta = {"uid": uid, "resourceVersion": version, "managedFields": [{"manager": "kubectl"}]}
    return {"metadata": meta, "spec": {"jobs": [{"name": f"j{n}"} for n in range(jobs)], **spec}}


def recalled(memory: Memory, uid: str = "u") -> str | None:
    found = memory.recall(uid)
    return found["metadata"]["resourceVersion"] if found else None


@pytest.mark.parametrize(
    ("versions", "kept"),
    [
        pytest.param(["5", "6"], "6", id="the newest"),
        pytest.param(["6", "5"], "6", id="not one that comes late"),
        pytest.param(["9", "10"], "10", id="by number"),
        pytest.param(["10", "9"], "10", id="by number when late"),
        pytest.param(["a", "b"], None, id="nothing where versions cannot be compared"),
    ],
)
def test_the_newest_object_is_kept(versions: list[str], kept: str | None) -> None:
    seen, written = Memory(), Memory()
    for version in versions:
        seen.saw(body(version))
        written.wrote(body(version))
    assert recalled(seen) == recalled(written) == kept


def test_a_late_answer_does_not_hide_what_the_watch_has_brought() -> None:
    memory = Memory()
    memory.saw(body("7", activeDeadlineSeconds=9))
    memory.wrote(body("6"))
    assert memory.recall("u") == {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"jobs": [{"name": "j0"}], "activeDeadlineSeconds": 9},
    }


def test_an_older_object_does_not_take_the_place_of_one_too_large_to_keep() -> None:
    memory = Memory()
    memory.saw(body("7", name="x" * MOST_BYTES))
    memory.wrote(body("6"))
    assert memory.recall("u") is None


def test_what_was_doubted_is_kept_again_once_it_was_read() -> None:
    memory = Memory()
    memory.saw(body("7"))
    memory.doubt("u")
    assert memory.recall("u") is None
    memory.saw(body("7"))
    assert recalled(memory) == "7"
    memory.doubt_all()
    assert memory.recall("u") is None


@pytest.mark.parametrize(
    ("version", "known"),
    [
        pytest.param("10", True, id="as written"),
        pytest.param("9", True, id="older"),
        pytest.param("11", False, id="newer"),
        pytest.param("x", False, id="cannot be compared"),
    ],
)
def test_an_object_is_known_if_it_is_as_written_or_older(version: str, known: bool) -> None:
    memory = Memory()
    assert not memory.is_known(body(version))
    memory.wrote(body("10"))
    assert memory.is_known(body(version)) is known
    memory.forget("u")
    assert not memory.is_known(body(version))


def test_large_objects_and_those_of_a_large_crowd_are_not_kept() -> None:
    memory = Memory()
    memory.saw(body("1", "many jobs", jobs=MOST_JOBS + 1))
    memory.wrote(body("1", "much data", name="x" * MOST_BYTES))
    assert memory.recall("many jobs") is memory.recall("much data") is None
    for n in range(MOST_OBJECTS + 1):
        memory.saw(body("1", f"u{n}"))
    assert memory.recall("u0") is None
    assert recalled(memory, "u1") == recalled(memory, f"u{MOST_OBJECTS}") == "1"


def test_what_was_written_tells_its_size() -> None:
    memory = Memory()
    memory.wrote(body("1", name="x" * 100_000))
    assert memory.written["u"].size > 100_000


def test_nothing_is_remembered_of_what_was_forgotten() -> None:
    memory = Memory()
    memory.wrote(body("9"))
    memory.forget("u")
    assert memory.recall("u") is None
    memory.saw(body("3"))  # a server that was restored from a backup counts from before
    assert recalled(memory) == "3"


def test_an_object_is_untouched_until_something_newer_is_seen() -> None:
    memory = Memory()
    assert memory.untouched("u") is None
    memory.wrote({**body("5", jobs=MOST_JOBS + 1), "status": {"state": "ACTIVE"}})
    written = memory.untouched("u")
    assert written
    assert written.state == "ACTIVE"
    memory.saw(body("4", jobs=MOST_JOBS + 1))
    assert memory.untouched("u") == written
    memory.saw(body("6", jobs=MOST_JOBS + 1))
    assert memory.untouched("u") is None
