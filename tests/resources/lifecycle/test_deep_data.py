"""Data that is nested too deeply is refused and affects no other object."""

from testbed.support.resources import Resources, manifest, until
from testbed.support.sagas import job
from tests.builders import deeply_nested
from tests.resources.fixtures import Shared


def test_an_unreadable_object_delays_no_other(resources: Resources, shared: Shared) -> None:
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
