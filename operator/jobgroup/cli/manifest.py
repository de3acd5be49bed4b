"""The text of a file -> the plans of its groups, or an error with the place in the file. Pure.

A file is JSON, or YAML with one or more documents. Each document is a plain definition with the
arguments of the Python API, or a JobGroup manifest as for `kubectl apply`.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # pragma: no cover (a PyYAML built without libyaml: six times slower)
    from yaml import SafeLoader  # type: ignore[assignment]

from jobgroup.definition.lifetime import check_lifetime
from jobgroup.definition.plan import Plan, plan_group
from jobgroup.definition.spec import check_group_id, generate_group_id, parse_group
from jobgroup.errors import InvalidSpecError
from jobgroup.resource.jobgroup_spec import JobGroupSpec, Settings
from jobgroup.resource.kinds import API_VERSION, JOBGROUP

_PLAIN = {"name", "jobs", "compensation", "onEnd", "groupId", "ttlSeconds", "deadlineSeconds"}
# The fields of a manifest that mean the same as a field of a plain definition.
_SAME = {"ttlSeconds": "ttlSecondsAfterFinished", "deadlineSeconds": "activeDeadlineSeconds"}
_MANIFEST = {"apiVersion", "kind", "metadata", "spec", "status"}
# Fields that only the operator supports. deletionPolicy is ignored: without a resource, nothing is
# deleted.
_OPERATOR_FIELDS = Settings.model_fields.keys() - {"deletionPolicy", *_SAME.values()}

_NUMBERS = {"int", "float", "timestamp"}
_TAG = "tag:yaml.org,2002:"


def read_plans(
    text: str, source: str, group_id: str | None = None, new_id: bool = False
) -> list[Plan]:
    """Return a plan for each group in a file; raise InvalidSpecError if any of them is invalid.

    A given id replaces that of the file, and so does a new one.
    """
    place = source
    try:
        documents = [document for document in _load(text, source) if document is not None]
        if not documents:
            raise InvalidSpecError("the file contains no group")
        if group_id and len(documents) > 1:
            raise InvalidSpecError(f"--id names one group, but the file contains {len(documents)}")
        plans = []
        for number, document in enumerate(documents, 1):
            place = f"{source}, document {number}" if len(documents) > 1 else source
            plans.append(_plan(document, group_id, new_id))
        return plans
    except InvalidSpecError as error:
        raise InvalidSpecError(f"{place}: {error}") from None
    except RecursionError:
        raise InvalidSpecError(f"{place}: nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise InvalidSpecError(f"{place}: {error}") from None


def _plan(document: Any, group_id: str | None, new_id: bool) -> Plan:
    # parse_group and check_group_id validate the values of these fields.
    fields: dict[str, Any] = {**dict.fromkeys(_PLAIN), **_definition(document)}
    group = parse_group(
        fields["name"],
        fields["jobs"] or [],
        fields["compensation"],
        fields.get("default_name"),
        fields["onEnd"],
    )
    lifetime = check_lifetime(
        fields["ttlSeconds"],
        fields["deadlineSeconds"],
        fields.get("limits", ("ttlSeconds", "deadlineSeconds")),
    )
    chosen = None if new_id else group_id or fields["groupId"]
    if chosen:
        return plan_group(group, check_group_id(chosen), lifetime=lifetime)
    if fields.get("default_name") and not new_id:
        group_id = _manifest_id(fields["namespace"], fields["default_name"])
        return plan_group(group, group_id, lifetime=lifetime)
    return plan_group(group, generate_group_id(), is_id_generated=True, lifetime=lifetime)


def _manifest_id(namespace: str | None, name: str) -> str:
    """Return the id that a manifest has by default, so that adding it twice creates one group."""
    try:
        return check_group_id(f"{namespace or 'default'}.{name}")
    except InvalidSpecError as error:
        raise InvalidSpecError(f"{error}; use --id to choose another one") from None


def _definition(document: Any) -> dict[str, Any]:
    """Return a document as a plain definition."""
    _mapping(document, "a group")
    if not document.keys() & {"apiVersion", "kind"}:
        return _only(_PLAIN, document)
    found = (document.get("apiVersion"), document.get("kind"))
    if found != (API_VERSION, JOBGROUP.name):
        raise InvalidSpecError(
            f"apiVersion and kind must be {API_VERSION} {JOBGROUP.name}, not {found[0]} {found[1]}"
        )
    _only(_MANIFEST, document)
    spec = _mapping(document.get("spec"), "spec")
    metadata = _mapping(document.get("metadata") or {}, "metadata")
    for field in sorted(_OPERATOR_FIELDS & spec.keys()):
        if spec[field]:
            raise InvalidSpecError(
                f"spec.{field}: only the operator supports this field; remove it"
            )
    _only(JobGroupSpec.model_fields, spec, "spec.")
    name, namespace = (_text(metadata, field) for field in ("name", "namespace"))
    return {
        **spec,
        **{field: spec.get(same) for field, same in _SAME.items()},
        "limits": tuple(f"spec.{same}" for same in _SAME.values()),
        "default_name": name,
        "namespace": namespace,
        "groupId": None,
    }


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidSpecError(f"{where} should be a mapping")
    return value


def _text(metadata: dict[str, Any], field: str) -> str | None:
    value = metadata.get(field)
    if value is not None and not isinstance(value, str):
        raise InvalidSpecError(f"metadata.{field} should be a string")
    return value


def _only(known: Iterable[str], mapping: dict[str, Any], where: str = "") -> dict[str, Any]:
    for field in mapping:
        if field not in known:
            raise InvalidSpecError(f"{where}{field}: unknown field")
    return mapping


def _load(text: str, source: str) -> list[Any]:
    """Return the documents of a text. JSON is tried first, because YAML rejects its tabs."""
    try:
        return [json.loads(text, object_pairs_hook=_json_object)]
    except json.JSONDecodeError as error:
        if source.endswith(".json"):
            place = f"line {error.lineno}, column {error.colno}"
            raise InvalidSpecError(f"{place}: {error.msg}") from None
    try:
        return list(yaml.load_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        raise InvalidSpecError(_yaml_message(error, text)) from None
    except yaml.YAMLError as error:
        raise InvalidSpecError(str(error).partition("\n")[0]) from None
    except (AttributeError, KeyError) as error:
        # PyYAML raises these for `!!bool maybe` and `!!timestamp soon`.
        raise InvalidSpecError(f"a value does not match its tag: {error}") from None


def _yaml_message(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return str(error.problem)
    line = "".join(text.split("\n")[mark.line : mark.line + 1])
    tab = line[mark.column : mark.column + 1] == "\t"
    problem = "YAML is indented with spaces, not with tabs" if tab else error.problem
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidSpecError(f'the key "{twice}" appears twice in one mapping')
    return made


class _Loader(SafeLoader):
    """YAML as kubectl reads it: dates, 12:30 and all keys are strings, 1e3 is a number."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own way)
        first: [pair for pair in pairs if pair[0].removeprefix(_TAG) not in _NUMBERS]
        for first, pairs in SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_document(self, node: Any) -> Any:
        _normalize_keys(node, set())
        return super().construct_document(node)


_Loader.add_implicit_resolver(
    f"{_TAG}int",
    re.compile(r"[-+]?(0|[1-9][0-9_]*|0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"""[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?$
        |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$
        |[-+]?\.(inf|Inf|INF)$
        |\.(nan|NaN|NAN)$""",
        re.VERBOSE,
    ),
    list("-+0123456789."),
)


def _normalize_keys(node: yaml.Node, seen: set[int]) -> None:
    """Make every key a string, as in JSON, and raise if a mapping has the same key twice.

    This happens before the document is built: after that, 1 and true would be the same key, and
    merging (<<) would have repeated keys.
    """
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _normalize_keys(item, seen)
    elif isinstance(node, yaml.MappingNode):
        names = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    problem = f'the key "{key.value}" appears twice in one mapping'
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                names.add(key.value)
                if key.tag != f"{_TAG}merge":
                    key.tag = f"{_TAG}str"
            _normalize_keys(value, seen)
