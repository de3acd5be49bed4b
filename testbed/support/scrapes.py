"""One scrape of an operator's /metrics."""

from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from testbed.servers.operator import OperatorProcess

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scrape:
    """The samples of one scrape, by name and labels."""

    kinds: dict[str, str]
    samples: dict[tuple[str, Labels], float]

    @classmethod
    def of(cls, replica: OperatorProcess) -> Self:
        """Scrape a replica; it must answer."""
        code, text = replica.probe("/metrics")
        assert code == 200, f"/metrics answered {code}: {text}"
        families = list(text_string_to_metric_families(text))
        return cls(
            {family.name: family.type for family in families},
            {
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in families
                for sample in family.samples
            },
        )

    def value(self, name: str, **labels: str) -> float | None:
        """Return one sample, or None if there is none."""
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def by(self, label: str, name: str) -> dict[str, float]:
        """Return the samples of a name by the value of one label."""
        return {
            dict(labels)[label]: value
            for (each, labels), value in self.samples.items()
            if each == name
        }
