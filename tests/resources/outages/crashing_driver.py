"""The operator with a driver that ends at once; a process that does not lead runs no driver."""

from jobgroup import Driver


async def crash(self: Driver) -> None:
    raise RuntimeError("the driver is broken")


Driver.run = crash  # type: ignore[method-assign]

import main  # noqa: E402, F401
