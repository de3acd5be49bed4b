"""The cache of objects: only the newest version, and within its limits."""

from typing import Any

import pytest

from handlers.jobgroups.cache import MAX_BYTES, MAX_JOBS, MAX_OBJECTS, ObjectCache

Body = dict[str, Any]


def body(version: str, uid: str = "u", jobs: int = 1, **spec: Any) -> Body:
    meta = {"uid": uid, "resourceVersion": version, "managedFields": [{"manager": "kubectl"}]}
    return {"metadata": meta, "spec": {"jobs": [{"name": f"j{n}"} for n in range(jobs)], **spec}}


def recalled(cache: ObjectCache, uid: str = "u") -> str | None:
    found = cache.get(uid)
    return found["metadata"]["resourceVersion"] if found else None


@pytest.mark.parametrize(
    ("versions", "kept"),
    [
        pytest.param(["5", "6"], "6", id="newer"),
        pytest.param(["6", "5"], "6", id="older"),
        pytest.param(["9", "10"], "10", id="newer, by number"),
        pytest.param(["10", "9"], "10", id="older, by number"),
        pytest.param(["a", "b"], None, id="not comparable"),
    ],
)
def test_the_newest_version_is_stored(versions: list[str], kept: str | None) -> None:
    seen, written = ObjectCache(), ObjectCache()
    for version in versions:
        seen.observe(body(version))
        written.record_write(body(version))
    assert recalled(seen) == recalled(written) == kept


def test_a_late_response_does_not_replace_a_newer_watch_event() -> None:
    cache = ObjectCache()
    cache.observe(body("7", activeDeadlineSeconds=9))
    cache.record_write(body("6"))
    assert cache.get("u") == {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"jobs": [{"name": "j0"}], "activeDeadlineSeconds": 9},
    }


def test_an_older_version_does_not_replace_a_newer_one_that_is_too_large() -> None:
    cache = ObjectCache()
    cache.observe(body("7", name="x" * MAX_BYTES))
    cache.record_write(body("6"))
    assert cache.get("u") is None


def test_an_invalidated_object_is_stored_again_after_a_read() -> None:
    cache = ObjectCache()
    cache.observe(body("7"))
    cache.invalidate("u")
    assert cache.get("u") is None
    cache.observe(body("7"))
    assert recalled(cache) == "7"
    cache.invalidate_all()
    assert cache.get("u") is None


@pytest.mark.parametrize(
    ("version", "known"),
    [
        pytest.param("10", True, id="as written"),
        pytest.param("9", True, id="older"),
        pytest.param("11", False, id="newer"),
        pytest.param("x", False, id="not comparable"),
    ],
)
def test_own_writes_and_older_versions_are_recognized(version: str, known: bool) -> None:
    cache = ObjectCache()
    assert not cache.is_own_write(body(version))
    cache.record_write(body("10"))
    assert cache.is_own_write(body(version)) is known
    cache.remove("u")
    assert not cache.is_own_write(body(version))


def test_large_objects_and_too_many_objects_are_not_stored() -> None:
    cache = ObjectCache()
    cache.observe(body("1", "many jobs", jobs=MAX_JOBS + 1))
    cache.record_write(body("1", "much data", name="x" * MAX_BYTES))
    assert cache.get("many jobs") is cache.get("much data") is None
    for n in range(MAX_OBJECTS + 1):
        cache.observe(body("1", f"u{n}"))
    assert cache.get("u0") is None
    assert recalled(cache, "u1") == recalled(cache, f"u{MAX_OBJECTS}") == "1"


def test_a_write_records_the_size_of_the_object() -> None:
    cache = ObjectCache()
    cache.record_write(body("1", name="x" * 100_000))
    write = cache.last_write("u")
    assert write
    assert write.size > 100_000


def test_a_removed_object_leaves_nothing() -> None:
    cache = ObjectCache()
    cache.record_write(body("9"))
    cache.remove("u")
    assert cache.get("u") is None
    cache.observe(body("3"))  # a server restored from a backup uses older versions
    assert recalled(cache) == "3"


def test_a_write_is_current_until_a_newer_version_is_observed() -> None:
    cache = ObjectCache()
    assert cache.last_write_if_current("u") is None
    cache.record_write({**body("5", jobs=MAX_JOBS + 1), "status": {"state": "ACTIVE"}})
    written = cache.last_write_if_current("u")
    assert written
    assert written.state == "ACTIVE"
    cache.observe(body("4", jobs=MAX_JOBS + 1))
    assert cache.last_write_if_current("u") == written
    cache.observe(body("6", jobs=MAX_JOBS + 1))
    assert cache.last_write_if_current("u") is None


@pytest.mark.parametrize(
    ("state", "kept"), [("", "ACTIVE"), ("PENDING", "ACTIVE"), ("ACTIVE", ""), ("FAILED", "")]
)
def test_a_group_is_unreported_until_a_status_has_its_state(state: str, kept: str) -> None:
    cache = ObjectCache()
    assert cache.unreported_state("u") == ""
    cache.mark_unreported("u")
    cache.record_write({**body("5"), "status": {"state": state}})
    assert cache.unreported_state("u") == kept
    cache.remove("u")
    assert cache.unreported_state("u") == ""
