"""Alert rules and expressions over a history, evaluated by Prometheus' engine."""

from pathlib import Path

import pytest

from testbed.support import promql
from testbed.support.errors import Unavailable
from testbed.support.promql import complaints, evaluate, firing, lasting, seconds
from testbed.support.scrapes import Scrape

RULES = """
groups:
  - name: lamps
    rules:
      - alert: Dark
        expr: max by (room) (lamp) == 0
        for: 2m
      - alert: Gone
        expr: absent(lamp)
"""


def lamps(**rooms: float) -> dict[str, Scrape]:
    """Return the scrape of a replica with one lamp in each of these rooms."""
    return {"one": Scrape({}, {("lamp", (("room", room),)): on for room, on in rooms.items()})}


def test_an_alert_fires_once_it_has_held_for_long_enough() -> None:
    light, dark = lasting(lamps(hall=1), 600), lamps(hall=0)
    assert firing(light, RULES) == {}
    assert firing([*light, *lasting(dark, 120)], RULES) == {}
    assert firing([*light, *lasting(dark, 150)], RULES) == {"Dark": [{"room": "hall"}]}
    assert firing([*lasting(dark, 600), *light], RULES) == {}


def test_an_alert_fires_only_after_its_duration_from_the_start_of_a_history() -> None:
    assert firing(lasting(lamps(hall=0), 120), RULES) == {}
    assert firing(lasting(lamps(hall=0), 150), RULES) == {"Dark": [{"room": "hall"}]}


def test_the_durations_of_two_series_are_not_added() -> None:
    history = [*lasting(lamps(hall=0, attic=1), 90), *lasting(lamps(hall=1, attic=0), 90)]
    assert firing(history, RULES) == {}


def test_a_series_that_ended_is_absent() -> None:
    assert firing([*lasting(lamps(hall=1), 600), *lasting({}, 360)], RULES) == {"Gone": [{}]}


def test_each_replica_has_series_of_its_own() -> None:
    history = lasting({"one": lamps(hall=1)["one"], "two": lamps(hall=2)["one"]}, 60)
    (answer,) = evaluate(history, ["sum by (namespace) (lamp) + 0"])
    assert answer.metrics == {"lamp"}
    assert answer.points == [[({"namespace": "jobgroups"}, 3.0)]] * 2


def test_operators_differ_by_their_namespaces() -> None:
    history = lasting({"one": lamps(hall=1)["one"], "elsewhere/one": lamps(hall=2)["one"]}, 30)
    (answer,) = evaluate(history, ["sum by (namespace, pod) (lamp)"])
    (points,) = answer.points
    assert sorted((labels["namespace"], labels["pod"], value) for labels, value in points) == [
        ("elsewhere", "one", 2.0),
        ("jobgroups", "one", 1.0),
    ]


def test_an_invalid_expression_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"sum\(: .*unclosed left parenthesis"):
        evaluate([], ["sum("])


def test_invalid_rules_are_reported() -> None:
    assert complaints(RULES) == []
    assert "unknown" in "".join(complaints(RULES.replace("absent", "missing")))


@pytest.mark.parametrize(
    ("text", "expected"), [("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86_400)]
)
def test_durations(text: str, expected: int) -> None:
    assert seconds(text) == expected


def test_a_missing_network_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBGROUP_CACHE", str(tmp_path))
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOFLAGS", "-modcacherw")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    with pytest.raises(Unavailable, match=r"the modules of promql: .* out of reach"):
        promql.engine()
