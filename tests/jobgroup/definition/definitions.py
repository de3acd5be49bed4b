"""Definitions that tests of several modules use."""

from typing import Any


def large_group(jobs: int) -> dict[str, Any]:
    """Return a group with an undo for each job.

    The order of its keys differs between code points and UTF-16, and some numbers have a form of
    their own in canonical JSON.
    """
    names = [("\ufb33", "\U0001f600", "job-", "é")[n % 4] + str(n) for n in range(jobs)]
    members = [
        {"name": name, "queueName": f"q{n % 3}", "data": {"n": n, "amount": n / 2}}
        for n, name in enumerate(names)
    ]
    members[-1]["opts"] = {"attempts": 3}
    undos = {name: {"name": f"undo {name}", "data": {"n": 1.0}} for name in names}
    return {"name": "order", "jobs": members, "compensation": undos}
