"""Which errors of Redis are transient: waiting may help.

An error begins with its code. Up to 6.2, Redis writes a text of its own before the error of a
command that a script called. A word after that may be part of an id, of a key or of data.
"""

import asyncio
import re

from redis import exceptions
from redis.exceptions import RedisError, ResponseError

UNAVAILABLE = (
    exceptions.BusyLoadingError,
    exceptions.ClusterDownError,  # MASTERDOWN too
    exceptions.ConnectionError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.TimeoutError,
    exceptions.TryAgainError,
)
_IN_SCRIPT = (
    r"(?:Error running script \(call to f_[0-9a-f]{40}\): @user_script:[0-9]+: )?"
    r"(?:@user_script: [0-9]+: -?)?"
)
_CODE = re.compile(
    rf"{_IN_SCRIPT}"
    r"(?:([A-Z]+)(?= |$)|(?:ERR )?(?:Lua )?[Ss]cript (?:attempted to access a|tried accessing) "
    r"(non local|undeclared) key)"
)
# What a demoted primary answers to a command that writes, and to one that blocks.
DEMOTED = frozenset({"READONLY", "UNBLOCKED"})
# What a server answers that has not, or soon has no longer, the data of the prefix. A server that
# is the right one can answer some of these too: then another connection to it helps as little.
ELSEWHERE = DEMOTED | {
    *("ASK", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "NOREPLICAS", "TRYAGAIN"),
    *("non local", "undeclared"),
}
_TRANSIENT = DEMOTED | {
    *("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "NOSCRIPT", "OOM"),
    "TRYAGAIN",
}
# How Redis refuses a command of a script: up to 7.0, and in later versions.
_DENIED = re.compile(
    rf"{_IN_SCRIPT}(?:The user executing the script can't |ACL failure in script: )"
)


class RejectedCredentialsError(exceptions.ConnectionError):
    """Redis rejected a user or password from a file, which may be about to change."""


class MissingRightError(exceptions.NoPermissionError):
    """The user may not run a command, or not on a key; the message says where to look."""


def is_transient(error: BaseException) -> bool:
    """Return whether waiting may help: Redis is unavailable, starting, full, busy or demoted.

    Scripts are loaded when they are unknown, so NOSCRIPT is left only if they are flushed all the
    time.
    """
    if isinstance(error, exceptions.AuthenticationError):
        return False
    if isinstance(error, UNAVAILABLE):
        return True
    return isinstance(error, ResponseError) and code(error) in _TRANSIENT


def lacks_right(error: BaseException) -> bool:
    """Return whether the user of Redis may not run a command, or not on a key."""
    if isinstance(error, exceptions.NoPermissionError):
        return True
    return isinstance(error, ResponseError) and _DENIED.match(str(error)) is not None


def missing_right(error: ResponseError) -> exceptions.NoPermissionError:
    """Return the error to raise in place of the reply about a missing right."""
    if isinstance(error, MissingRightError):  # it names what answered
        return error
    return MissingRightError(
        f"the Redis user lacks a right: {error} (ACL LOG on that server names the command or key;"
        " docs/redis-in-production.md lists all rights)"
    )


def code(error: RedisError) -> str:
    """Return the code that Redis wrote, or nothing if there is none."""
    if error.status_code not in (None, "ERR"):
        return str(error.status_code)
    found = _CODE.match(str(error))
    return next(filter(None, found.groups()), "") if found else ""


def leave_if_cancelled() -> None:
    """Raise CancelledError if redis-py suppressed the cancellation of this task."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError
