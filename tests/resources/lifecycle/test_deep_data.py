"""Data nested deeper than anybody reads is refused, and stops nobody else."""

from testbed.resources import Resources, manifest, until
from testbed.sagas import job
from tests.builders import deeply_nested
from tests.handlers.conftest import Shared


def test_one_object_that_nobody_can_read_holds_up_no_other(
    resources: Resources, shared: Shared
) -> None:
    deep = deeply_nested(manifest("deep", job("charge")))
    resources.kubectl("create", "-f", "-", stdin=deep)

    def ask(path: str) -> str:
        return resources.kubectl("get", "jobgroup", "deep", "-o", f"jsonpath={{{path}}}")

    sentence = "data cannot be written as JSON: it is nested more than 200 levels deep"
    stalled = ".status.conditions[?(@.type=='Stalled')].message"
    until(lambda: ask(stalled) == sentence, lambda: ask(".status") + shared.operator.log[-3000:])
    assert ask(".metadata.finalizers") == ""

    resources.apply(manifest("good", job("charge", f"nobody-{resources.namespace}")))
    resources.reaches("good", state="ACTIVE")
