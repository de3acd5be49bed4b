"""Points at which a test kills the process, as with `kill -9`: FAILPOINT=<name>[:<nth time>].

Without the variable, as in production, a failpoint is a call of an empty function.
"""

import os
import signal

_name, _, _times = os.environ.get("FAILPOINT", "").partition(":")
_left = int(_times or 1)


def _die(name: str) -> None:
    global _left
    if name == _name:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _live(_: str) -> None:
    pass


failpoint = _die if _name else _live
