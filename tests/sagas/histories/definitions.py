"""Definitions of groups: random ones, for Redis and for the model."""

from typing import Any

from hypothesis import strategies as st

from jobgroup.definition.plan import Plan, plan_group
from jobgroup.definition.spec import parse_group
from tests.sagas.histories.group_model import END_JOBS, Group
from tests.sagas.histories.job_model import ENDS, UNDOS, Member

Definition = list[dict[str, Any]]

A_LONG_WHILE = 3_600_000

definitions = st.lists(
    st.fixed_dictionaries(
        {
            "queue": st.sampled_from(["a", "b"]),
            "opts": st.sampled_from(
                [
                    {},
                    {"attempts": 2},
                    {"attempts": 2, "backoff": A_LONG_WHILE},
                    {"priority": 1},
                    {"delay": A_LONG_WHILE},
                    {"removeOnComplete": True},
                    {"removeOnFail": 0},
                ]
            ),
            "when": st.sampled_from(["Completed", "Started", None]),
            "undo_queue": st.sampled_from(["", UNDOS]),
            # That of the first member counts.
            "on_end": st.booleans(),
        }
    ),
    min_size=1,
    max_size=4,
)

# The options with which retention removes a job -> the place from which it removes the job.
UNKEPT = {"removeOnComplete": "completed", "removeOnFail": "failed"}


def planned(group_id: str, definition: Definition) -> Plan:
    """Return the plan of a definition, for Redis."""
    opts = {"attempts": 2, "backoff": A_LONG_WHILE}
    jobs = [
        {"name": f"m{n}", "queueName": member["queue"], "opts": member["opts"]}
        for n, member in enumerate(definition)
    ]
    compensation = {
        f"m{n}": {"name": f"undo-m{n}", "when": member["when"], "opts": opts, **_queue(member)}
        for n, member in enumerate(definition)
        if member["when"]
    }
    ends = [{"queueName": ENDS, "name": when, "when": when} for when in END_JOBS]
    on_end = ends if definition[0].get("on_end") else None
    return plan_group(parse_group("saga", jobs, compensation, on_end=on_end), group_id)


def _queue(member: dict[str, Any]) -> dict[str, str]:
    return {"queueName": member["undo_queue"]} if member.get("undo_queue") else {}


def modelled(group_id: str, definition: Definition) -> Group:
    """Return the group of a definition, for the model."""
    members = [
        Member(
            f"{group_id}-{n}",
            member["queue"],
            attempts=member["opts"].get("attempts", 1),
            backoff="backoff" in member["opts"],
            unkept=frozenset(UNKEPT[opt] for opt in UNKEPT.keys() & member["opts"].keys()),
            place="delayed" if "delay" in member["opts"] else "waiting",
            when=member["when"],
            undo_queue=member.get("undo_queue", ""),
        )
        for n, member in enumerate(definition)
    ]
    return Group(group_id, members, on_end=definition[0].get("on_end", False))
