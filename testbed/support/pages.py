"""The documentation pages, parsed: blocks, commands, links and headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from markdown_it import MarkdownIt
from markdown_it.token import Token

from testbed import ROOT

FOLDERS = ("deploy", "docs", "examples")
PROMPT = "$ "
# The first line of a block that is a file contains its name; more text can follow a colon.
_NAMED = re.compile(r"(?:#|//) ([\w-]+\.\w+)(?::.*)?\n")


@dataclass(frozen=True)
class Command:
    """A command of a page, and the output that the page shows."""

    text: str
    printed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """Return the name of the file that this block shows, if it shows one."""
        named = _NAMED.match(self.text)
        return named[1] if named else None

    @property
    def commands(self) -> list[Command]:
        """Return the commands of a console block; without prompts each line is one.

        A backslash at the end of a line continues it.
        """
        lines = self.text.rstrip().replace("\\\n", "").splitlines()
        if not any(line.startswith(PROMPT) for line in lines):
            return [Command(line) for line in lines]
        commands: list[Command] = []
        for line in lines:
            if line.startswith(PROMPT):
                commands.append(Command(line.removeprefix(PROMPT)))
            else:
                last = commands.pop()
                commands.append(Command(last.text, (*last.printed, line)))
        return commands


@dataclass(frozen=True)
class Page:
    """A page, by its path in the project."""

    path: str

    def __str__(self) -> str:
        return self.path

    @cached_property
    def _tokens(self) -> list[Token]:
        parser = MarkdownIt("commonmark").enable("table")
        return parser.parse((ROOT / self.path).read_text())

    @property
    def blocks(self) -> list[Block]:
        """Return all fenced blocks."""
        return [
            Block(self.path, token.map[0] + 1 if token.map else 0, token.info, token.content)
            for token in self._tokens
            if token.type == "fence"
        ]

    @property
    def commands(self) -> list[Command]:
        """Return all commands."""
        consoles = [block for block in self.blocks if block.language == "console"]
        return [command for block in consoles for command in block.commands]

    @property
    def mentions(self) -> list[str]:
        """Return the inline code."""
        parts = [part for token in self._tokens for part in token.children or ()]
        return [part.content for part in parts if part.type == "code_inline"]

    @property
    def links(self) -> Iterator[str]:
        """Yield the targets of links and pictures."""
        for token in self._tokens:
            for part in token.children or ():
                target = part.attrGet("href") or part.attrGet("src")
                if target:
                    yield str(target)

    @property
    def anchors(self) -> set[str]:
        """Return the anchors of the headings."""
        pairs = zip(self._tokens, self._tokens[1:], strict=False)
        return {_slug(text.content) for token, text in pairs if token.type == "heading_open"}


def pages() -> list[Page]:
    """Return every page of the project."""
    folders = [ROOT.glob("*.md"), *((ROOT / name).rglob("*.md") for name in FOLDERS)]
    return [Page(str(path.relative_to(ROOT))) for found in folders for path in sorted(found)]


def blocks(language: str) -> list[Block]:
    """Return all blocks of a language."""
    return [block for page in pages() for block in page.blocks if block.language == language]


def _slug(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
