"""The printed lines of the demo, from objects of the API server and logs of workers. Pure."""

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
# How a job is printed: the sign, its style and the words. Unfinished jobs are not printed, because
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
    "leaving": ("dim", "is terminating"),
    "gone": ("dim", "is gone"),
}
# Of a big group, only so many jobs are printed.
MOST_JOBS = 10

SUMMARY = "One order is fulfilled. The completed jobs of the other one are undone."


def opening(folder: Path) -> str:
    """Return the first lines."""
    title = paint("bold", "Two orders: one is fulfilled, one fails and is undone.")
    return f"{title}\n\nStarting all parts on this machine; their logs are in {folder}:"


def invitation(root: Path, folder: Path, example: Path, also: Mapping[str, list[str]]) -> str:
    """Return what the user can try; each command can be pasted into a shell as it is."""
    order = example.relative_to(root) / "order.yaml"
    cancel = """-p '{"spec": {"cancel": true}}'"""
    tries = {
        "Your turn, in another terminal:": [
            f"cd {shlex.quote(str(root))}",
            f"export KUBECONFIG={folder}/admin.kubeconfig PATH={folder}/bin:$PATH",
        ],
        "The state of an order:": [
            "kubectl get jobgroups --watch",
            "kubectl describe jobgroup order-124",
        ],
        "A new order:": [f"sed s/123/125/ {order} | kubectl apply -f -"],
        "An order that waits for its shipping, and is cancelled after two of its jobs:": [
            f"sed 's/123/126/; s/queueName: shipping/queueName: drones/' {order}"
            " | kubectl apply -f -",
            "kubectl wait jobgroup order-126 --for=jsonpath={.status.progress}=2/3",
            f"kubectl patch jobgroup order-126 --type=merge {cancel}",
        ],
        **also,
        "A request that is rejected:": [
            f"kubectl patch jobgroup order-123 --type=merge {cancel}",
        ],
        "The fields of a job, and the deletion of an order:": [
            "kubectl explain jobgroup.spec.jobs",
            "kubectl delete jobgroup order-123",
        ],
    }
    sections = [
        f"\n{heading}\n" + "\n".join(f"  {paint('cyan', command)}" for command in commands)
        for heading, commands in tries.items()
    ]
    return "\n".join([*sections, "\nAll changes are printed here. Ctrl-C ends the demo.\n"])


def of_group(before: Body | None, now: Body) -> list[str]:
    """Return the lines about a change of a JobGroup; none if state and counts are the same."""
    old, new = (before or {}).get("status") or {}, now.get("status") or {}
    state = new.get("state", "PENDING")
    if state == "PENDING" or _summary(old) == _summary(new):
        return []
    was = {job["name"]: _job(job) for job in old.get("jobs") or ()}
    places = {job["name"]: place for place, job in enumerate(now["spec"]["jobs"])}
    jobs = [
        _of_job(job)
        for job in sorted(new.get("jobs") or (), key=lambda job: places[job["name"]])
        if _job(job) in JOBS and _job(job) != was.get(job["name"])
    ]
    head = f"{paint(STATES[state], f'{state:<14}')}{_counts(new)}"
    lines = [line_of(now["metadata"]["name"], head), *jobs[:MOST_JOBS]]
    if len(jobs) > MOST_JOBS:
        lines.append(line_of("", f"  and {len(jobs) - MOST_JOBS} more jobs"))
    return lines


def of_deletion(body: Body) -> str:
    """Return the line about a deleted JobGroup."""
    return line_of(body["metadata"]["name"], paint("dim", "deleted"))


def of_queues(body: Body, worked_on: Collection[str]) -> list[str]:
    """Return a line for each queue of a new JobGroup that has no worker."""
    queues = dict.fromkeys(job["queueName"] for job in body["spec"].get("jobs") or ())
    others = ", ".join(worked_on)
    return [
        line_of("", f"queue {queue} has no worker here; there are workers for {others}")
        for queue in queues
        if queue not in worked_on
    ]


def of_event(body: Body) -> str:
    """Return the line about an Event."""
    style = "yellow" if body["type"] == "Warning" else "blue"
    words = f"{paint(style, body['reason'])}: {printable(body['message'])}"
    return line_of("event", f"{body['involvedObject']['name']} {words}")


def of_pod(before: Body | None, now: Body | None) -> list[str]:
    """Return the line about a change of a pod: starts, runs, is terminating, is gone."""
    name = (now or before or {})["metadata"]["name"]
    known = _pod(before) if before else None
    return [] if known == _pod(now) else [line_of("pod", f"{name} {paint(*PODS[_pod(now)])}")]


def of_worker(name: str, line: str) -> str:
    """Return the line about a line of a worker's log."""
    return line_of(name, printable(line))


def line_of(name: str, words: str) -> str:
    """Return a line with the name of its subject in front."""
    style = "dim" if name in ("event", "pod") or name.startswith("worker.") else "bold"
    return f"{paint(style, name) if name else ''}{'':{max(12 - len(name), 1)}}{words}"


def _of_job(job: Body) -> str:
    sign, style, words = JOBS[_job(job)]
    return line_of("", f"  {paint(style, sign)} {job['name']:<18}{paint('dim', words)}")


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
