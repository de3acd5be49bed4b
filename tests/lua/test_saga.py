"""lua/includes/saga.lua, for every state and all combinations of facts."""

import itertools
import json

import pytest
from redis.asyncio import Redis

from jobgroup.model.snapshot import ENDED, STATES
from jobgroup.store.scripts import FOLDER

SAGA = (FOLDER / "includes/saga.lua").read_text()
SCORES = (FOLDER / "includes/state_scores.lua").read_text()
DECIDE = f"""{SAGA}
local answers = {{}}
for n, case in ipairs(cjson.decode(ARGV[1])) do answers[n] = saga.next_state(case[1], case[2]) end
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
        "failing": failing,
        "undos": undos,
        "undos_to_make": to_make,
        "undos_open": undos_open,
        "undos_failed": undos_failed,
        "retried": retried,
    }
    for completed, failed, still_open in itertools.product(range(TOTAL + 1), repeat=3)
    if completed + failed + still_open <= TOTAL  # the others were cancelled
    for requested, failing in itertools.product((False, True), repeat=2)
    for undos, to_make in itertools.product(range(TOTAL + 1), repeat=2)
    if undos + to_make <= TOTAL
    for undos_open, undos_failed in itertools.product(range(TOTAL + 1), repeat=2)
    if undos_open + undos_failed <= undos
    for retried in (False, True)
]


def expected(state: str, facts: Facts) -> str:
    """Return the next state according to the table."""
    everything_completed = facts["completed"] == facts["total"] and not facts["failing"]
    given_up = facts["failed"] > 0 or facts["requested"]
    effects = facts["completed"] > 0 or facts["open"] > 0 or facts["undos"] > 0
    no_undo_is_due = facts["undos_to_make"] == facts["undos_open"] == 0
    all_undone = facts["open"] == 0 and no_undo_is_due
    rows = [
        ("ACTIVE", everything_completed, "COMPLETED"),
        ("ACTIVE", given_up and effects, "COMPENSATING"),
        ("ACTIVE", given_up and not effects, "FAILED"),
        ("COMPENSATING", all_undone and facts["undos_failed"] > 0, "FAILED_COMPENSATION"),
        ("COMPENSATING", all_undone, "FAILED"),
        ("FAILED", no_undo_is_due and facts["undos_failed"] > 0, "FAILED_COMPENSATION"),
        ("FAILED_COMPENSATION", facts["retried"], "COMPENSATING"),
        ("FAILED_COMPENSATION", no_undo_is_due and facts["undos_failed"] == 0, "FAILED"),
    ]
    return next((to for start, holds, to in rows if start == state and holds), state)


async def decide(redis: Redis, cases: list[tuple[str, Facts]]) -> list[str]:
    answers: list[str] = await redis.eval(DECIDE, 0, json.dumps(cases))
    return answers


async def test_lua_and_python_know_the_same_states(redis: Redis) -> None:
    source = f"""{SAGA}
    local ends = {{}}
    for state in pairs(SAGA) do ends[state] = saga.has_ended(state) end
    return cjson.encode(ends)"""
    ends = json.loads(await redis.eval(source, 0))
    assert ends == {state: state in ENDED for state in STATES}


async def test_every_state_has_scores_of_its_own(redis: Redis) -> None:
    scores, above = json.loads(
        await redis.eval(f"{SCORES} return cjson.encode({{ state_scores() }})", 0)
    )
    assert scores.keys() == set(STATES)
    lowest = sorted(scores.values())
    far_future = 4_000_000_000_000  # milliseconds: the year 2096
    assert far_future < above
    assert all(above + far_future < b - a for a, b in itertools.pairwise(lowest))
    assert max(scores["ACTIVE"], scores["COMPENSATING"]) < scores["FAILED"]
    assert max(scores["FAILED"], scores["FAILED_COMPENSATION"]) < scores["COMPLETED"]


@pytest.mark.parametrize("state", STATES)
async def test_every_transition_is_in_the_table(redis: Redis, state: str) -> None:
    cases = [(state, facts) for facts in FACTS]
    answers = await decide(redis, cases)
    wrong = [
        (facts, to)
        for (_, facts), to in zip(cases, answers, strict=True)
        if to != expected(state, facts)
    ]
    assert wrong == []


async def test_only_a_failed_compensation_leads_back(redis: Redis) -> None:
    rank = {"ACTIVE": 0, "COMPENSATING": 1, **dict.fromkeys(ENDED, 2), "FAILED_COMPENSATION": 3}
    cases = [(state, facts) for state in rank for facts in FACTS]
    for (state, facts), to in zip(cases, await decide(redis, cases), strict=True):
        back = state == "FAILED_COMPENSATION" and (facts["retried"] or not facts["undos_failed"])
        assert to == state or back or rank[to] > rank[state]
