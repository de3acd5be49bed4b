"""Steps of callers of the API."""

from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from jobgroup.definition.answers import completion, failure
from jobgroup.errors import (
    GroupExistsError,
    GroupNotFoundError,
    GroupRemovedError,
    InvalidGroupStateError,
    InvalidJobStateError,
    JobNotFoundError,
    RedisStateLostError,
)
from tests.sagas.histories.definitions import Definition, definitions, planned
from tests.sagas.histories.group_model import Group
from tests.sagas.histories.steps import Steps, pick, which


class CallerSteps(Steps):
    """Callers create, cancel and remove groups, and answer jobs."""

    @rule(definition=definitions)
    def create(self, definition: Definition) -> None:
        groups = self.world.groups.values()
        if len(groups) < 4 and sum(not group.ended for group in groups) < 2:
            self.world.create(definition)

    @rule(n=which, same=st.booleans())
    def create_again(self, n: int, same: bool) -> None:
        """Create a group again: Redis refuses it or does not change it."""
        group_id = self.any_id(n)
        if group_id in self.world.lost:
            return
        definition = self.world.definitions[group_id]
        again = definition if same else [*definition, {"queue": "a", "opts": {}, "when": None}]
        (answer,) = self.world.do(self.world.store.create([planned(group_id, again)]))
        group = self.world.groups.get(group_id)
        if group is None:
            assert isinstance(answer, GroupRemovedError)
        elif group.hashless:
            assert isinstance(answer, RedisStateLostError)
        elif same and not group.broken and not group.has_no_digest:
            assert answer is False
        else:
            assert isinstance(answer, GroupExistsError)
        self.world.look()

    @rule(n=which)
    def cancel(self, n: int) -> None:
        group = pick(self.world.groups.values(), n)
        if group is None:
            return
        if group.broken:
            self.is_not_found(self.world.store.cancel(group.id))
            return
        was_active = group.state == "ACTIVE"
        entries = self.world.seen.wakeups.count(group.id)
        refused = self.is_refused(self.world.store.cancel(group.id))
        self.world.observe()
        more = self.world.seen.wakeups.count(group.id) > entries
        self.world.note_settled(group, "cancelled", more)
        self.world.check()
        assert refused == (not was_active or group.state == "COMPLETED")

    @rule(n=which, completes=st.booleans(), same=st.booleans())
    def answer(self, n: int, completes: bool, same: bool) -> None:
        """Complete or fail a job without a worker."""
        world = self.world
        member = pick([m for each in world.groups.values() for m in each.members], n)
        if member is None:
            return
        group = world.groups[member.id.split("-")[0]]
        answer = completion("yes", "ann") if completes else failure("no", "ann")
        if same and member.answer:
            answer = member.answer
        work = world.store.answer(group.id, member.id, answer)
        if group.broken:
            self.is_not_found(work)
            return
        known, fits = member.answer, group.can_be_answered(member) and not world.is_replaced(member)
        try:
            accepted = world.do(work)
        except (InvalidGroupStateError, InvalidJobStateError, JobNotFoundError):
            assert not fits, f"{member.id} cannot be answered, but it is {member.place}"
            assert known != answer or member.unlisted, "the same answer is refused"
        else:
            assert accepted == (known is None)
            assert fits if accepted else known == answer, f"{member.id} is {member.place}"
            if accepted:
                member.end_as(answer)
        world.look()

    @rule(n=which)
    def retry_undos(self, n: int) -> None:
        """Retry all failed undos; a second call changes nothing."""
        group = self.settled(n)
        if group is None:
            return
        was_failed = group.state == "FAILED_COMPENSATION"
        replaced = {job.id for job in self.world.strays if job.hashed}
        can_retry = was_failed and group.retry_undos(replaced)
        runs_again = group.state == "COMPENSATING" and group.events.count(
            "group:failed FAILED_COMPENSATION"
        )
        refused = self.is_refused(self.world.store.retry_undos(group.id))
        assert refused != bool(can_retry or runs_again)
        self.world.note_request(group)

    @rule(n=which, m=which)
    def resolve_undo(self, n: int, m: int) -> None:
        """Resolve an undo; a second call changes nothing."""
        group = self.settled(n)
        undo = pick(group.undos, m) if group else None
        if group is None or undo is None:
            return
        is_resolvable = undo.book == "failed" or (undo.book == "open" and undo.place != "active")
        can_act = group.state in {"COMPENSATING", "FAILED_COMPENSATION"}
        job_id = undo.id.removesuffix("-undo")
        refused = self.is_refused(self.world.store.resolve_undo(group.id, job_id, "by hand"))
        if not undo.resolved and can_act and is_resolvable and not undo.forgotten:
            undo.resolve()
        assert refused == (not undo.resolved)
        self.world.note_request(group)

    def settled(self, n: int) -> Group | None:
        """Return a group after it was settled until no work is left."""
        group = pick((each for each in self.world.groups.values() if not each.broken), n)
        if group is None:
            return None
        self.world.empty_wakeups()
        self.world.settle(group.id)
        self.world.empty_wakeups()
        return group if group.id in self.world.groups else None

    @rule(n=which)
    def remove_group(self, n: int) -> None:
        group = pick(self.world.groups.values(), n)
        if group is None:
            return
        if group.broken:
            self.is_not_found(self.world.store.remove(group.id))
            return
        refused = self.is_refused(self.world.store.remove(group.id))
        assert refused == (not group.ended)
        if not refused:
            self.world.forget(group.id)
        self.world.look()

    @rule(n=which)
    def begin_removal(self, n: int) -> None:
        """Make only the first call of a removal."""
        world = self.world
        group = pick((each for each in world.groups.values() if each.ended and not each.broken), n)
        if group is None:
            return
        held = {job.id for job in group.jobs if job.locked}
        left = world.remove_piece(group.id)
        if left:
            world.let_go |= held
            world.leaving[group.id] = world.groups.pop(group.id)
        else:
            world.forget(group.id)
        world.look()

    @rule()
    def finish_removal(self) -> None:
        for group_id in list(self.world.leaving):
            self.world.do(self.world.store.remove(group_id))
            self.world.observe()  # active jobs may have ended since the removal began
            self.world.forget(group_id)
            self.world.look()

    def is_not_found(self, work: Coroutine[Any, Any, Any]) -> None:
        """Check that a call does not find a group of which somebody deleted keys."""
        with pytest.raises(GroupNotFoundError):
            self.world.do(work)
        self.world.look()

    def is_refused(self, work: Coroutine[Any, Any, Any]) -> bool:
        try:
            self.world.do(work)
        except (InvalidGroupStateError, InvalidJobStateError):
            return True
        return False
