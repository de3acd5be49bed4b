"""Ids, queue names and Redis keys, as Python needs them.

lua/includes/names.lua and keys_of.lua are their counterparts in Lua; tests compare them.
"""

import string

# The digits of generated group ids. The first one of 128 bits is one of the first eight.
_DIGITS = string.ascii_letters + string.digits
_ID_DIGITS = 22

# The pseudo queue whose "jobs" are the groups: BullMQ keeps the ledger of each group below it.
LEDGER_QUEUE = "_jobgroups"
UNDO_SUFFIX = "-undo"
END_JOB = "-end-"
UNDO_QUEUE_SUFFIX = ":compensation"
# The owner of a group that no operator owns.
HEADLESS = "headless"


def field_name(attribute: str) -> str:
    """Return the name that a Python attribute has in hashes and in replies of scripts."""
    first, *rest = attribute.split("_")
    return first + "".join(map(str.capitalize, rest))


def generated_id(bits: int) -> str:
    """Return a group id of 22 letters and digits that has all of 128 bits.

    It begins with a letter: BullMQ refuses ids that are integers. It is shorter than a UUID,
    because each job of the group repeats it several times.
    """
    digits = []
    for _ in range(_ID_DIGITS):
        bits, digit = divmod(bits, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def job_id(group_id: str, index: int) -> str:
    """Return the BullMQ id of the member at this place of the definition."""
    return f"{group_id}-{index}"


def job_index(job_id: str) -> int:
    """Return a member's place in the definition."""
    return int(job_id.rpartition("-")[2])


def end_job_id(group_id: str, index: int, attempt: int) -> str:
    """Return the id of the job that an entry of onEnd adds at the end of a group with this number.

    A group with an id of this form could have a member with the same id.
    """
    return f"{group_id}{END_JOB}{index}-{attempt}"


def undo_id(job_id: str) -> str:
    """Return the BullMQ id of a member's undo, or of the pseudo parent of a group's undos."""
    return f"{job_id}{UNDO_SUFFIX}"


def undo_queue(queue: str) -> str:
    """Return the queue that receives the undos of a queue's jobs."""
    return f"{queue}{UNDO_QUEUE_SUFFIX}"


def group_of_wakeup(entry: str) -> str:
    """Return the group that an entry of the wake-up list names."""
    return entry.removesuffix(UNDO_SUFFIX)


def ledger_key(prefix: str) -> str:
    """Return the base key of the pseudo queue."""
    return f"{prefix}:{LEDGER_QUEUE}"


def parent_key(prefix: str, group_id: str) -> str:
    """Return the key of a group's pseudo parent."""
    return f"{ledger_key(prefix)}:{group_id}"


def wakeups_key(prefix: str) -> str:
    """Return the key of the list of groups that need to be settled."""
    return f"{ledger_key(prefix)}:wait"


def marker_key(prefix: str) -> str:
    """Return the key that stock workers write when they add to the wake-up list."""
    return f"{ledger_key(prefix)}:marker"


def parked_key(prefix: str) -> str:
    """Return the key of the sorted set of groups that wait for their members, or have ended."""
    return f"{ledger_key(prefix)}:waiting-children"


def incarnation_key(prefix: str) -> str:
    """Return the key that identifies a data set: it changes when Redis loses its data."""
    return f"{ledger_key(prefix)}:saga:epoch"


def tombstone_key(prefix: str, group_id: str) -> str:
    """Return the key that keeps a removed group from being created again."""
    return f"{ledger_key(prefix)}:tomb:{group_id}"


def released_key(prefix: str) -> str:
    """Return the key of the sorted set of groups that a driver removes after their end."""
    return f"{ledger_key(prefix)}:saga:released"


def due_key(prefix: str) -> str:
    """Return the key of the sorted set of the times when groups are cancelled or removed."""
    return f"{ledger_key(prefix)}:saga:due"


def owning_queues_key(prefix: str) -> str:
    """Return the key of the set of queues that own a group."""
    return f"{ledger_key(prefix)}:saga:queues"


def reviewer_key(prefix: str) -> str:
    """Return the key that names the driver that reviews groups."""
    return f"{ledger_key(prefix)}:saga:reviewer"


def owner_changes_key(prefix: str, owner: str) -> str:
    """Return the key of the stream of an owner's changed groups."""
    return f"{ledger_key(prefix)}:changed:{owner}"


def checkpoints_key(prefix: str, owner: str) -> str:
    """Return the key of the hash that holds each reader's checkpoint in an owner's stream."""
    return f"{ledger_key(prefix)}:heard:{owner}"


def guard_key(key: str) -> str:
    """Return a key in the slot of another key that never exists, and that no user can create."""
    return f"{key}:never"


def group_key(prefix: str, queue: str, group_id: str) -> str:
    """Return the key of a group's hash; `queue` is its owning queue."""
    return f"{prefix}:{queue}:groups:{group_id}"


def job_key(prefix: str, queue: str, job_id: str) -> str:
    """Return the key of a job's hash."""
    return f"{prefix}:{queue}:{job_id}"


def events_key(prefix: str, queue: str) -> str:
    """Return the key of a queue's event stream."""
    return f"{prefix}:{queue}:events"
