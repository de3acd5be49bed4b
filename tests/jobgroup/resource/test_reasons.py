"""Why an object is as it is, in one word: the table in the docs has each word, and no other."""

import inspect
import re
from pathlib import Path

from handlers import reconcile, steps
from jobgroup.decisions import TROUBLES
from jobgroup.errors import GroupNotFoundError, InvalidGroupStateError, RefusedError
from jobgroup.snapshot import STATES
from jobgroup.status import derive_status
from tests.builders import group

RESOURCE = Path(__file__).resolve().parents[2] / "docs/resource.md"
# What is said to whoever asks for a group by its id, and never of an object.
ANSWERS = {GroupNotFoundError, InvalidGroupStateError}


def documented() -> list[str]:
    table = RESOURCE.read_text().partition("| reason |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def known() -> set[str]:
    """Return the words for each state, trouble and refusal, and those that reconciling has."""
    states = {derive_status(1, {}, 0, group(each))["conditions"][0]["reason"] for each in STATES}
    refusals = {
        each.__name__.removesuffix("Error")
        for each in RefusedError.__subclasses__()
        if each not in ANSWERS
    }
    code = inspect.getsource(reconcile) + inspect.getsource(steps)
    words = set(re.findall(r'"([A-Z][a-z]+[A-Z]\w+)"', code))
    troubles = {each.reason for each in TROUBLES.values()}
    # The one word there that is not about an object: why Redis is to give a group up.
    return states | refusals | troubles | (words - {"DeadlineExceeded"})


def test_the_table_in_the_docs_has_every_reason() -> None:
    assert sorted(documented()) == sorted(known())
