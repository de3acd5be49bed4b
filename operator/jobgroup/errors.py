"""One exception for each way a group is refused.

`code` is the first word of what a Lua script says; the store turns one into the other.
"""


class JobGroupError(Exception):
    """The root of all that this package raises on purpose."""


class InvalidSpecError(JobGroupError):
    """A definition that breaks a rule; nothing was written."""


class EmptyGroupError(InvalidSpecError):
    """A group without jobs."""

    def __init__(self) -> None:
        super().__init__("Group must contain at least one job")


class UnknownCompensationError(InvalidSpecError):
    """A compensation for a job that is not in the group."""

    def __init__(self, key: str) -> None:
        super().__init__(f'Compensation key "{key}" does not match any job name')


class JobInFlowError(InvalidSpecError):
    """A job that already has a parent."""

    def __init__(self) -> None:
        super().__init__("A job cannot belong to both a group and a flow")


class JobInGroupError(InvalidSpecError):
    """A job that already names a group."""

    def __init__(self, name: str) -> None:
        super().__init__(f'Job "{name}" already belongs to a group')


class RefusedError(JobGroupError):
    """What Redis knows forbids the call; `code` is how its script says so."""

    code = ""


class GroupNotFoundError(RefusedError):
    """No group has this id."""

    code = "GROUPNOTFOUND"

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Group {group_id} not found")


class InvalidGroupStateError(RefusedError):
    """The group's state forbids the call."""

    code = "INVALIDSTATE"


class GroupExistsError(RefusedError):
    """Another group has this id."""

    code = "GROUPEXISTS"

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Group {group_id} already exists with another definition")


class GroupRemovedError(RefusedError):
    """A group of this id was removed, and stays removed."""

    code = "GROUPREMOVED"

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Group {group_id} was removed and cannot be made again")


class RedisStateLostError(RefusedError):
    """A part of the group is gone: it ran, and nobody knows how far."""

    code = "STATELOST"

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Redis has lost a part of group {group_id}; it is not run again")


class SpoiltKeyError(RefusedError):
    """A key that the group needs holds what nobody of us writes there."""


class JobExistsError(RefusedError):
    """A key stands where a member would go."""

    code = "JOBEXISTS"

    def __init__(self, job_key: str) -> None:
        super().__init__(f"Job {job_key} already exists")
