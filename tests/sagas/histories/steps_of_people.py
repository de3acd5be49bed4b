"""Steps of people, of retention and of foreign clients."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from jobgroup.model import names
from tests.sagas.histories.checks import NOT_LISTED
from tests.sagas.histories.job_model import ENDS
from tests.sagas.histories.steps import Steps, pick, queues, which


class PeopleSteps(Steps):
    """People remove, retry and pause jobs, and delete keys."""

    @rule(n=which)
    def remove_job(self, n: int) -> None:
        if job := pick(self.world.at("waiting", "delayed", "active", "completed", "failed"), n):
            removed = self.world.do(self.world.queues[job.queue].remove(job.id))
            assert removed == (not job.locked)
            if removed:
                self.world.hint(job)
                self.world.vanish(job)
            self.world.look()

    @rule(n=which)
    def replace_job(self, n: int) -> None:
        """Add a job with the id of a member or an undo that is gone."""
        world = self.world
        taken = {job.id for job in world.strays if job.hashed}
        jobs = [job for group in world.groups.values() for job in group.jobs]
        gone = (job for job in jobs if not job.hashed and job.id not in taken)
        if len(world.strays) < 12 and (job := pick(gone, n)):
            world.add_foreign(job.queue, job.id)
            world.look()

    @rule(queue=queues)
    def drain(self, queue: str) -> None:
        self.world.do(self.world.queues[queue].drain())
        for job in self.world.at("waiting", "delayed", queue=queue):
            self.world.vanish(job)
        self.world.look()

    @rule(queue=queues, place=st.sampled_from(["completed", "failed"]))
    def sweep(self, queue: str, place: str) -> None:
        self.world.do(self.world.queues[queue].clean(place))
        for job in self.world.at(place, queue=queue):
            job.vanish()
        self.world.look()

    @rule(queue=queues, name=st.sampled_from(["wait", "paused", "prioritized", "delayed"]))
    def clean(self, queue: str, name: str) -> None:
        """Remove the pending jobs of a list or set, without an event for each."""
        jobs = self.world.pending_in(queue, name)
        self.world.do(self.world.queues[queue].clean(name))
        for job in jobs:
            self.world.vanish(job)
        self.world.look()

    @rule(n=which)
    def remove_from_parent(self, n: int) -> None:
        """Remove a member from its parent; it stays in its queue."""
        world = self.world
        if member := pick(
            (member for group in world.groups.values() for member in group.members), n
        ):
            parent = names.parent_key(world.prefix, member.id.split("-")[0])
            found = world.do(world.queues[member.queue].remove_from_parent(member.id, parent))
            assert found == (member.hashed and member.book == "open")
            if found:
                world.detach(member)
            world.look()

    @rule(n=which)
    def delete_job(self, n: int) -> None:
        """Delete the hash of a job without BullMQ: its ledger does not change."""
        if job := pick((job for job in self.world.jobs if job.hashed), n):
            self.world.do(self.world.queues[job.queue].delete_job(job.id))
            self.world.vanish(job, booked=False)
            self.world.look()

    @rule(queue=queues, name=st.sampled_from(["wait", "paused"]))
    def delete_list(self, queue: str, name: str) -> None:
        """Delete a list; its jobs keep their hashes."""
        jobs = self.world.pending_in(queue, name)
        self.world.do(self.world.queues[queue].delete_list(name))
        for job in jobs:
            self.world.lose_list(job)
        self.world.look()

    @rule(n=which, reset=st.booleans())
    def retry(self, n: int, reset: bool) -> None:
        if job := pick(self.world.at("completed", "failed"), n):
            was_reset = self.world.do(self.world.queues[job.queue].retry(job.id, job.place, reset))
            self.world.hint(job)
            if was_reset:
                job.tries = job.ats = 0
            job.retry()
            self.world.look()

    @rule(queue=queues, place=st.sampled_from(["completed", "failed"]), booked=st.booleans())
    def retry_all(self, queue: str, place: str, booked: bool) -> None:
        """Retry in bulk; 5.x does not change the ledger, so the result causes no wake-up."""
        booked = self.world.do(self.world.queues[queue].retry_all(place, booked))
        for job in self.world.at(place, queue=queue):
            job.retry(booked)
            if not booked and (group := self.world.group_of(job)):
                group.unheard = True
        self.world.look()

    @rule(queue=queues, paused=st.booleans(), moves_list=st.booleans())
    def pause(self, queue: str, paused: bool, moves_list: bool) -> None:
        """Pause or resume a queue; 5.x moves one list to the other, and destroys the other."""
        if self.world.do(self.world.queues[queue].pause(paused, moves_list)):
            self.note_moved_list(queue, paused)
        self.world.look()

    def note_moved_list(self, queue: str, paused: bool) -> None:
        """Record that 5.x moved the list `wait` to `paused`, or back, and destroyed the other."""
        world = self.world
        wait, aside = world.seen.lists[queue], world.seen.aside[queue]
        moved, destroyed = (wait, aside) if paused else (aside, wait)
        lost = [job for job in world.at("waiting", queue=queue) if moved and job.id in destroyed]
        assert world.ground.mixes_versions or not lost, f"5.x lost {[job.id for job in lost]}"
        for job in lost:
            world.lose_list(job)

    @rule(queue=queues)
    def resume_by_hand(self, queue: str) -> None:
        """Resume a queue, but leave jobs in the list `paused`."""
        if not self.world.ground.mixes_versions:
            return  # only a later version leaves jobs that 5.x put there
        self.world.do(self.world.queues[queue].resume_by_hand())
        self.world.look()

    @rule(queue=queues)
    def obliterate(self, queue: str) -> None:
        """Delete a queue with all its jobs and its events."""
        world = self.world
        if world.do(world.queues[queue].obliterate()):
            self.note_moved_list(queue, paused=True)
        for job in world.jobs:
            if job.queue == queue and job.place not in NOT_LISTED:
                world.vanish(job)
        world.look(deleting=True)

    @rule(queue=st.sampled_from(["a", "b"]))
    def delete_keys(self, queue: str) -> None:
        """Delete all keys of a queue, of its queue of undos and of the groups that it owns."""
        world = self.world
        groups = [group for group in world.groups.values() if group.queue == queue]
        is_leaving = any(group.queue == queue for group in world.leaving.values())
        if is_leaving or any(group.is_half_lost for group in groups):
            return
        world.do(world.queues[queue].delete_keys())
        for job in world.jobs:
            if job.queue in {queue, f"{queue}:compensation"} and job.hashed:
                world.vanish(job, booked=False)
        for group in groups:
            group.lose_hash()
            world.events[group.id].clear()
        world.look(deleting=True)

    @rule(queue=queues)
    def remove_orphans(self, queue: str) -> None:
        """Delete jobs that are in no list; the set of failed undos looks like a key of a job."""
        world = self.world
        groups = [group for group in world.groups.values() if group.queue == queue]
        if any(group.broken or group.unwoken for group in groups):
            return  # the index, which is deleted, is all by which a resync finds the group
        removed = world.do(world.queues[queue].remove_orphans())
        for job in world.jobs if removed else []:
            if job.queue == queue and job.place in {"lost", "orphaned"}:
                world.vanish(job, booked=False)
            elif job.queue == f"{queue}:compensation" and job.place == "failed":
                job.place = "orphaned"
        world.look()

    @rule(blocked=st.booleans())
    def block_ends(self, blocked: bool) -> None:
        """Give a key of the queue of the jobs of onEnd another type, or repair it."""
        world, redis = self.world, self.world.ground.redis
        wait, aside = (f"{world.prefix}:{ENDS}:{name}" for name in ("wait", "aside"))

        async def block() -> None:
            if await redis.exists(wait):
                await redis.rename(wait, aside)
            await redis.set(wait, "in the way")

        async def repair() -> None:
            await redis.delete(wait)
            if await redis.exists(aside):
                await redis.rename(aside, wait)

        if blocked != world.ends_blocked:
            world.do(block() if blocked else repair())
            world.ends_blocked = blocked
        world.look()

    @rule(queue=queues, jobs=st.integers(1, 3))
    def add_foreign(self, queue: str, jobs: int) -> None:
        """Add jobs that belong to no group."""
        for _ in range(jobs):
            if len(self.world.strays) < 12:
                self.world.add_foreign(queue)
        self.world.look()
