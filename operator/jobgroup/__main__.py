"""The command line: make sagas, look at them, give them up and drive them, without Kubernetes."""

import asyncio
import io
import os
import re
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NoReturn

from jobgroup import JobGroupError, JobGroups, __version__
from jobgroup.connection import RedisError, is_transient, locate
from jobgroup.definition import read_plans
from jobgroup.errors import InvalidSpecError
from jobgroup.spec import check_group_id
from jobgroup.verbs import REFUSED, add, cancel, complain, drive, follow, jobs, remove, show

NO_REDIS, INTERRUPTED, NO_READER = 3, 130, 141

DESCRIPTION = """\
Sagas over BullMQ jobs: a group of jobs that all succeed, or have their effects undone.
Stock BullMQ workers run the jobs; `drive` moves the groups on."""

EPILOG = """\
environment:
  REDIS_URL      what --redis is when it is not given; the place for a password
  BULLMQ_PREFIX  what --prefix is when it is not given

exit codes:
  0    done; follow and add --wait: every group COMPLETED
  1    follow and add --wait: a group ended otherwise
  2    refused: wrong usage, a bad file, or a group whose state forbids it
  3    Redis is out of reach or does not obey
  130  interrupted; drive ends with 0, for that is how it is stopped
  141  nobody reads the output any more

Run `python -m jobgroup VERB --help` for one verb."""


def read_source(file: str) -> tuple[str, str]:
    """Return a file's text and what to call the file."""
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
    """A parser that says what it did not understand, but for the password in it."""

    def error(self, message: str) -> NoReturn:
        super().error(re.sub(r"//\S*@", "//***@", message))


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser(
        prog="python -m jobgroup",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"jobgroup {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(run: Callable[[JobGroups, Namespace], Awaitable[int]], text: str) -> ArgumentParser:
        made = verbs.add_parser(
            run.__name__,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            allow_abbrev=False,
        )
        made.set_defaults(run=run)
        options(made)
        return made

    options(parser)
    adding = verb(add, "create the groups of a file, all their jobs or nothing")
    adding.add_argument(
        "file",
        metavar="FILE",
        help="YAML or JSON, - for standard input: {name, jobs, compensation, groupId} or a whole"
        " JobGroup manifest; each YAML document is a group",
    )
    adding.add_argument("--id", help="the group's id; a new UUID if the file names none either")
    adding.add_argument("--wait", action="store_true", help="follow the groups to their end")
    for run, text in (
        (show, "show a group's state and counts"),
        (jobs, "show where each job of a group is"),
        (cancel, "cancel what is pending and undo what completed"),
        (remove, "remove an ended group with all its jobs; its id cannot be used again"),
        (follow, "show a group whenever it changes, until it ends"),
    ):
        verb(run, text).add_argument("id", metavar="ID", help="the group's id")
    driving = verb(drive, "move groups on until stopped; run as many as you like")
    driving.add_argument("--once", action="store_true", help="do all there is to do now, and end")
    # Options stand before the verb or after it: neither parser has a default of its own.
    given = Namespace(
        redis=os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379/0",
        prefix=os.environ.get("BULLMQ_PREFIX") or "bull",
        output="text",
        id=None,
    )
    return parser.parse_args(argv, given)


def options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("options of every verb")
    text = "where Redis is (default: redis://127.0.0.1:6379/0)"
    group.add_argument("--redis", metavar="URL", default=SUPPRESS, help=text)
    text = "BullMQ's key prefix (default: bull)"
    group.add_argument("--prefix", default=SUPPRESS, help=text)
    text = "texts for people, or one JSON object a line (default: text)"
    group.add_argument("--output", choices=("text", "json"), default=SUPPRESS, help=text)


async def obey(args: Namespace) -> int:
    try:
        groups = JobGroups.connect(args.redis, args.prefix)
        # A parameter of the URL that redis-py does not know shows only here.
        groups.store.redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        raise InvalidSpecError("the Redis URL has a parameter that redis-py refuses") from None
    async with groups:
        code: int = await args.run(groups, args)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say and return the exit code."""
    args = parse(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args.where = locate(args.redis)
        if args.run is add:
            text, args.source = read_source(args.file)
            args.plans = read_plans(text, args.source, args.id)
        elif args.id is not None:
            check_group_id(args.id)
        return asyncio.run(obey(args))
    except JobGroupError as refusal:
        return complain(refusal, REFUSED)
    except RedisError as error:
        what = "is out of reach" if is_transient(error) else "does not obey"
        return complain(f"Redis at {args.where} {what}: {error}", NO_REDIS)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing more may be flushed into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER


if __name__ == "__main__":
    sys.exit(main())
