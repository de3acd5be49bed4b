"""lua/includes/saga.lua against the saga's table, for every state and every fact that matters."""

import itertools
import json

import pytest
from redis.asyncio import Redis

from jobgroup.scripts import FOLDER
from jobgroup.snapshot import ENDED

SAGA = (FOLDER / "includes/saga.lua").read_text()
DECIDE = f"""{SAGA}
local answers = {{}}
for n, case in ipairs(cjson.decode(ARGV[1])) do answers[n] = saga(case[1], case[2]) end
return answers
"""
TOTAL = 2
Facts = dict[str, int | bool]

FACTS = [
    {
        "total": TOTAL,
        "completed": completed,
        "failed": failed,
        "open": still_open,
        "requested": requested,
        "undos": undos,
        "undos_to_make": to_make,
        "undos_open": undos_open,
        "undos_failed": undos_failed,
    }
    for completed, failed, still_open in itertools.product(range(TOTAL + 1), repeat=3)
    if completed + failed + still_open <= TOTAL  # the others were cancelled
    for requested in (False, True)
    for undos, to_make in itertools.product(range(TOTAL + 1), repeat=2)
    if undos + to_make <= TOTAL
    for undos_open, undos_failed in itertools.product(range(TOTAL + 1), repeat=2)
    if undos_open + undos_failed <= undos
]


def expected(state: str, facts: Facts) -> str:
    """Say where a group goes, row by row of the table."""
    everything_completed = facts["completed"] == facts["total"]
    given_up = facts["failed"] > 0 or facts["requested"]
    effects = facts["completed"] > 0 or facts["open"] > 0 or facts["undos"] > 0
    all_undone = facts["open"] == facts["undos_to_make"] == facts["undos_open"] == 0
    rows = [
        ("ACTIVE", everything_completed, "COMPLETED"),
        ("ACTIVE", given_up and effects, "COMPENSATING"),
        ("ACTIVE", given_up and not effects, "FAILED"),
        ("COMPENSATING", all_undone and facts["undos_failed"] > 0, "FAILED_COMPENSATION"),
        ("COMPENSATING", all_undone, "FAILED"),
    ]
    return next((to for start, holds, to in rows if start == state and holds), state)


async def decide(redis: Redis, cases: list[tuple[str, Facts]]) -> list[str]:
    answers: list[str] = await redis.eval(DECIDE, 0, json.dumps(cases))
    return answers


@pytest.mark.parametrize("state", ["ACTIVE", "COMPENSATING", *sorted(ENDED)])
async def test_every_transition_is_one_of_the_table(redis: Redis, state: str) -> None:
    cases = [(state, facts) for facts in FACTS]
    answers = await decide(redis, cases)
    wrong = [
        (facts, to)
        for (_, facts), to in zip(cases, answers, strict=True)
        if to != expected(state, facts)
    ]
    assert wrong == []


async def test_no_path_leads_back_and_every_path_ends(redis: Redis) -> None:
    rank = {"ACTIVE": 0, "COMPENSATING": 1, **dict.fromkeys(ENDED, 2)}
    cases = [(state, facts) for state in rank for facts in FACTS]
    for (state, _), to in zip(cases, await decide(redis, cases), strict=True):
        assert to == state or rank[to] > rank[state]
