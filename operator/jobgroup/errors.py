"""One exception for each reason to refuse a group.

`code` is the first word of a script's error reply; store/replies.py maps it to the exception.
"""


class JobGroupError(Exception):
    """The base class of all exceptions that this package defines."""


class InvalidSpecError(JobGroupError):
    """The definition is invalid; nothing was written.

    `is_final` is whether the definition stays invalid: a field is at fault that a JobGroup cannot
    change, and no newer release may accept it.
    """

    def __init__(self, message: str, is_final: bool = True) -> None:
        super().__init__(message)
        self.is_final = is_final


class EmptyGroupError(InvalidSpecError):
    """The group has no jobs."""

    def __init__(self) -> None:
        super().__init__("Group must contain at least one job")


class UnknownCompensationError(InvalidSpecError):
    """A compensation is for a job that is not in the group."""

    def __init__(self, key: str) -> None:
        super().__init__(f'Compensation key "{key}" does not match any job name')


class JobInFlowError(InvalidSpecError):
    """A job already has a parent."""

    def __init__(self) -> None:
        super().__init__("A job cannot belong to both a group and a flow")


class JobInGroupError(InvalidSpecError):
    """A job already belongs to a group."""

    def __init__(self, name: str) -> None:
        super().__init__(f'Job "{name}" already belongs to a group')


class RefusedError(JobGroupError):
    """A script refused the call because of the data in Redis."""

    code = ""


class GroupNotFoundError(RefusedError):
    """There is no group with this id."""

    code = "GROUPNOTFOUND"

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Group {group_id} not found")


class InvalidGroupStateError(RefusedError):
    """The state of the group does not allow the call."""

    code = "INVALIDSTATE"


class JobNotFoundError(RefusedError):
    """The group has no such job, or several jobs with this name."""

    code = "JOBNOTFOUND"


class InvalidJobStateError(RefusedError):
    """The state of the job, or of its undo, does not allow the call."""

    code = "INVALIDJOBSTATE"


class GroupExistsError(RefusedError):
    """Another group already has this id."""

    code = "GROUPEXISTS"

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Group {group_id} already exists with another definition")


class GroupRemovedError(RefusedError):
    """A group with this id was removed; its id cannot be used again for 30 days."""

    code = "GROUPREMOVED"

    def __init__(self, group_id: str) -> None:
        super().__init__(f"Group {group_id} was removed and cannot be created again")


class RedisStateLostError(RefusedError):
    """Redis lost keys of the group, so it is unknown which of its jobs ran."""

    code = "STATELOST"

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"Redis has lost part of the data of group {group_id}; it will not be run again:"
            " check which of its jobs ran"
        )


class NewerFormatError(RefusedError):
    """A newer release created the group; this release does not understand its keys."""

    code = "NEWERFORMAT"

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"Group {group_id} was created by a newer release of jobgroup; upgrade this client"
        )


class CorruptKeyError(RefusedError):
    """A key of the group has the wrong type or an invalid value."""


class JobExistsError(RefusedError):
    """A job with the key of a member already exists."""

    code = "JOBEXISTS"

    def __init__(self, job_key: str) -> None:
        super().__init__(f"Job {job_key} already exists")
