"""Steps of drivers."""

from hypothesis.stateful import rule

from jobgroup.resync import RUNNING, Resync
from jobgroup.store.reviews import Cursor
from tests.sagas.histories.steps import Steps, which


class DriverSteps(Steps):
    """Drivers settle groups and review them."""

    @rule(n=which)
    def settle(self, n: int) -> None:
        """Settle once, as a driver that then dies, or as a second driver."""
        self.world.settle(self.any_id(n))

    @rule()
    def settle_wakeup(self) -> None:
        """Settle the first group of the wake-up list."""
        if self.world.seen.wakeups:
            self.world.settle_wakeup()

    @rule(n=which)
    def give_up_workers(self, n: int) -> None:
        """Settle after the grace period for missing workers."""
        self.world.settle(self.any_id(n), patient=False)

    @rule(n=which)
    def run_out_of_time(self, n: int) -> None:
        """Settle a group whose deadline has passed."""
        self.world.settle(self.any_id(n), "DeadlineExceeded")

    @rule()
    def drive(self) -> None:
        self.world.empty_wakeups()
        for group in self.world.groups.values():
            if not group.unheard:
                self.world.check_settled(group)

    @rule()
    def review_ledgers(self) -> None:
        """Review only the sizes of the ledgers: they show every job that BullMQ removed."""
        world = self.world
        for state in RUNNING:
            found = world.do(world.store.reviews.short(state, Cursor()))
            world.do(self.settle_found(found.due))
        for group in world.groups.values():
            if not group.ended and not group.broken and group.id in world.seen.parked:
                jobs = [*(m for m in group.members if not m.cancelled), *group.undos]
                lost = [job.id for job in jobs if job.book == "nowhere" and not job.forgotten]
                assert not lost, f"{lost} are missing in the ledger"

    @rule()
    def follow_hints(self) -> None:
        """Settle the groups whose jobs people removed or retried, as far as events name them."""
        world = self.world
        hints = world.do(world.store.reviews.hints(world.followed))
        world.followed |= {queue: hint.last for queue, hint in hints.items()}
        for queue, hint in hints.items():
            named = {gid for gid in world.hinted[queue] if self.is_readable(gid)}
            assert named <= set(hint.groups), f"events of {queue} name {named}"
            world.hinted[queue].clear()
        groups = [group_id for hint in hints.values() for group_id in hint.groups]
        world.do(self.settle_found(list(dict.fromkeys(groups))))

    def is_readable(self, group_id: str) -> bool:
        group = self.world.groups.get(group_id)
        return group is not None and not group.broken

    async def settle_found(self, group_ids: list[str], queue: str = "", request: str = "") -> int:
        """Settle groups that a review found; none needs a repair unless a wake-up was missed."""
        self.world.note_review()
        for group_id in group_ids:
            group = self.world.groups.get(group_id)
            excused = group is None or group.unheard
            repaired = self.world.settle(group_id, queue=queue)
            assert excused or not repaired, f"{group_id} got no wake-up"
        return 0

    @rule()
    def resync(self) -> None:
        """Review all groups; none needs a repair unless a wake-up was missed."""
        world = self.world

        stolen = world.seen.stolen
        world.do(world.store.reviews.reclaim())
        world.look()
        assert not world.seen.stolen
        assert not world.seen.is_ledger_paused
        assert stolen <= set(world.seen.wakeups), "a foreign client keeps wake-ups"
        had_ended = [each for each in world.groups.values() if each.ended and not each.broken]
        unchanged = [each for each in world.groups.values() if not each.unheard]
        # A group that is in no list is restored by the first pass, and reviewed by the second.
        passes = 2 if any(each.broken or each.unwoken for each in world.groups.values()) else 1

        world.empty_wakeups()
        waiting = [group.id for group in world.groups.values() if group.is_waiting_to_end]
        review = Resync(world.store, self.settle_found, lambda: waiting, lambda _: None)
        for _ in range(passes):
            world.do(review.review_everything())
        world.note_review()
        world.check()
        for group in had_ended:
            kept = group.id in world.groups and group.state != "FAILED_COMPENSATION"
            assert not kept or group.queue in world.seen.exists, f"{group.id} was not discarded"
        for job in [job for group in unchanged for job in group.jobs if job.book == "open"]:
            left = job.id in world.seen.aside[job.queue] and job.queue not in world.seen.paused
            assert not left, f"no worker can take {job.id}"
        world.empty_wakeups()
        for group in world.groups.values():
            assert not group.broken, f"{group.id} was not restored"
            assert world.is_indexed(group) or group not in unchanged, f"{group.id} is not indexed"
            world.check_settled(group)
            assert world.ends_blocked or not group.end_jobs_left
            orphaned = [job.id for job in group.undos if job.place == "orphaned"]
            assert group.state == "ACTIVE" or not orphaned, f"{orphaned} are in no set"
