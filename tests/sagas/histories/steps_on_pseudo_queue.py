"""Steps of foreign clients that use the pseudo queue as a queue."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from jobgroup.model import names
from tests.sagas.histories.group_model import Group
from tests.sagas.histories.steps import Steps, pick, which

# The scores of ACTIVE groups are times; those of other states are higher.
LATEST_TIME = 1e13


class PseudoQueueSteps(Steps):
    """A worker takes wake-ups; people pause the pseudo queue and remove groups like jobs."""

    @rule(fails=st.booleans(), kept=st.booleans())
    def steal_wakeup(self, fails: bool, kept: bool) -> None:
        """Take an entry of the wake-up list, as a worker on the pseudo queue does."""
        world = self.world
        if not world.seen.wakeups or world.seen.is_ledger_paused:
            return
        self.taken += 1
        token = f"token-{self.taken}"
        entry = world.do(world.ground.ledger.steal(token))
        world.thieves[entry] = token
        world.miss_wakeups([entry])
        world.look()
        if fails:
            self.finish_stolen(list(world.thieves).index(entry), completes=False, kept=kept)

    @rule(n=which, completes=st.booleans(), kept=st.booleans())
    def finish_stolen(self, n: int, completes: bool, kept: bool) -> None:
        """Finish a wake-up like a job; the pseudo parent goes with it if it is not to be kept."""
        world = self.world
        entry = pick(world.thieves, n)
        if entry is None or names.group_of_wakeup(entry) in world.leaving:
            return
        group = world.groups.get(names.group_of_wakeup(entry))
        if group and not world.is_indexed(group):
            return  # nothing would be left by which a resync finds the group
        if group and entry != group.id and not kept and not group.has_undo_ledger:
            return
        token = world.thieves.pop(entry)
        finished = world.do(world.ground.ledger.finish(entry, token, completes, kept))
        if group and finished and not kept:
            group.lose_ledger(undos=entry != group.id)
        world.look()

    @rule(paused=st.booleans(), moves_list=st.booleans())
    def pause_pseudo_queue(self, paused: bool, moves_list: bool) -> None:
        """Pause or resume the pseudo queue; 5.x moves one list to the other and destroys that."""
        world, ledger = self.world, self.world.ground.ledger
        entries, aside = world.seen.wakeups, world.seen.aside_wakeups
        if not all(map(world.is_indexed, world.of_wakeups([*entries, *aside]))):
            return  # nothing would be left by which a resync finds the group
        world.do(ledger.pause(paused, moves_list))
        if moves_list:
            moved, destroyed = (entries, aside) if paused else (aside, entries)
            world.miss_wakeups(entries)
            world.lose_wakeups(destroyed if moved else [])
        world.look()

    @rule(n=which, undos=st.booleans())
    def remove_parent(self, n: int, undos: bool) -> None:
        """Remove the pseudo parent of a group or of its undos, with all its children."""
        world = self.world
        group = self.pick_parent(n, undos)
        if group is None:
            return
        children = [job for job in group.ledger(undos) if job.book != "nowhere"]
        if any(job.locked and job.book != "open" for job in children):
            return  # BullMQ would leave its lock behind
        if any(map(world.is_replaced, children)):
            return  # BullMQ would remove the foreign job
        entry = names.undo_id(group.id) if undos else group.id
        if entry in world.seen.active_wakeups and entry not in world.thieves:
            return  # two workers took it, and one finished it: the lock of the other is gone
        removed = world.do(world.ground.ledger.remove(entry))
        is_locked = any(job.locked for job in children)
        assert removed == (not is_locked and entry not in world.seen.active_wakeups)
        if removed:
            for job in children:
                world.vanish(job, booked=False)
            group.lose_ledger(undos)
        world.look()

    @rule(n=which, undos=st.booleans())
    def delete_parent(self, n: int, undos: bool) -> None:
        """Delete the keys of a pseudo parent, but not its children."""
        world = self.world
        if group := self.pick_parent(n, undos):
            entry = names.undo_id(group.id) if undos else group.id
            world.do(world.ground.ledger.delete_parent(entry))
            group.lose_ledger(undos)
            world.look()

    def pick_parent(self, n: int, undos: bool) -> Group | None:
        """Return a group whose pseudo parent exists and can be restored."""
        groups = [each for each in self.world.groups.values() if self.world.is_indexed(each)]
        groups = [each for each in groups if not each.parentless]
        return pick((each for each in groups if each.has_undo_ledger or not undos), n)

    @rule()
    def clean_pseudo_queue(self) -> None:
        """Remove the parents that wait for their children, but not the children."""
        world = self.world
        parked = world.seen.parked
        groups = [each for each in world.groups.values() if parked.get(each.id, 9e15) < LATEST_TIME]
        if all(map(world.is_indexed, groups)):
            world.do(world.ground.ledger.clean("waiting-children"))
            for group in groups:
                group.lose_ledger(undos=False)
            world.look()
