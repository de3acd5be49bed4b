"""The parts of the benchmarks, in the order in which they run."""

import sys
from collections.abc import Awaitable, Callable

from bench.creation import creation
from bench.driving import driving
from bench.failing import failing
from bench.fairness import fairness
from bench.growth import growth
from bench.harness import Bench
from bench.kinds import kinds
from bench.memory import memory
from bench.noticing import noticing
from bench.operating import operating
from bench.planning import planning
from bench.recovering import recovering
from bench.rows import Row
from bench.scaling import scaling
from bench.settling import settling
from bench.spending import spending

Measurement = Callable[[Bench], Awaitable[list[Row]]]

PARTS: dict[str, Measurement] = {
    measure.__name__: measure
    for measure in (
        creation,
        settling,
        spending,
        memory,
        failing,
        growth,
        kinds,
        driving,
        noticing,
        operating,
        planning,
        recovering,
        scaling,
        fairness,
    )
}


def list_parts() -> list[str]:
    """Format the name of each part and the first sentence of its module."""
    docs = {name: sys.modules[measure.__module__].__doc__ for name, measure in PARTS.items()}
    sentences = {name: " ".join((doc or "").split()).split(". ")[0] for name, doc in docs.items()}
    return [f"  {name:<12} {sentence.rstrip('.')}" for name, sentence in sentences.items()]


def choose(names: str) -> dict[str, Measurement]:
    """Return the parts with these names, separated by commas; all if there is no name.

    Raise KeyError with the names that no part has.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in PARTS]:
        raise KeyError(", ".join(unknown))
    return {name: PARTS[name] for name in PARTS if not wanted or name in wanted}
