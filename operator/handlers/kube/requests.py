"""The method and URL of a request -> its verb and resource, as RBAC names them. Pure."""

from urllib.parse import parse_qs

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def parse_request(method: str, url: str) -> tuple[str, str]:
    """Return the verb and the resource, which may name a subresource, as in jobgroups/status.

    The resource is empty if the request is about none, such as discovery.
    """
    path, _, query = url.partition("?")
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    # In namespaces/shop/events, the resource is events.
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    verb = _VERBS.get(method) or _verb_of_read(is_named=len(rest) > 1, query=query)
    return verb, "/".join([*rest[:1], *rest[2:]])


def _verb_of_read(is_named: bool, query: str) -> str:
    if parse_qs(query).get("watch", ["false"])[0] in ("true", "1"):
        return "watch"
    return "get" if is_named else "list"
