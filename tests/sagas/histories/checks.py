"""The comparison of Redis and the model, and the rules that hold after every step."""

from collections import Counter

from jobgroup.model import names
from jobgroup.model.snapshot import GroupState
from tests.sagas.histories.ground import QUEUES
from tests.sagas.histories.group_model import Group
from tests.sagas.histories.records import Records

NOT_LISTED = {"gone", "lost", "orphaned"}


class Checks(Records):
    """The checks of a world."""

    def look(self, deleting: bool = False) -> None:
        """Read Redis and compare it with the model; a step may have deleted events."""
        self.deleting = deleting
        self.observe()
        self.deleting = False
        self.check()

    def check(self) -> None:
        assert self.seen.ghosts == [], "these jobs are in a queue, but have no hash"
        there = sorted((job.id, job.place) for job in self.jobs if job.place not in NOT_LISTED)
        same("jobs", self.seen.places, there)
        booked = [job for group in self.groups.values() for job in group.jobs]
        known = [(job_id, book) for job_id, book in self.seen.books if not self.is_leaving(job_id)]
        noted = sorted((job.id, job.book) for job in booked if job.book != "nowhere")
        same("ledger", known, noted)
        for group in self.groups.values():
            self.check_group(group)
        for group in self.leaving.values():
            same("events of a group that is being removed", self.events[group.id], group.events)
        # The scores of an ended group whose hash was deleted may show another state.
        if not self.leaving and not any(each.hashless for each in self.groups.values()):
            self.check_totals()
        for group_id in self.seen.groups.keys() - self.groups.keys() - self.leaving.keys():
            assert self.seen.groups[group_id] is None
        self.sound = True

    def check_totals(self) -> None:
        """Check the totals against the model; groups on the wake-up list count in no state."""
        settled = [each for each in self.groups.values() if each.id in self.seen.parked]
        totals = self.do(self.store.totals())
        counted = {state: count for state, count in totals.groups.items() if count}
        same("totals", counted, dict(Counter(group.state for group in settled)))
        same("wake-ups", totals.wakeups, len(self.seen.wakeups))

    def check_group(self, group: Group) -> None:
        read = self.seen.groups[group.id]
        if group.broken:
            assert read is None
            assert self.will_be_found(group), f"no resync will find {group.id}"
            return
        assert read is not None
        derived, state = read.derived, read.group
        same("state", state.state, group.state)
        self.check_answer(state, derived)
        if derived in {"FAILED", "FAILED_COMPENSATION"} and not group.ended:
            without = [m for m in group.members if m.when and not m.undo and not m.cancelled]
            ran = [m for m in without if m.ever_completed or (m.entered and m.when == "Started")]
            # What a settle has recorded of a member that was removed is final.
            due = [m.id for m in ran if m.wants_undo or not m.removed]
            assert not due, f"an end is derived, but {due} are still to be undone"
        same("counts", {name: getattr(state, name) for name in group.counts}, group.counts)
        # Until a driver notices it, a job in the place of an open member is taken for the member.
        unclear = [m for m in group.members if m.book == "open" and self.is_replaced(m)]
        shown = (m for m in group.members if not m.unlisted and m not in unclear)
        statuses = {m.id: m.status for m in shown}
        same("statuses", {name: self.seen.statuses[name] for name in statuses}, statuses)
        same("events", self.events[group.id], group.events)
        assert (state.finished_at is not None) == group.ended
        ends = [each for each in self.seen.ends if each.startswith(f"{group.id}-end-")]
        same("jobs of onEnd", sorted(ends), sorted(group.end_jobs))
        assert bool(state.on_end_error) == bool(group.end_jobs_left)
        if group.state not in {"ACTIVE", "COMPLETED"}:
            suspects = {m.id for m in group.members if m.starts or m.removed}
            assert state.failed_job_id in (suspects if group.failed_first else {""})
            assert group.failed_first or state.reason == group.reason
        assert group.state != "COMPLETED" or not group.undos, "a completed group was undone"
        for member in group.members:
            if added := self.undos_added[f"{member.id}-undo"]:
                made = member.undo.made if member.undo else 1
                assert added == made, f"{member.id} was undone twice"
                # Without the hash or the events, a start cannot be ruled out.
                unknown = not member.hashed or "added" not in member.history
                started = member.entered or unknown
                assert member.ever_completed or (member.when == "Started" and started)
        for undo in group.undos:
            was_run = undo.resolved and undo.entered != undo.resolved_after
            assert not was_run, f"{undo.id} was run after somebody resolved it"
        if not group.ended:
            found = self.will_be_found(group)
            assert found, f"no wake-up and no resync will settle {group.id}"

    def will_be_found(self, group: Group) -> bool:
        """Return whether a driver or a resync will settle the group."""
        if group.parentless or group.unwoken:
            return self.is_indexed(group)
        stolen = set(map(names.group_of_wakeup, self.seen.stolen))
        return group.id in self.seen.parked or self.seen.is_woken(group.id) or group.id in stolen

    def check_lists(self) -> None:
        """Check that a call added no job to a list of a paused queue: a resume may destroy it."""
        for queue in self.before.paused & self.seen.paused:
            for before, now in (
                (self.before.lists, self.seen.lists),
                (self.before.aside, self.seen.aside),
            ):
                added = set(now[queue]) - set(before[queue])
                assert not added, f"a resume may lose {added}"

    def check_answer(self, state: GroupState, derived: str) -> None:
        """Check that the answer of get_group_state does not contradict itself."""
        assert derived == state.state or not state.ended
        done = state.completed_count == state.total_jobs
        assert derived != "COMPLETED" or done
        assert derived != "ACTIVE" or (not done and not state.failed_count)
        finished = state.undone_count + state.undo_failed_count
        assert finished <= state.undo_count

    def check_settled(self, group: Group) -> None:
        """Check that no work is left for a driver."""
        if group.all_ended:
            assert group.ended, f"all jobs of {group.id} have ended, but it is {group.state}"
        if group.state == "ACTIVE":
            assert all(member.book in {"open", "done"} for member in group.members)
            assert not any(m.place == "lost" and m.book == "open" for m in group.members)
        if group.state != "ACTIVE":
            assert not any(job.place == "lost" and job.book == "open" for job in group.jobs)
        if group.all_ended and group.state != "COMPLETED":
            assert not any(member.wants_undo for member in group.members)

    def check_removed(self) -> None:
        """Check that removed groups left their tombstones and nothing else."""
        books, left = f"{self.prefix}:_jobgroups", set(self.do(self.keys()))
        tombs = {f"{books}:tomb:{group_id}" for group_id in self.definitions.keys() - self.lost}
        of_bullmq = {f"{books}:{name}" for name in ("events", "marker", "meta")}
        same(
            "ledger keys", {key for key in left if key.startswith(books)} - tombs - of_bullmq, set()
        )
        assert tombs <= left
        strays = {f"{self.prefix}:{job.queue}:{job.id}" for job in self.strays}
        jobs = {
            key for key in left if key.startswith(tuple(f"{self.prefix}:{q}:g" for q in QUEUES))
        }
        same("keys of jobs", {key.removesuffix(":lock") for key in jobs} - strays, set())
        self.sound = True


def same(what: str, seen: object, expected: object) -> None:
    """Check that a value in Redis equals the value in the model."""
    assert seen == expected, f"{what}: {seen} should be {expected}"
