"""The rules hold in random histories of stock clients, users, API calls and drivers.

300 random histories of up to 50 steps, a third with each stock client, in parts that run in
parallel; `make histories` runs 2,000. HISTORIES=50 runs 50. --hypothesis-seed=1 repeats the
histories of an earlier run with the same seed and number. hypothesis shrinks a history that breaks
a rule to the fewest steps.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from testbed.servers.stock import FLAVOURS
from tests.sagas.histories.definitions import Definition
from tests.sagas.histories.ground import ground
from tests.sagas.histories.histories import SETTINGS, History, run_histories
from tests.sagas.histories.world import World

PARTS = 3
HISTORIES = int(os.environ.get("HISTORIES", "300"))
MEMBER = {"queue": "a", "opts": {}, "when": "Completed"}


# No coverage: it would more than double the time, and the tests of single rules provide it.
@pytest.mark.no_cover
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_rules_hold_in_every_history(
    request: pytest.FixtureRequest,
    redis_url: str,
    admin_url: str,
    prefix: str,
    tmp_path: Path,
    flavour: str,
    part: int,
) -> None:
    seed = request.config.getoption("--hypothesis-seed")
    with ground(redis_url, prefix, tmp_path, flavour=flavour, admin_url=admin_url) as shared:
        examples = -(-HISTORIES // (PARTS * len(FLAVOURS)))
        # Otherwise, every part would run the same histories.
        own = f"{seed}-{part}" if seed else ""
        run_histories(shared, settings(SETTINGS, max_examples=examples), own)


def test_a_seed_repeats_histories_and_another_does_not(
    redis_url: str, admin_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, created = World.create, list[Definition]()

    def record(world: World, definition: Definition) -> None:
        created.append(definition)
        create(world, definition)

    monkeypatch.setattr(World, "create", record)
    runs = []
    with ground(redis_url, prefix, tmp_path, admin_url=admin_url) as shared:
        for seed in ("1-0", "1-0", "1-1"):
            created.clear()
            run_histories(shared, settings(SETTINGS, max_examples=3), seed)
            runs.append(list(created))
    first, again, other = runs
    assert first == again != other


@pytest.fixture(params=FLAVOURS)
def history(
    request: pytest.FixtureRequest,
    redis_url: str,
    admin_url: str,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[History]:
    """Return a history whose steps a test chooses."""
    monkeypatch.setattr("tests.sagas.histories.steps_of_workers.note", lambda _: None)
    flavour = request.param
    with ground(redis_url, prefix, tmp_path, flavour=flavour, admin_url=admin_url) as shared:
        monkeypatch.setattr(History, "ground", shared, raising=False)
        yield History()


def test_an_active_job_may_finish_between_two_calls_of_a_removal(history: History) -> None:
    history.begin(budget=1, definition=[MEMBER])
    history.work(jobs=1)
    history.resync()
    history.retry(n=0, reset=False)
    history.take(queue="a")
    history.begin_removal(n=0)
    history.complete(n=0)
    history.teardown()


def test_completed_members_that_wait_in_a_long_list_do_not_hold_up_their_group(
    history: History,
) -> None:
    history.begin(budget=1, definition=[MEMBER] * 3)
    history.work(jobs=2)
    history.run_out_of_time(n=0)
    history.add_foreign(queue="a", jobs=3)
    history.retry(n=0, reset=False)
    history.retry(n=0, reset=False)
    history.teardown()


def test_a_member_of_a_paused_queue_destroys_no_list_when_the_queue_is_resumed(
    history: History,
) -> None:
    history.begin(budget=200, definition=[MEMBER])
    history.pause(queue="a", paused=True, moves_list=True)
    history.create([MEMBER])
    history.pause(queue="a", paused=False, moves_list=True)
    history.teardown()


@pytest.mark.parametrize("history", ["python", "bullmq5"], indirect=True)
def test_a_member_that_was_refused_cannot_run(history: History) -> None:
    history.begin(budget=1, definition=[{**MEMBER, "when": "Started"}] * 2)
    history.cancel(n=0)  # one call drops one member; a worker refuses the other
    history.take(queue="a")
    for _ in range(2):
        history.retry_all(queue="a", place="failed", booked=False)
        history.take(queue="a")
    assert not any(member.hashed for member in history.world.groups["g0"].members)
    history.resync()
    assert history.world.groups["g0"].state == "FAILED"
    assert not history.world.undos_added
    history.teardown()


def test_an_ended_group_whose_hash_was_deleted_is_discarded_after_a_wake_up(
    history: History,
) -> None:
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


def test_the_entry_of_a_removed_group_that_a_foreign_worker_takes_leaves_no_key(
    history: History,
) -> None:
    history.begin(budget=1, definition=[MEMBER])
    history.take(queue="a")
    history.fail(n=0, finally_=False)
    history.run_out_of_time(n=0)
    history.pause_pseudo_queue(paused=True, moves_list=True)
    history.remove_group(n=0)
    history.pause_pseudo_queue(paused=False, moves_list=False)
    history.steal_wakeup(fails=False, kept=False)
    history.teardown()


def test_a_worker_keeps_the_options_that_a_member_had_when_it_took_it(history: History) -> None:
    history.begin(budget=200, definition=[MEMBER, {**MEMBER, "queue": "b"}])
    history.work(jobs=1)
    history.settle(n=0)
    history.retry(n=0, reset=False)
    history.take(queue="a")
    history.run_out_of_time(n=0)
    history.fail(n=0, finally_=True)
    history.resync()
    history.retry(n=0, reset=False)
    history.take(queue="a")
    history.teardown()


def test_undos_are_restored_after_a_worker_took_the_wake_up_of_their_deleted_parent(
    history: History,
) -> None:
    history.begin(budget=200, definition=[MEMBER, MEMBER])
    history.remove_job(n=0)
    history.work(jobs=1)
    history.resync()
    history.take(queue="a:compensation")
    history.complete(n=0)
    history.delete_parent(n=0, undos=True)
    history.steal_wakeup(fails=False, kept=False)
    history.resync()
    assert history.world.groups["g0"].state == "FAILED"
    history.teardown()


def test_a_started_member_is_counted_after_the_hash_and_then_the_parent_were_deleted(
    history: History,
) -> None:
    history.begin(budget=1, definition=[MEMBER, {**MEMBER, "queue": "b", "when": "Started"}])
    history.finish_stolen(completes=False, kept=False, n=0)
    history.run_out_of_time(n=0)
    history.delete_keys(queue="a")
    history.take(queue="b")
    history.complete_and_resync(n=0)
    history.delete_parent(n=0, undos=False)
    history.teardown()


def test_a_removed_member_that_completed_is_counted_after_its_owning_queue_was_deleted(
    history: History,
) -> None:
    history.begin(budget=1, definition=[MEMBER, MEMBER])
    history.work(jobs=2)
    history.retry(n=0, reset=False)
    history.settle_wakeup()
    history.drain(queue="a")
    history.delete_keys(queue="a")
    history.teardown()


def test_a_removed_member_that_started_is_counted_after_its_owning_queue_was_deleted(
    history: History,
) -> None:
    history.begin(budget=1, definition=[{**MEMBER, "when": "Started"}, *[MEMBER] * 3])
    history.take(queue="a")
    history.die(n=0)
    history.run_out_of_time(n=0)
    history.delete_list(name="wait", queue="a")
    history.obliterate(queue="a")
    history.delete_keys(queue="a")
    history.teardown()
