"""RBAC grants compared with the calls of an audit log: unused grants, and calls without a grant.

Grants come from RBAC objects, as the chart renders them or a cluster has them. Calls come from the
API server's audit log; `POLICY` logs all that is needed. Pure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]

ANY = "*"
REVIEWS = "selfsubjectaccessreviews"
# The policy that an API server needs; --audit-policy-file names a file with it.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, order=True)
class Call:
    """A request to the API server; `resource` may name a subresource, as in jobs/status."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return _spell(self.verb, self.group, self.resource, self.namespace, self.name)


@dataclass(frozen=True, order=True)
class Grant:
    """One verb on one resource; an empty namespace or name means any."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return _spell(self.verb, self.group, self.resource, self.namespace, self.name)

    def allows(self, call: Call) -> bool:
        """Return whether the grant allows a call."""
        pairs = [(self.verb, call.verb), (self.group, call.group), (self.resource, call.resource)]
        return (
            all(given in (ANY, asked) for given, asked in pairs)
            and self.namespace in ("", call.namespace)
            and self.name in ("", call.name)
        )


def grants(objects: Iterable[Manifest], namespace: str, account: str) -> set[Grant]:
    """Return the grants that roles and bindings give a service account."""
    objects = list(objects)
    roles = {_key(each): each for each in objects if each["kind"] in ("Role", "ClusterRole")}
    subject = ("ServiceAccount", namespace, account)
    found: set[Grant] = set()
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        subjects = binding.get("subjects") or ()
        if subject not in {(s["kind"], s.get("namespace", ""), s["name"]) for s in subjects}:
            continue
        where = binding["metadata"].get("namespace", "")
        kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        role = roles[kind, where if kind == "Role" else "", name]
        for rule in role.get("rules") or ():
            found.update(_spelt_out(rule, where))
    return found


def _key(role: Manifest) -> tuple[str, str, str]:
    meta = role["metadata"]
    return role["kind"], meta.get("namespace", ""), meta["name"]


def _spelt_out(rule: Manifest, namespace: str) -> Iterator[Grant]:
    for group in rule.get("apiGroups", ()):
        for resource in rule.get("resources", ()):
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield Grant(verb, group, resource, namespace, name)


def calls(log: Iterable[str], namespace: str, account: str) -> set[Call]:
    """Return the calls of a service account in the lines of an audit log."""
    user = f"system:serviceaccount:{namespace}:{account}"
    found: set[Call] = set()
    for line in log:
        event = json.loads(line)
        target = event.get("objectRef")
        # A request without an object is discovery, which every account may do, as it may review its
        # own rights.
        if event["user"]["username"] != user or not target or target["resource"] == REVIEWS:
            continue
        part = target.get("subresource")
        resource = f"{target['resource']}/{part}" if part else target["resource"]
        place = (target.get("namespace", ""), target.get("name", ""))
        found.add(Call(event["verb"], target.get("apiGroup", ""), resource, *place))
    return found


def unused(granted: Iterable[Grant], called: Iterable[Call]) -> list[str]:
    """Return the grants that no call needed.

    A call that a grant for one name allows needs no other grant.
    """
    granted, used = set(granted), set[Grant]()
    for call in set(called):
        allowing = {grant for grant in granted if grant.allows(call)}
        used |= {grant for grant in allowing if grant.name} or allowing
    return [str(grant) for grant in sorted(granted - used)]


def missing(granted: Iterable[Grant], called: Iterable[Call]) -> list[str]:
    """Return the calls that no grant allows."""
    granted = set(granted)
    return [str(call) for call in sorted(called) if not any(g.allows(call) for g in granted)]


def _spell(verb: str, group: str, resource: str, namespace: str, name: str) -> str:
    kind = f"{resource}.{group}" if group else resource
    return f"{verb} {kind}{' ' if name else ''}{name}{f' in {namespace}' if namespace else ''}"
