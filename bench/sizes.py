"""The sizes of all measurements."""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of all measurements."""

    rounds: int = 7
    groups: int = 2000
    failing: tuple[int, ...] = (100, 2000)
    backlog: int = 100_000
    members: tuple[int, ...] = (100, 2000)
    existing: tuple[int, ...] = (100, 100_000)
    queues: tuple[int, ...] = (100, 200)
    objects: int = 500
    finished: int = 9_000
    running: int = 1_000
    rest: float = 60
    large_plans: int = 5
    pools: int = 500
    bursts: int = 40
    # After how many seconds idle pools are read again; at least twice the time of a first reading.
    pool_resync: float = 60
    # How often somebody sets the replicas of a workload to 0.
    stops: int = 5
    failovers: int = 5
    # The default of the operator.
    watch_timeout: int = 60
    large_groups: int = 60
    large_jobs: int = 2000
    many_pools: int = 3000
    # The seconds in which the neighbour is measured without a flood.
    calm: float = 5
    beside_running: tuple[int, ...] = (100_000,)
    beside_ended: tuple[int, ...] = (1_000_000,)
    beside_failed: tuple[int, ...] = (100_000,)
    # Longer than the interval between two resyncs.
    seconds: float = 45
    failures: int = 60
    drains: int = 5


QUICK = Sizes(
    rounds=1,
    groups=100,
    failing=(10,),
    backlog=1000,
    members=(10, 100),
    existing=(100, 200),
    queues=(10, 100),
    objects=20,
    finished=50,
    running=10,
    rest=1,
    large_plans=1,
    pools=5,
    bursts=2,
    pool_resync=4,
    stops=1,
    failovers=1,
    watch_timeout=5,
    large_groups=2,
    large_jobs=50,
    many_pools=5,
    calm=0.5,
    beside_running=(200,),
    beside_ended=(200,),
    beside_failed=(200,),
    seconds=2,
    failures=5,
    drains=1,
)


def chosen_sizes(environment: Mapping[str, str]) -> Sizes:
    """Return the sizes that the environment selects.

    BENCH_QUICK=1 selects small ones for a test. BENCH_RUNNING, BENCH_ENDED and BENCH_FAILED are
    numbers of other groups, separated by commas, beside which the driver is measured.
    """
    sizes = QUICK if environment.get("BENCH_QUICK") else Sizes()

    def numbers(name: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        given = environment.get(name)
        return otherwise if given is None else tuple(map(int, filter(None, given.split(","))))

    return replace(
        sizes,
        beside_running=numbers("BENCH_RUNNING", sizes.beside_running),
        beside_ended=numbers("BENCH_ENDED", sizes.beside_ended),
        beside_failed=numbers("BENCH_FAILED", sizes.beside_failed),
    )
