"""Random histories: steps of stock clients, people, callers and drivers on the same groups.

No rule has a precondition: if the choice of rules depended on what Redis did, a history could not
be repeated. A step that does not apply does nothing.
"""

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.sagas.histories.definitions import Definition, definitions
from tests.sagas.histories.ground import BUDGETS, QUEUES, Ground
from tests.sagas.histories.instant import run
from tests.sagas.histories.steps import which
from tests.sagas.histories.steps_of_drivers import DriverSteps
from tests.sagas.histories.steps_of_people import PeopleSteps
from tests.sagas.histories.steps_of_workers import WorkerSteps
from tests.sagas.histories.steps_on_pseudo_queue import PseudoQueueSteps
from tests.sagas.histories.world import World

SETTINGS = settings(
    stateful_step_count=50,
    phases=(Phase.generate, Phase.shrink),
    deadline=None,
    derandomize=False,
    database=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


class History(WorkerSteps, PeopleSteps, PseudoQueueSteps, DriverSteps):
    """One history of one world; every step ends with a comparison of Redis and the model."""

    @initialize(budget=st.sampled_from(BUDGETS), definition=definitions)
    def begin(self, budget: int, definition: Definition) -> None:
        self.world = World(self.ground, budget)
        self.world.create(definition)

    @rule(n=which)
    def complete_and_resync(self, n: int) -> None:
        """Complete a job; a resync is the next to look at its group."""
        self.complete(n)
        self.resync()

    # After the last step: workers run all jobs, then every group must end and be removable.

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if self.world.sound:
                self.bring_to_an_end()
        finally:
            run(self.world.clear())

    def bring_to_an_end(self) -> None:
        world = self.world
        self.block_ends(blocked=False)
        for _ in range(10):
            for queue in QUEUES:
                self.pause(queue, paused=False, moves_list=False)
            self.resync()
            if all(group.ended and not group.broken for group in world.groups.values()):
                break
            self.run_everything()
        for group in list(world.groups.values()):
            assert group.ended, f"{group.id} did not end: it is still {group.state}"
            self.remove_group(0)
        self.finish_removal()
        world.check_removed()

    def run_everything(self) -> None:
        world = self.world
        for queue in QUEUES:
            if world.at("active", queue=queue):
                self.check_stalls(queue)
                self.check_stalls(queue)
        while world.at("delayed"):
            self.come_due(0)
        for queue in QUEUES:
            while world.can_be_taken(queue):
                self.take(queue)
        while world.held:
            self.complete(0)


def run_histories(ground_: Ground, settings_: settings, seed_: str = "") -> None:
    """Run the number of histories in the settings; raise the first failure.

    The same seed repeats the same histories; without one, they are random.
    """

    class Here(History):
        ground = ground_

    if seed_:
        seed(seed_)(Here)
    run_state_machine_as_test(Here, settings=settings_)
