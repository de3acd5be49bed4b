"""`make generate`: what the docs say of both resources and of the saga's table. Pure but for main.

The reference is made of the CRDs, so it says what `kubectl explain` says; the table of the saga is
taken from lua/includes/saga.lua with the comments that explain it there.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobgroup.crd import jobgroup_crd
from jobgroup.options import MAX_COUNT
from jobgroup.pool_crd import workerpool_crd
from jobgroup.scripts import FOLDER
from jobgroup.structural import Schema

_OPENING = """\
# Reference

Every field of both resources, as `kubectl explain` tells them too. `make generate` makes this page
of the models in `operator/jobgroup/`. [The resource](resource.md) and [the pool](workerpool.md) say
what is refused and what can be changed, [the guide](guide.md) how to use it all.
"""
_HEAD = "| field | kind | default | |\n| --- | --- | --- | --- |\n"
_REFUSED = "Refused: "

_STATE = re.compile(r"^  ([A-Z_]+) = \{", re.MULTILINE)
_TRANSITION = re.compile(r'^    (\w+) = "([A-Z_]+)", -- (.+)$', re.MULTILINE)
_MARKED = re.compile(r"(<!-- generated: saga -->\n).*(<!-- end -->)", re.DOTALL)


def reference() -> str:
    """Return the page about both resources."""
    return "\n".join([_OPENING, _resource(jobgroup_crd()), _resource(workerpool_crd())])


def design(page: str, lua: str) -> str:
    """Return the page about the design with the saga's table as it is."""
    rows = [f"| {state} | {why} | {to} |\n" for state, _, to, why in transitions(lua)]
    table = "| from | when | to |\n| --- | --- | --- |\n" + "".join(rows)
    return _MARKED.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page)


def transitions(lua: str) -> list[tuple[str, str, str, str]]:
    """Return the table in saga.lua: state, event, next state, and what the event is."""
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
        said = field.get("description", "")
        if said.startswith(_REFUSED):
            continue
        default = "**required**" if name in required else _default(field)
        yield f"| `{path}{name}` | {_kind(field)} | {default} | {_escaped(said)} |\n"
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


def _kind(field: Schema) -> str:
    if "enum" in field:
        *others, last = (f"`{value}`" for value in field["enum"])
        return f"{', '.join(others)} or {last}"
    kind = field.get("type")
    if kind == "integer":
        most = "or more" if field["maximum"] == MAX_COUNT else f"to {field['maximum']:,}"
        return f"{field['minimum']:,} {most}"
    if kind == "string":
        return field.get("format") or f"text, at most {field['maxLength']:,}"
    if kind == "array":
        return f"list, at most {field['maxItems']:,}"
    if kind == "object":
        return f"map, at most {field['maxProperties']:,}" if "maxProperties" in field else "object"
    if kind == "boolean":
        return "`true` or `false`"
    return "several kinds" if "properties" in field else "any JSON"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


def main(folder: Path) -> None:
    """Write both pages into the folder of the docs."""
    (folder / "reference.md").write_text(reference())
    page = folder / "design.md"
    page.write_text(design(page.read_text(), (FOLDER / "includes/saga.lua").read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
