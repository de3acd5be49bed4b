"""The example that posts the ends of sagas as CloudEvents, to a receiver that refuses the first."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.servers.processes import leashed
from testbed.support.examples import CLOUD_EVENTS, node_worker, python_worker
from testbed.support.fixtures import QueueNamer
from testbed.support.pages import Page
from testbed.support.sagas import Sagas
from testbed.support.waiting import eventually

README = Page("examples/cloudevents/README.md")


class Sink(ThreadingHTTPServer):
    """A receiver that refuses the first request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.received: list[tuple[str, str]] = []


class Receiver(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.received.append((self.headers["content-type"], body))
        self.send_response(503 if len(self.server.received) == 1 else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("language", ["node", "python"])
async def test_an_end_is_posted_until_it_is_accepted(
    queue: QueueNamer,
    sagas: Sagas,
    sink: Sink,
    worker_url: str,
    prefix: str,
    tmp_path: Path,
    language: str,
) -> None:
    (text,) = [each.text for each in README.blocks if each.language == "yaml"]
    spec = yaml.safe_load(text)["spec"]
    entry = spec["onEnd"][0]
    entry["opts"]["backoff"] = 10
    queue(entry["queueName"])
    await sagas.groups.add_group("order-128", spec["jobs"], group_id="g", on_end=[entry])
    await sagas.groups.cancel_group("g")
    example = node_worker(tmp_path, CLOUD_EVENTS) if language == "node" else None
    process = await asyncio.create_subprocess_exec(
        *leashed(example or python_worker(CLOUD_EVENTS)),
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "REDIS_URL": worker_url,
            "BULLMQ_PREFIX": prefix,
            "SINK": f"http://127.0.0.1:{sink.server_port}/",
        },
    )
    job = f"{prefix}:{entry['queueName']}:g-end-0-1"

    async def is_gone() -> bool:
        return not await sagas.redis.exists(job)

    try:
        await eventually(is_gone)
    finally:
        process.send_signal(signal.SIGTERM)
        said, _ = await process.communicate()
    assert process.returncode == 0
    assert "g-end-0-1 was not posted: " in said.decode()
    assert " answered 503" in said.decode()
    first, second = sink.received
    assert first == second
    kind, body = first
    assert kind.split(";")[0] == "application/cloudevents+json"
    event = json.loads(body)
    (example_event,) = [json.loads(b.text) for b in README.blocks if b.language == "json"]
    assert event.keys() == example_event.keys()
    assert event["data"].keys() == example_event["data"].keys()
    assert datetime.fromisoformat(event.pop("time")).tzinfo
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": "g-end-0-1",
        "source": "/sagas",
        "type": "dev.jobgroups.saga.failed",
        "subject": "order-128",
        "datacontenttype": "application/json",
    }
    assert (data["state"], data["failure"]) == ("FAILED", {"reason": "cancelled"})
