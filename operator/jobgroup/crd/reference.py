"""`make generate`: write the reference of all kinds and the saga table. Pure except for main.

The reference is generated from the CRDs, so it has the descriptions that `kubectl explain` prints.
The saga table is generated from lua/includes/saga.lua and its comments.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobgroup.crd.generate import CRDS
from jobgroup.crd.structural import Schema
from jobgroup.definition.options import MAX_COUNT
from jobgroup.store.scripts import FOLDER

_OPENING = """\
# Reference

Every field of both resources, with the descriptions that `kubectl explain` prints. `make generate`
writes this page from the models in `operator/jobgroup/`. [The JobGroup resource](resource.md) and
[the WorkerPool resource](workerpool.md) describe what is refused and what can be changed, and
[the guide](guide.md) how to use both.
"""
_HEAD = "| field | type | default | |\n| --- | --- | --- | --- |\n"
_REFUSED = "Refused: "

_STATE = re.compile(r"^  ([A-Z_]+) = \{", re.MULTILINE)
_TRANSITION = re.compile(r'^    (\w+) = "([A-Z_]+)", -- (.+)$', re.MULTILINE)
_MARKED = re.compile(r"(<!-- generated: saga -->\n).*(<!-- end -->)", re.DOTALL)


def reference() -> str:
    """Return docs/reference.md."""
    return "\n".join([_OPENING, *(_resource(crd()) for crd in CRDS.values())])


def design(page: str, lua: str) -> str:
    """Return docs/design.md with the current saga table."""
    rows = [f"| {state} | {event} | {to} |\n" for state, _, to, event in transitions(lua)]
    table = "| from | when | to |\n| --- | --- | --- |\n" + "".join(rows)
    return _MARKED.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page)


def transitions(lua: str) -> list[tuple[str, str, str, str]]:
    """Return the rows of saga.lua: state, name of the event, next state, description."""
    _, *parts = _STATE.split(lua)
    states = zip(parts[::2], parts[1::2], strict=True)
    return [(state, *found) for state, body in states for found in _TRANSITION.findall(body)]


def _resource(crd: Mapping[str, Any]) -> str:
    names, (version,) = crd["spec"]["names"], crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    api = f"{crd['spec']['group']}/{version['name']}"
    parts = [
        f"## {names['kind']}\n",
        f"{schema['description']} `{api}`, short name `{names['shortNames'][0]}`.\n",
    ]
    for part in ("spec", "status"):
        fields = schema["properties"][part]
        parts += [f"### {names['kind']} {part}\n", f"{fields['description']}\n"]
        parts += [_HEAD + "".join(_rows(fields, ""))]
    return "\n".join(parts)


def _rows(schema: Schema, path: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        description = field.get("description", "")
        if description.startswith(_REFUSED):
            continue
        default = "**required**" if name in required else _default(field)
        yield f"| `{path}{name}` | {_type(field)} | {default} | {_escaped(description)} |\n"
        if "items" in field:
            yield from _rows(field["items"], f"{path}{name}[].")
        elif "additionalProperties" in field:
            yield from _rows(field["additionalProperties"], f"{path}{name}.*.")
        else:
            yield from _rows(field, f"{path}{name}.")


def _default(field: Schema) -> str:
    default = field.get("default")
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default in (None, {}, []) else f"`{default}`"


def _type(field: Schema) -> str:
    if "enum" in field:
        *others, last = (f"`{value}`" for value in field["enum"])
        return f"{', '.join(others)} or {last}"
    kind = field.get("type")
    if kind == "integer":
        most = "or more" if field["maximum"] == MAX_COUNT else f"to {field['maximum']:,}"
        return f"{field['minimum']:,} {most}"
    if kind == "string":
        return field.get("format") or f"string, at most {field['maxLength']:,}"
    if kind == "array":
        return f"list, at most {field['maxItems']:,}"
    if kind == "object":
        return f"map, at most {field['maxProperties']:,}" if "maxProperties" in field else "object"
    if kind == "boolean":
        return "`true` or `false`"
    return "several types" if "properties" in field else "any JSON"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


def main(folder: Path) -> None:
    """Write both pages into the folder docs/."""
    (folder / "reference.md").write_text(reference())
    page = folder / "design.md"
    page.write_text(design(page.read_text(), (FOLDER / "includes/saga.lua").read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
