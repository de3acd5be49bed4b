"""Label selectors mean the same as for the API server."""

import json

import pytest

from handlers.kube.selectors import parse_selector
from testbed.servers.apiserver import ApiServer, KubectlError

LABELS: dict[str, dict[str, str]] = {
    "none": {},
    "shop": {"team": "shop"},
    "bank": {"team": "bank", "example.org/tier": "a.b_c-1"},
    "empty": {"team": "", "in": "x"},
}
VALID = [
    "",
    " ",
    "team",
    "!team",
    "! team",
    "team=shop",
    " team = shop ",
    "team==shop",
    "team!=shop",
    "team=",
    "team!=",
    "team=,in",
    "team in (shop)",
    "team in ( shop , bank )",
    "team in(shop,bank)",
    "team notin (shop,bank)",
    "team in (,shop)",
    "team in (,)",
    "in in (x,in)",
    "in=x,notin!=in",
    "team,team!=shop,example.org/tier=a.b_c-1",
    "!team,example.org/tier",
    "team\tnotin\n(shop)",
]
INVALID = [
    "(((",
    ",",
    "team,",
    "team,,in",
    "team shop",
    "team in",
    "team in shop",
    "team in (shop",
    "team in (shop bank)",
    "team! =shop",
    "team= =shop",
    "=shop",
    "!",
    "!team=shop",
    "team=-shop",
    f"team={64 * 'a'}",
    "Example.org/team",
    "a/b/c",
    "töam",
]


@pytest.fixture(scope="module")
def served(api: ApiServer) -> ApiServer:
    for name, labels in LABELS.items():
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"selected-{name}", "labels": {**labels, "test": "selectors"}},
        }
        api.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    return api


def selected(api: ApiServer, selector: str) -> list[str]:
    """Return which objects the API server selects."""
    chosen = f"test=selectors,{selector}" if selector.strip() else "test=selectors"
    found = api.kubectl("get", "configmaps", "-o", "name", "--selector", chosen)
    return sorted(line.removeprefix("configmap/selected-") for line in found.split())


@pytest.mark.parametrize("selector", VALID)
def test_a_selector_selects_what_the_api_server_does(served: ApiServer, selector: str) -> None:
    parsed = parse_selector(selector)
    assert parsed is not None
    ours = [name for name, labels in LABELS.items() if all(each.holds(labels) for each in parsed)]
    assert sorted(ours) == selected(served, selector)


@pytest.mark.parametrize("selector", INVALID)
def test_a_selector_that_the_api_server_refuses_is_none(served: ApiServer, selector: str) -> None:
    assert parse_selector(selector) is None
    with pytest.raises(KubectlError):
        selected(served, selector)


@pytest.mark.parametrize("selector", ["replicas>1", "replicas < 2", "team in ()"])
def test_numbers_and_no_values_are_not_compared(selector: str) -> None:
    assert parse_selector(selector) is None


@pytest.mark.parametrize("selector", [1_000_000 * " ", 300_000 * "a", 200_000 * "a,", 99_999 * "("])
def test_a_long_text_takes_no_long_time(selector: str) -> None:
    """With a pattern that tries again at each letter, this test would not end."""
    parse_selector(selector)
