"""JobGroups are counted by namespace and state, as watch events and lists report them."""

from typing import Any

import pytest

from handlers.jobgroups.counts import NamespaceCounts
from handlers.kube.refs import Ref


class Controller:
    """Records what it receives."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def enqueue(self, ref: Ref, body: Any) -> None:
        self.received.append((ref, body))

    def forget(self, ref: Ref) -> None:
        self.received.append(ref)


def ref(uid: str, namespace: str = "shop") -> Ref:
    return Ref(namespace, f"order-{uid}", uid)


def body(state: str = "") -> dict[str, Any]:
    return {"status": {"state": state}} if state else {}


@pytest.fixture
def counts() -> NamespaceCounts:
    """Count two objects in one namespace, one in another."""
    counts = NamespaceCounts(Controller())
    counts.enqueue(ref("1"), body())
    counts.enqueue(ref("2"), body("ACTIVE"))
    counts.enqueue(ref("3", "bank"), body("FAILED"))
    return counts


def found(counts: NamespaceCounts) -> dict[str, dict[str, int]]:
    """Return the counts without zeros, in order."""
    return {
        namespace: {state: number for state, number in states.items() if number}
        for namespace, states in counts.by_namespace().items()
    }


def test_an_object_is_counted_in_its_last_state(counts: NamespaceCounts) -> None:
    assert found(counts) == {"shop": {"NONE": 1, "ACTIVE": 1}, "bank": {"FAILED": 1}}
    counts.enqueue(ref("1"), body("ACTIVE"))
    counts.enqueue(ref("2"), body("COMPLETED"))
    assert found(counts) == {"shop": {"ACTIVE": 1, "COMPLETED": 1}, "bank": {"FAILED": 1}}


def test_a_deleted_object_is_not_counted(counts: NamespaceCounts) -> None:
    for _ in range(2):
        counts.forget(ref("3", "bank"))
        assert found(counts) == {"shop": {"NONE": 1, "ACTIVE": 1}}


def test_a_namespace_keeps_its_place_while_it_has_an_object(counts: NamespaceCounts) -> None:
    counts.forget(ref("1"))
    counts.enqueue(ref("2"), body("COMPLETED"))
    assert list(found(counts)) == ["shop", "bank"]


@pytest.mark.parametrize(
    ("namespace", "left"),
    [
        ("", {"shop": {"ACTIVE": 1}}),
        ("shop", {"shop": {"ACTIVE": 1}, "bank": {"FAILED": 1}}),
        ("other", {"shop": {"NONE": 1, "ACTIVE": 1}, "bank": {"FAILED": 1}}),
    ],
)
def test_an_object_that_a_list_does_not_contain_is_not_counted(
    counts: NamespaceCounts, namespace: str, left: dict[str, dict[str, int]]
) -> None:
    counts.retain(namespace, {"2"})
    assert found(counts) == left


def test_events_are_passed_on() -> None:
    controller = Controller()
    counts = NamespaceCounts(controller)
    counts.enqueue(ref("1"), body("ACTIVE"))
    counts.forget(ref("1"))
    assert controller.received == [(ref("1"), body("ACTIVE")), ref("1")]
