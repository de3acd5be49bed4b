"""Label selectors in their text form, evaluated without the API server. Pure.

Not every text that a Lease has as its selector is one, and a request with another would be refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

_TOKEN = re.compile(r"==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+")
_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_VALUE}"
# A part of a selector, as tokens that are separated by blanks.
_REQUIREMENT = re.compile(
    rf"""
    (?: !\ (?P<absent>{_KEY})
      | (?P<key>{_KEY})
        (?: \ (?P<compares>==|=|!=) (?P<value>\ {_VALUE})?
          | \ (?P<is_in>in|notin)\ \( (?P<values>(?:\ {_VALUE}|\ ,)+) \ \)
        )?
    )
    (?: \ ,\  | \Z )
    """,
    re.VERBOSE,
)
_SAME = {"=", "==", "in"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A label and its values; no values means any."""

    key: str
    values: frozenset[str] | None = None
    is_negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of an object meet the requirement."""
        has = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return has != self.is_negated


@lru_cache(maxsize=64)
def parse_selector(selector: str) -> Sequence[Requirement] | None:
    """Return what a selector requires; None if it is invalid or unusual: `a>1`, `a in ()`."""
    text, at = " ".join(_TOKEN.findall(selector)), 0
    found = []
    while at < len(text):
        part = _REQUIREMENT.match(text, at)
        requirement = _requirement(part) if part else None
        if part is None or requirement is None:
            return None
        found.append(requirement)
        at = part.end()
    return found


def _requirement(part: re.Match[str]) -> Requirement | None:
    if absent := part["absent"]:
        return Requirement(absent, is_negated=True)
    if operator := part["compares"]:
        values = [part["value"] or ""]
    elif operator := part["is_in"]:
        values = part["values"].split(",")
    else:
        return Requirement(part["key"])
    values = [each.strip() for each in values]
    if any(" " in each for each in values):
        return None  # two values without a comma
    return Requirement(part["key"], frozenset(values), operator not in _SAME)
