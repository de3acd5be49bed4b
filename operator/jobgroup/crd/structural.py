"""pydantic models -> structural schemas for CRDs. Pure.

In a structural schema a field has one type, no references and no null beside the type. jobgroup.py
and workerpool.py add rules, list types and defaults to the result.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from jobgroup.definition.options import MAX_COUNT

Schema = dict[str, Any]

OPAQUE = "x-kubernetes-preserve-unknown-fields"

_KEPT = ("format", "enum", "minLength", "maxLength", "pattern", "minimum", "maximum")


def structural(model: type[BaseModel]) -> Schema:
    """Return a model's schema with all references resolved."""
    whole = model.model_json_schema()
    return _convert(whole, whole.get("$defs", {}))


def _convert(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    node = _resolve(node, definitions)
    kinds = [_resolve(kind, definitions) for kind in node.get("anyOf", ())]
    kinds = [kind for kind in kinds if kind.get("type") != "null"]
    # The description of the field takes precedence over that of its type.
    if len(kinds) == 1:
        return _convert({**kinds[0], **_without(node, "anyOf")}, definitions)
    description = {"description": node["description"]} if "description" in node else {}
    if kinds:
        return description | _union([_convert(kind, definitions) for kind in kinds])
    if "type" not in node:
        return description | {OPAQUE: True, "nullable": True}
    made = description | {"type": node["type"]} | _default(node)
    return made | _PARTS.get(node["type"], _scalar)(node, definitions)


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in node:
        return node
    return {**definitions[node["$ref"].rpartition("/")[2]], **_without(node, "$ref")}


def _without(node: Mapping[str, Any], key: str) -> Schema:
    return {name: value for name, value in node.items() if name != key}


def _default(node: Mapping[str, Any]) -> Schema:
    """Return a scalar default; the default of a model would be stored with every object."""
    default = node.get("default")
    return {"default": default} if isinstance(default, (bool, int, str)) else {}


def _union(kinds: list[Schema]) -> Schema:
    """Merge types into a field without a type, because a structural schema has no unions.

    The bounds apply to numbers and the properties to mappings, so the API server validates those.
    The operator rejects values of any other type.
    """
    made: Schema = {OPAQUE: True}
    for kind in kinds:
        made |= {key: value for key, value in kind.items() if key in _UNION_KEPT}
    return made


_UNION_KEPT = ("minimum", "maximum", "properties", "required")


def _object(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    values = node.get("additionalProperties")
    if isinstance(values, Mapping):
        bound = {"maxProperties": node["maxProperties"]}
        return {**bound, "additionalProperties": _convert(values, definitions)}
    fields = {
        name: _convert(field, definitions) for name, field in node.get("properties", {}).items()
    }
    required = {"required": node["required"]} if node.get("required") else {}
    return {"properties": fields, **required}


def _array(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    return {"maxItems": node["maxItems"], "items": _convert(node["items"], definitions)}


def _integer(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    made = {"format": "int64", "maximum": MAX_COUNT} | _scalar(node, definitions)
    if "exclusiveMinimum" in node:
        made["minimum"] = node["exclusiveMinimum"] + 1
    return made


def _scalar(node: Mapping[str, Any], _: Mapping[str, Any]) -> Schema:
    return {key: node[key] for key in _KEPT if key in node}


_PARTS = {"object": _object, "array": _array, "integer": _integer}
