"""`python -m handlers.probe PATH`: print the answer of a probe of the operator in the same pod.

The image has neither a shell nor curl. The exit code is 0 if the probe passes, else 1.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

import aiohttp

from handlers.settings import SettingsError, read_port

PATHS = ("livez", "readyz", "metrics")
SECONDS = 10


async def ask(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    limit = aiohttp.ClientTimeout(total=SECONDS)
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.get(f"http://127.0.0.1:{port}/{path}") as answer,
    ):
        return answer.status, await answer.text()


def main(arguments: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    """Print an answer; an error is one line."""
    if len(arguments) != 1 or arguments[0] not in PATHS:
        sys.stderr.write(f"usage: python -m handlers.probe {'|'.join(PATHS)}\n")
        return 2
    try:
        port = read_port(env)
        status, text = asyncio.run(ask(port, arguments[0]))
    except SettingsError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 2
    except (aiohttp.ClientError, TimeoutError) as error:
        sys.stderr.write(f"the operator does not answer at port {port}: {error!r}\n")
        return 1
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
