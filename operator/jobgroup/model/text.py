"""Times and foreign texts as people and the Kubernetes API read them. Pure."""

from datetime import UTC, datetime


def time_of(milliseconds: int) -> str:
    """Format a time as RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Replace every character that would end the line or control a terminal with a space."""
    return "".join(char if char.isprintable() else " " for char in text)
