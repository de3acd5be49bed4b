"""Who may do what in a Redis of the tests: with the suffix -acl, what a page of the docs shows.

The default user is the administrator: tests look at keys and change them as this user. What the
project itself does, it does as the users of the page, and so do stock clients.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.servers.redis import RedisServer
from testbed.servers.redis_cluster import ClusterServers
from testbed.servers.redis_sentinel import SentinelServers
from testbed.support.pages import Page

PAGE = "docs/redis-in-production.md"
# The users of the project and of stock clients, and those of both at the sentinels.
OPERATOR, WORKER = "jobgroup", "bullmq"
SENTINEL, WORKER_SENTINEL = "jobgroup-sentinel", "bullmq-sentinel"
PREFIX = "bull"
# Clients introduce themselves, and ask for the notifications of managed services. They ignore a
# refusal. Redis 6.2 does not know these subcommands, and refuses them because of the rights.
IGNORED = (": command client (toplevel)", f"{WORKER_SENTINEL}: command client|setinfo (toplevel)")


def rules(user: str, prefix: str = PREFIX) -> list[str]:
    """Return the rights of a user as the page lists them, for the keys of a prefix."""
    (line,) = [
        words
        for words in (shlex.split(command.text) for command in Page(PAGE).commands)
        if "SETUSER" in words and words[words.index("SETUSER") + 1] == user
    ]
    escaped = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)
    given = line[line.index(user) + 1 :]
    return [f"~{escaped}:*" if rule == f"~{PREFIX}:*" else rule for rule in given]


def granted(user: str) -> set[str]:
    """Return the commands that a user may run."""
    return {rule[1:] for rule in rules(user) if rule.startswith("+")}


def password(user: str) -> str:
    (found,) = [rule[1:] for rule in rules(user) if rule.startswith(">")]
    return found


def login(url: str, user: str) -> str:
    """Return a URL with the login of a user, for a server on which everybody is welcome."""
    return url.replace("://", f"://{user}:{password(user)}@", 1)


@dataclass(frozen=True)
class Access:
    """URLs of one Redis. They differ only if it has users."""

    # Of the operator, the driver, the Python API and the command line.
    url: str
    worker_url: str
    admin_url: str
    servers: Sequence[RedisServer] = field(default=(), repr=False)
    sentinels: Sequence[RedisServer] = field(default=(), repr=False)

    @classmethod
    def open(cls, url: str) -> "Access":
        """Return the access to a Redis in which everybody may do everything."""
        return cls(url, url, url)

    def grant(self, prefix: str) -> None:
        """Grant the users the keys of a prefix, and no others."""
        for server in filter(lambda each: each.is_running, self.servers):
            for user in (OPERATOR, WORKER):
                set_user(server, user, prefix)

    def denials(self) -> list[str]:
        """Return what the servers refused the users of the page, and forget it."""
        found: list[str] = []
        for server in filter(lambda each: each.is_running, (*self.servers, *self.sentinels)):
            entries: list[dict[str, Any]] = server.call("ACL", "LOG")
            found += [
                f"{each['username']}: {each['reason']} {each['object']} ({each['context']})"
                for each in entries
                if each["username"] in (OPERATOR, WORKER, SENTINEL, WORKER_SENTINEL)
            ]
            server.call("ACL", "LOG", "RESET")
        return found


def set_user(server: RedisServer, user: str, prefix: str = PREFIX) -> None:
    """Create a user of the page on a server, or give it the rights of the page again."""
    server.call("ACL", "SETUSER", user, *rules(user, prefix))


def restricted(servers: RedisServer | SentinelServers | ClusterServers) -> Access:
    """Create the users of the page, and return how to use them."""
    url, worker_url = login(servers.url, OPERATOR), login(servers.url, WORKER)
    nodes = [servers] if isinstance(servers, RedisServer) else servers.nodes
    sentinels = servers.sentinels if isinstance(servers, SentinelServers) else []
    if sentinels:
        url, worker_url = _at_sentinels(url, SENTINEL), _at_sentinels(worker_url, WORKER_SENTINEL)
    for sentinel in sentinels:
        set_user(sentinel, SENTINEL)
        set_user(sentinel, WORKER_SENTINEL)
    access = Access(url, worker_url, servers.url, nodes, sentinels)
    access.grant(PREFIX)
    return access


def _at_sentinels(url: str, user: str) -> str:
    """Return a URL with the login of a user at the sentinels."""
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}sentinel_username={user}&sentinel_password={password(user)}"
