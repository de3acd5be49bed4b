"""The rules hold in random histories of stock clients, users, API calls and drivers.

300 random histories of up to 50 steps, in parts that run in parallel; `make histories` runs 2,000.
HISTORIES=50 runs 50. --hypothesis-seed=... repeats histories; every part then runs the same ones,
so run only one part. hypothesis shrinks a history that breaks a rule to the fewest steps.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.sagas.histories.definitions import Definition
from tests.sagas.histories.ground import ground
from tests.sagas.histories.histories import SETTINGS, History, run_histories

PARTS = 8
HISTORIES = int(os.environ.get("HISTORIES", "300"))


# No coverage: it would more than double the time, and the tests of single rules provide it.
@pytest.mark.no_cover
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_rules_hold_in_every_history(
    redis_url: str, prefix: str, tmp_path: Path, part: int
) -> None:
    with ground(redis_url, prefix, tmp_path) as shared:
        run_histories(shared, settings(SETTINGS, max_examples=-(-HISTORIES // PARTS)))


def test_an_active_job_may_finish_between_two_calls_of_a_removal(
    redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.sagas.histories.steps_of_workers.note", lambda _: None)
    with ground(redis_url, prefix, tmp_path) as shared:
        monkeypatch.setattr(History, "ground", shared, raising=False)
        history = History()
        history.begin(budget=1, definition=[{"queue": "a", "opts": {}, "when": "Completed"}])
        history.work(jobs=1)
        history.resync()
        history.retry(n=0, reset=False)
        history.take(queue="a")
        history.begin_removal(n=0)
        history.complete(n=0)
        history.teardown()


def test_a_member_that_was_refused_is_undone_if_it_runs_later(
    redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bulk retries of 5.x in a row let a member of an ended group run."""
    monkeypatch.setattr("tests.sagas.histories.steps_of_workers.note", lambda _: None)
    with ground(redis_url, prefix, tmp_path) as shared:
        monkeypatch.setattr(History, "ground", shared, raising=False)
        history = History()
        member = {"queue": "a", "opts": {}, "when": "Started"}
        history.begin(budget=1, definition=[member, member])
        history.cancel(n=0)  # one call drops one member; a worker refuses the other
        history.take(queue="a")
        history.resync()
        assert not history.world.undos_added
        for _ in range(2):
            history.retry_all(queue="a", place="failed", booked=False)
            history.take(queue="a")
        history.resync()  # notices that it runs
        history.fail(n=0, finally_=True)
        history.resync()
        assert list(history.world.undos_added.values()) == [1]
        history.teardown()


def test_an_ended_group_whose_hash_was_deleted_is_discarded_after_a_wake_up(
    redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.sagas.histories.steps_of_workers.note", lambda _: None)
    with ground(redis_url, prefix, tmp_path) as shared:
        monkeypatch.setattr(History, "ground", shared, raising=False)
        history = History()
        members: Definition = [{"queue": queue, "opts": {}, "when": None} for queue in ("a", "b")]
        history.begin(budget=200, definition=members)
        history.take(queue="b")
        history.fail(n=0, finally_=True)
        history.drive()
        history.delete_keys(queue="a")
        history.retry(n=0, reset=False)
        history.take(queue="b")  # it is doomed: its failure wakes the group
        history.drive()
        history.resync()
        assert not history.world.groups
        history.teardown()
