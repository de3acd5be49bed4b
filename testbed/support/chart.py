"""The Helm chart: rendering it, its values, and its README, which `make generate` writes."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed import ROOT
from testbed.build.helm import find_helm
from testbed.support.commands import completed
from testbed.support.errors import Unavailable

CHART = ROOT / "deploy" / "helm"
RELEASE = "jobgroup-operator"
NAMESPACE = "jobgroup-system"
# The values without which the chart cannot be rendered.
REDIS = {"redis": {"url": "redis://redis:6379/0"}}

# Values that the chart accepts for a parent chart and does not use.
UNUSED = {"global", "enabled"}
_OPENING = """\
# The chart jobgroup-operator

[Installing with Helm](../../docs/installing.md) describes how to use the chart. `make generate`
writes this page from `values.schema.json` and `values.yaml`.

## Values

The chart refuses a value that is not in this table, or has the wrong type. A parent chart may also
set `global`, which is not used, and `enabled`, for the `condition` of its dependency.
"""

Values = Mapping[str, Any]
Manifest = dict[str, Any]


class Refused(Unavailable):
    """helm failed; the message is what it printed."""


def helm(*arguments: str | Path) -> str:
    """Run helm, and return what it prints; raise Refused if it fails."""
    done = completed([find_helm(), *arguments], None)
    if done.returncode != 0:
        raise Refused(f"helm {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def with_values(values: Values, redis: Values = REDIS) -> list[str]:
    """Return values as arguments of helm; without a Redis among them, with that of `redis`."""
    return [f"--set-json={name}={json.dumps(value)}" for name, value in {**redis, **values}.items()]


def render(
    values: Values | None = None,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    redis: Values = REDIS,
) -> list[Manifest]:
    """Return the objects of a release."""
    where = ("--namespace", namespace, *with_values(values or {}, redis))
    text = helm("template", release, CHART, *where)
    return [each for each in yaml.safe_load_all(text) if each]


def named(manifests: list[Manifest]) -> dict[tuple[str, str, str], Manifest]:
    """Return objects by kind, namespace and name, which must be unique."""
    found: dict[tuple[str, str, str], Manifest] = {}
    for each in manifests:
        meta = each["metadata"]
        key = each["kind"], meta.get("namespace", ""), meta["name"]
        assert key not in found, key
        found[key] = each
    return found


def schema() -> dict[str, Any]:
    """Return the schema of the chart's values."""
    return dict(json.loads((CHART / "values.schema.json").read_text()))


def defaults() -> dict[str, Any]:
    """Return the chart's default values."""
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def leaves(node: Values, path: str = "") -> Iterator[tuple[str, Values]]:
    """Yield the values that a schema describes, each with its path."""
    if "properties" not in node:
        yield path, node
        return
    for name, field in node["properties"].items():
        yield from leaves(field, f"{path}.{name}" if path else name)


def value_at(values: Values, path: str) -> Any:
    """Return the value at a path."""
    found: Any = values
    for name in path.split("."):
        found = found[name]
    return found


def readme() -> str:
    """Return the README of the chart."""
    rows = ["| value | default | |", "| --- | --- | --- |"]
    for path, node in leaves(schema()):
        if path not in UNUSED:
            default = json.dumps(value_at(defaults(), path))
            rows.append(f"| `{path}` | `{default}` | {_meaning(node)} |")
    return "\n".join([_OPENING, *rows]) + "\n"


def _meaning(node: Values) -> str:
    """Return the description of a value, with its choices if they are limited."""
    if "enum" not in node:
        return str(node["description"])
    *others, last = [f"`{value}`" for value in node["enum"]]
    return f"{node['description'].removesuffix('.')}: {', '.join(others)} or {last}."


def main(folder: Path) -> None:
    """Write the README into the folder of the chart."""
    (folder / "README.md").write_text(readme())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
