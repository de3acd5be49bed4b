"""What a caller says about a request: who asks for it, and why. Pure."""

from jobgroup.errors import InvalidSpecError

MAX_BY = 253
MAX_REASON = 1024


def check_by(by: str) -> str:
    """Return who asks, which may be empty; raise InvalidSpecError if it cannot be recorded."""
    return _check_line("by", by, MAX_BY)


def check_reason(reason: str) -> str:
    """Return why something is asked for; raise InvalidSpecError if it cannot be recorded."""
    if not _check_line("reason", reason, MAX_REASON).strip():
        raise InvalidSpecError("reason: say why, in at least one word")
    return reason


def _check_line(field: str, text: str, limit: int) -> str:
    """Return a text if it is one line of at most `limit` characters."""
    if not isinstance(text, str):
        raise InvalidSpecError(f"{field}: Input should be a string")
    if len(text) > limit:
        raise InvalidSpecError(f"{field}: {len(text)} characters exceed the limit of {limit}")
    if not text.isprintable():
        raise InvalidSpecError(f"{field}: Input should be one line of printable characters")
    return text
