"""Lua scripts as callables. The header comment of a script is its signature, parsed at load.

A header lists its slots as `KEYS[1] name  meaning` and `ARGV[1] name  meaning`, numbered without a
gap. `-- @include name` inserts lua/includes/name.lua before the script, once.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from jobgroup.model import names
from jobgroup.store.observer import SILENT, Observer

# Not importlib.resources: lua/ holds no Python, and namespace packages confuse editable installs.
FOLDER = Path(__file__).resolve().parents[1] / "lua"

# Redis may lose a script again before it is called.
MAX_LOADS = 3

_HEADER = re.compile(r"\A--\[\[(.*?)\]\]", re.DOTALL)
_SLOT = re.compile(r"^\s*(KEYS|ARGV)\[(\d+)\]\s+(\w+)", re.MULTILINE)
_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)


# A script and its slots.
Call = tuple["Script", Mapping[str, Any]]


class ScriptError(Exception):
    """A Lua file whose header or includes are wrong."""


@dataclass(frozen=True)
class Script:
    """One script: call it with a client and its slots by name."""

    name: str
    source: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    observer: Observer = SILENT

    @cached_property
    def sha(self) -> str:
        """Return the SHA-1 by which Redis identifies the script."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def command(self, **slots: Any) -> tuple[Any, ...]:
        """Return the command for one call; raise TypeError if a slot is missing or unknown.

        The last key never exists. A Cluster that is moving the slot refuses such a call; without
        that key, it would run the script on the part of the data that it still has.
        """
        expected = self.keys + self.args
        if slots.keys() != set(expected):
            wrong = sorted(slots.keys() ^ set(expected))
            raise TypeError(f"{self.name} takes {sorted(expected)}; wrong or missing: {wrong}")
        keys = [slots[slot] for slot in self.keys]
        keys += [names.guard_key(key) for key in keys[:1]]
        return ("EVALSHA", self.sha, len(keys), *keys, *(slots[slot] for slot in self.args))

    async def __call__(self, redis: Redis, **slots: Any) -> Any:
        """Run the script once."""
        (reply,) = await run_all(redis, [(self, slots)])
        if isinstance(reply, Exception):
            raise reply
        return reply


async def run_all(redis: Redis, calls: Sequence[Call], in_order: bool = False) -> list[Any]:
    """Run scripts, each with its slots, in one pipeline; return a reply or an error for each.

    Redis loses scripts when it restarts, or when somebody flushes them: unknown scripts are loaded
    and their calls sent again. With `in_order`, all calls after the first unknown one are sent
    again, too, so that no call sees older data than the calls before it.
    """
    replies = await _send(redis, calls)
    for _ in range(MAX_LOADS):
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if not unknown:
            break
        for source in {calls[n][0].source for n in unknown}:
            await redis.script_load(source)
        if in_order:
            unknown = list(range(unknown[0], len(calls)))
        again = await _send(redis, [calls[n] for n in unknown])
        for n, reply in zip(unknown, again, strict=True):
            replies[n] = reply
    return replies


async def _send(redis: Redis, calls: Sequence[Call]) -> list[Any]:
    pipeline = redis.pipeline(transaction=False)
    for script, slots in calls:
        pipeline.execute_command(*script.command(**slots))
    start = time.perf_counter()
    replies: list[Any] = await pipeline.execute(raise_on_error=False)
    took = time.perf_counter() - start
    numbers = Counter(script.name for script, _ in calls)
    for name, observer in {script.name: script.observer for script, _ in calls}.items():
        observer.script_answered(name, numbers[name], took)
    return replies


def load(name: str, folder: Path = FOLDER, observer: Observer = SILENT) -> Script:
    """Load a script with its includes and its signature."""
    text = (folder / f"{name}.lua").read_text()
    header = _HEADER.match(text)
    if header is None:
        raise ScriptError(f"{name}.lua does not begin with a --[[ header ]]")
    slots = _SLOT.findall(header[1])
    keys = _in_order(name, "KEYS", slots)
    args = _in_order(name, "ARGV", slots)
    if len({*keys, *args}) < len(keys) + len(args):
        raise ScriptError(f"{name}.lua uses a slot's name twice")
    return Script(name, "\n".join([*_includes(text, folder, []), text]), keys, args, observer)


def _in_order(name: str, kind: str, slots: list[tuple[str, str, str]]) -> tuple[str, ...]:
    numbered = [(int(number), slot) for found, number, slot in slots if found == kind]
    if [number for number, _ in numbered] != list(range(1, len(numbered) + 1)):
        raise ScriptError(f"{name}.lua does not number its {kind} 1, 2, 3 ...")
    return tuple(slot for _, slot in numbered)


def _includes(text: str, folder: Path, seen: list[str]) -> list[str]:
    """Return the texts of the includes of a script, depth first, each once."""
    parts = []
    for name in _INCLUDE.findall(text):
        if name in seen:
            continue
        seen.append(name)
        path = folder / "includes" / f"{name}.lua"
        if not path.exists():
            raise ScriptError(f"-- @include {name}: there is no {path.name} in lua/includes")
        included = path.read_text()
        parts += [*_includes(included, folder, seen), included]
    return parts
