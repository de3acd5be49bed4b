"""The command line: create, show, cancel and drive sagas without Kubernetes."""

import asyncio
import getpass
import io
import json
import os
import re
import sys
from argparse import (
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jobgroup import JobGroupError, JobGroups, Store, __version__
from jobgroup.cli.finding import duration, list_, prune, results, whole_number
from jobgroup.cli.manifest import read_plans
from jobgroup.cli.output import program
from jobgroup.cli.verbs import (
    REFUSED,
    add,
    cancel,
    complain,
    complete,
    drive,
    fail,
    follow,
    jobs,
    remove,
    resolve,
    retry_undos,
    show,
)
from jobgroup.definition.spec import check_group_id
from jobgroup.errors import InvalidSpecError
from jobgroup.groups import PRUNED_STATES
from jobgroup.model.snapshot import ENDED, STATES
from jobgroup.store.connection import RedisError, is_transient
from jobgroup.store.settings import SettingsError, read_redis_settings, seconds_setting

# The verbs of which the group keeps a record.
REQUESTS = (cancel, complete, fail, retry_undos, resolve)
NO_REDIS, INTERRUPTED, NO_READER = 3, 130, 141

DESCRIPTION = """\
Sagas over BullMQ jobs: groups of jobs that all succeed, or whose effects are undone.
Stock BullMQ workers run the jobs; `drive` advances the groups."""

EPILOG = """\
environment (as for the operator; --redis replaces all REDIS_* variables):
  REDIS_URL            default of --redis; use it for a URL with a password
  REDIS_URL_FILE       a file with the URL
  REDIS_USERNAME_FILE  a file with the user name
  REDIS_PASSWORD_FILE  a file with the password
  REDIS_SENTINEL_USERNAME_FILE, REDIS_SENTINEL_PASSWORD_FILE  the same for sentinels
  REDIS_CA_FILE        the CA certificate of a rediss:// URL
  REDIS_CERT_FILE, REDIS_KEY_FILE  the certificate of this client, and its key
  BULLMQ_PREFIX        default of --prefix
  GROUP_TTL_SECONDS    drive: remove groups without a JobGroup this long after their end

exit codes:
  0    success; follow and add --wait: every group is COMPLETED
  1    follow and add --wait: a group ended in another state
  2    refused: wrong usage, an invalid file, or a group in the wrong state
  3    Redis cannot be reached or rejects a command
  130  interrupted; drive exits with 0 when it is stopped
  141  the reader of the output closed it

Run `{program} VERB --help` for the options of a verb."""


def read_source(file: str) -> tuple[str, str]:
    """Return the text of a file and the name to use in messages."""
    source = "standard input" if file == "-" else file
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig"), source
    except OSError as error:
        raise InvalidSpecError(f"{source}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidSpecError(f"{source}: line {line} is not UTF-8 text") from None


class Parser(ArgumentParser):
    """A parser that hides passwords in its error messages."""

    def error(self, message: str) -> NoReturn:
        super().error(re.sub(r"//\S*@", "//***@", message))


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser(
        prog=program(),
        description=DESCRIPTION,
        epilog=EPILOG.format(program=program()),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"jobgroup {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(run: Callable[[JobGroups, Namespace], Awaitable[int]], text: str) -> ArgumentParser:
        made = verbs.add_parser(
            run.__name__.rstrip("_").replace("_", "-"),
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            allow_abbrev=False,
        )
        made.set_defaults(run=run)
        options(made)
        return made

    options(parser)
    adding = verb(add, "create the groups of a file; each with all its jobs or not at all")
    adding.add_argument(
        "file",
        metavar="FILE",
        help="YAML or JSON, or - for standard input; each document is {name, jobs, compensation,"
        " onEnd, groupId} or a JobGroup manifest",
    )
    ids = adding.add_mutually_exclusive_group()
    ids.add_argument(
        "--id",
        help="id of the group (default: groupId of the file, or NAMESPACE.NAME of a manifest, with"
        ' the namespace "default" if it has none, or a new id if the file has neither); adding a'
        " group with an id that exists changes nothing",
    )
    ids.add_argument(
        "--new-id", action="store_true", help="create each group with a new, generated id"
    )
    adding.add_argument("--wait", action="store_true", help="follow the groups until they end")
    listing = verb(list_, "list groups, the oldest of each state first")
    listing.add_argument(
        "state",
        metavar="STATE",
        nargs="?",
        choices=STATES,
        help=f"{', '.join(STATES)} (default: all)",
    )
    listing.add_argument(
        "--name", help="only groups with this name; that of a JobGroup is without its namespace"
    )
    listing.add_argument("--queue", help="only groups whose first job is in this queue")
    listing.add_argument(
        "--older-than",
        metavar="AGE",
        type=duration,
        help="only groups that have been in their state for this time, such as 30s, 15m, 12h or 7d",
    )
    listing.add_argument(
        "--owner", help='only groups of this owner; those without a JobGroup have "headless"'
    )
    listing.add_argument(
        "--limit", metavar="N", type=whole_number, help="at most N groups (default: all)"
    )
    for run, text in (
        (show, "show the state and the counts of a group"),
        (jobs, "list the jobs of a group with their status, and why jobs and undos failed"),
        (results, "list what the completed jobs of a group returned"),
        (cancel, "cancel a group: drop its pending jobs and undo its completed jobs"),
        (complete, "complete a pending job without a worker"),
        (fail, "let a pending job fail for good without a worker"),
        (retry_undos, "retry the failed undos of a group, each with all its attempts"),
        (resolve, "resolve an undo that failed or waits: its effect was undone by hand, or stays"),
        (remove, "remove an ended group and its jobs; its id cannot be used again for 30 days"),
        (follow, "show a group after each change until it ends"),
    ):
        made = verb(run, text)
        made.add_argument("id", metavar="ID", help="id of the group")
        if run is retry_undos:
            text = "retry only the undo of this job, given by its name or id; may be repeated"
            made.add_argument("--job", action="append", help=text)
        if run is resolve:
            made.add_argument("job", metavar="JOB", help="name or id of the job")
            text = "what was done about the effect of the job"
            made.add_argument("--reason", required=True, metavar="TEXT", help=text)
        if run in REQUESTS:
            made.add_argument(
                "--by", default=login_name(), help="who asks for it (default: your login name)"
            )
        if run in (complete, fail):
            made.add_argument("job", metavar="JOB", help="name of the job, or its id")
        if run is complete:
            text = "return value of the job (default: null)"
            made.add_argument("--value", metavar="JSON", type=json_value, help=text)
        if run is fail:
            made.add_argument("--reason", metavar="TEXT", required=True, help="why it fails")
    pruning = verb(prune, "remove old groups that have ended and have no JobGroup")
    pruning.add_argument(
        "--older-than",
        metavar="AGE",
        type=duration,
        required=True,
        help="groups that ended this long ago, such as 12h or 7d",
    )
    pruning.add_argument(
        "--state",
        metavar="STATE",
        action="append",
        choices=sorted(ENDED),
        help=f"{', '.join(sorted(ENDED))}; may be repeated (default: {', '.join(PRUNED_STATES)})",
    )
    pruning.add_argument("--dry-run", action="store_true", help="print what would be removed")
    driving = verb(drive, "advance groups until stopped; several drivers can run at once")
    driving.add_argument(
        "--once", action="store_true", help="advance all groups that can advance now, then exit"
    )
    # Options may precede or follow the verb, so neither parser sets defaults.
    given = Namespace(redis=None, prefix=None, output="text", id=None)
    return parser.parse_args(argv, given)


def options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("options of every verb")
    text = "URL of Redis (default: redis://127.0.0.1:6379/0)"
    group.add_argument("--redis", metavar="URL", default=SUPPRESS, help=text)
    text = "key prefix of BullMQ (default: bull)"
    group.add_argument("--prefix", default=SUPPRESS, help=text)
    text = "text, or one JSON object per line (default: text)"
    group.add_argument("--output", choices=("text", "json"), default=SUPPRESS, help=text)


def json_value(text: str) -> Any:
    """Return a JSON value."""

    def refuse(name: str) -> NoReturn:
        raise ArgumentTypeError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError as error:
        raise ArgumentTypeError(f"not JSON: {error}") from None
    except RecursionError:
        raise ArgumentTypeError("nested too deeply") from None


def login_name() -> str:
    """Return the login name of the caller; the user of a container may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def resolve_redis(args: Namespace, env: Mapping[str, str] = os.environ) -> None:
    """Complete the arguments from the environment."""
    args.settings = read_redis_settings(env, args.redis or "", args.prefix or "")
    args.prefix = args.settings.prefix
    args.where = args.settings.location
    args.group_ttl_seconds = seconds_setting(env, "GROUP_TTL_SECONDS")


async def run(args: Namespace) -> int:
    async with JobGroups(Store(args.settings.connect(), args.prefix)) as groups:
        code: int = await args.run(groups, args)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    args = parse(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        resolve_redis(args)
        if args.run is add:
            text, args.source = read_source(args.file)
            args.plans = read_plans(text, args.source, args.id, args.new_id)
        elif args.id is not None:
            check_group_id(args.id)
        return asyncio.run(run(args))
    except (JobGroupError, SettingsError) as refusal:
        return complain(refusal, REFUSED)
    except RedisError as error:
        what = "cannot be reached" if is_transient(error) else "rejected the command"
        return complain(f"Redis at {args.where} {what}: {error}", NO_REDIS)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe; nothing more may be flushed into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
