"""What the API server and the workers tell -> lines for a person. Pure."""

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from testbed.demo.screen import paint, printable

Body = Mapping[str, Any]

STATES = {
    "ACTIVE": "cyan",
    "COMPLETED": "green",
    "COMPENSATING": "yellow",
    "FAILED": "red",
    "FAILED_COMPENSATION": "red",
}
# What is said of a job: the sign, its style and the words. Jobs on their way are not told of, for
# the status of a group is not written for each of them.
JOBS = {
    "completed": ("✓", "green", "completed"),
    "failed": ("✗", "red", "failed"),
    "cancelled": ("✗", "dim", "cancelled"),
    "undo pending": ("↺", "yellow", "being undone"),
    "undo completed": ("↺", "yellow", "undone"),
    "undo failed": ("✗", "red", "could not be undone"),
}
PODS = {
    "starts": ("yellow", "starts"),
    "runs": ("green", "runs"),
    "leaving": ("dim", "is asked to go"),
    "gone": ("dim", "is gone"),
}
# A big group is told of in few lines.
MOST_JOBS = 10

MORAL = "One order is fulfilled. Of the other, what was done is undone."


def opening(folder: Path) -> str:
    """Say what is going to be seen."""
    title = paint("bold", "An order that is fulfilled, and one that is undone.")
    return f"{title}\n\nStarting, all on this machine, with logs in {folder}:"


def invitation(root: Path, folder: Path, example: Path, also: Mapping[str, list[str]]) -> str:
    """Say what to try; each line of commands can be pasted into a shell as it is."""
    order = example.relative_to(root) / "order.yaml"
    cancel = """-p '{"spec": {"cancel": true}}'"""
    tries = {
        "Now you, in another terminal:": [
            f"cd {shlex.quote(str(root))}",
            f"export KUBECONFIG={folder}/admin.kubeconfig PATH={folder}/bin:$PATH",
        ],
        "What an order tells:": [
            "kubectl get jobgroups --watch",
            "kubectl describe jobgroup order-124",
        ],
        "Another order, and one that is given up on its way:": [
            f"sed s/123/125/ {order} | kubectl apply -f -",
            f"sed s/123/126/ {order} | kubectl apply -f - &&"
            f" kubectl patch jobgroup order-126 --type=merge {cancel}",
        ],
        **also,
        "What is refused:": [
            f"kubectl patch jobgroup order-123 --type=merge {cancel}",
        ],
        "What may be asked for, and an order's end:": [
            "kubectl explain jobgroup.spec.jobs",
            "kubectl delete jobgroup order-123",
        ],
    }
    told = [
        f"\n{heading}\n" + "\n".join(f"  {paint('cyan', command)}" for command in commands)
        for heading, commands in tries.items()
    ]
    return "\n".join([*told, "\nWhat happens is told here. Ctrl-C ends it all.\n"])


def of_group(before: Body | None, now: Body) -> list[str]:
    """Say what changed in a JobGroup, job by job; nothing if nothing a person looks for did."""
    old, new = (before or {}).get("status") or {}, now.get("status") or {}
    state = new.get("state", "PENDING")
    if state == "PENDING" or _summary(old) == _summary(new):
        return []
    was = {job["name"]: _job(job) for job in old.get("jobs") or ()}
    places = {job["name"]: place for place, job in enumerate(now["spec"]["jobs"])}
    told = [
        _of_job(job)
        for job in sorted(new.get("jobs") or (), key=lambda job: places[job["name"]])
        if _job(job) in JOBS and _job(job) != was.get(job["name"])
    ]
    head = f"{paint(STATES[state], f'{state:<14}')}{_counts(new)}"
    more = [who("", f"  and {len(told) - MOST_JOBS} more jobs")] if len(told) > MOST_JOBS else []
    return [who(now["metadata"]["name"], head), *told[:MOST_JOBS], *more]


def of_deletion(body: Body) -> str:
    """Say that a JobGroup is gone."""
    return who(body["metadata"]["name"], paint("dim", "deleted"))


def of_queues(body: Body, worked_on: Collection[str]) -> list[str]:
    """Say where a new JobGroup's jobs would wait for ever."""
    queues = dict.fromkeys(job["queueName"] for job in body["spec"].get("jobs") or ())
    return [
        who("", f"nobody works on the queue {queue} here; there are {', '.join(worked_on)}")
        for queue in queues
        if queue not in worked_on
    ]


def of_event(body: Body) -> str:
    """Say what an Event tells."""
    style = "yellow" if body["type"] == "Warning" else "blue"
    return who("event", f"{paint(style, body['reason'])}: {printable(body['message'])}")


def of_pod(before: Body | None, now: Body | None) -> list[str]:
    """Say what became of a pod: it starts, it runs, it is asked to go, it is gone."""
    name = (now or before or {})["metadata"]["name"]
    known = _pod(before) if before else None
    return [] if known == _pod(now) else [who("pod", f"{name} {paint(*PODS[_pod(now)])}")]


def of_worker(name: str, line: str) -> str:
    """Say what a worker said."""
    return who(name, printable(line))


def who(name: str, words: str) -> str:
    """Put who speaks before what is said."""
    style = "dim" if name in ("event", "pod") or name.startswith("worker.") else "bold"
    return f"{paint(style, name) if name else ''}{'':{max(12 - len(name), 1)}}{words}"


def _of_job(job: Body) -> str:
    sign, style, words = JOBS[_job(job)]
    return who("", f"  {paint(style, sign)} {job['name']:<18}{paint('dim', words)}")


def _pod(body: Body | None) -> str:
    if body is None:
        return "gone"
    if body["metadata"].get("deletionTimestamp"):
        return "leaving"
    return "runs" if body["status"].get("phase") == "Running" else "starts"


def _summary(status: Body) -> tuple[Any, ...]:
    return tuple(status.get(field) for field in ("state", "progress", "undone"))


def _counts(status: Body) -> str:
    counts = f"{status.get('progress') or 'nothing'} completed"
    return f"{counts}, {status['undone']} undone" if status.get("undone") else counts


def _job(job: Body) -> str:
    return f"undo {job['undo']}" if job.get("undo") else str(job["status"])
