"""The chart as a dependency of a parent chart."""

import json
from pathlib import Path

import pytest
import yaml

from testbed.support.chart import CHART, NAMESPACE, REDIS, Manifest, Values, helm
from tests.deploy.rendered import PLAIN, summary

NAME = "jobgroup-operator"


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a parent chart with a condition."""
    folder = tmp_path_factory.mktemp("parent")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {
        "name": NAME,
        "version": version,
        "repository": f"file://{CHART}",
        "condition": f"{NAME}.enabled",
    }
    chart = {"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [dependency]}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(chart))
    helm("dependency", "update", folder)
    return folder


def rendered(parent: Path, values: Values) -> list[Manifest]:
    """Return the objects of the parent chart, with these values for the dependency."""
    given = f"--set-json={NAME}={json.dumps({**REDIS, **values})}"
    text = helm("template", NAME, parent, "--namespace", NAMESPACE, given)
    return [each for each in yaml.safe_load_all(text) if each]


@pytest.mark.parametrize("values", [{}, {"enabled": True}], ids=str)
def test_a_parent_chart_installs_it(parent: Path, values: Values) -> None:
    assert summary(rendered(parent, values)) == PLAIN


def test_the_condition_of_a_parent_chart_leaves_it_out(parent: Path) -> None:
    assert rendered(parent, {"enabled": False}) == []
