"""docs/demo.svg: a terminal with the output of the demo, drawn from a run of it."""

import html
import os
import subprocess
import sys
from pathlib import Path

from testbed.demo.screen import CODE, STYLES
from testbed.demo.story import SUMMARY
from testbed.servers.processes import leashed
from testbed.support.errors import Unavailable

# The picture shows the second order, from `kubectl apply` to the summary.
FIRST, LAST = "order-refused.yaml", SUMMARY
COLOURS = {
    "bold": "#ffffff",
    "dim": "#8b949e",
    "red": "#ff7b72",
    "green": "#7ee787",
    "yellow": "#e3b341",
    "blue": "#79c0ff",
    "cyan": "#76e3ea",
}
FONT_SIZE, LINE_HEIGHT, MARGIN, BAR = 13, 19, 16, 28
CHARACTER_WIDTH = 0.602 * FONT_SIZE
TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" width="{width}" height="{height}">
<title>The output of make demo for an order that is refused</title>
<style>
text {{ font: {size}px ui-monospace, Menlo, "DejaVu Sans Mono", Consolas, monospace }}
text {{ fill: #c9d1d9 }}
{styles}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="5" class="red"/>
<circle cx="38" cy="18" r="5" class="yellow"/>
<circle cx="56" cy="18" r="5" class="green"/>
{lines}
</svg>
"""


def record() -> str:
    """Run the demo with colours, and return what it prints."""
    env = {**os.environ, "CI": "1", "FORCE_COLOR": "1", "NO_COLOR": "", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        leashed([sys.executable, "-m", "testbed.demo"], "TERM"),
        env=env,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"The demo ended with code {done.returncode}; nothing was drawn.")
    return done.stdout


def excerpt(printed: str) -> list[str]:
    """Return the lines that the picture shows."""
    lines = printed.splitlines()
    first = next(n for n, line in enumerate(lines) if FIRST in line)
    last = next(n for n, line in enumerate(lines) if LAST in line)
    return lines[first : last + 1]


def draw(lines: list[str]) -> str:
    """Draw a terminal with these lines."""
    columns = max(len(CODE.sub("", line)) for line in lines)
    styles = [f".{name} {{ fill: {colour} }}" for name, colour in COLOURS.items()]
    tops = [BAR + LINE_HEIGHT * (n + 1) for n in range(len(lines))]
    return TEMPLATE.format(
        width=round(2 * MARGIN + columns * CHARACTER_WIDTH),
        height=tops[-1] + MARGIN,
        size=FONT_SIZE,
        styles="\n".join(styles),
        lines="\n".join(
            f'<text x="{MARGIN}" y="{y}">{_spans(line)}</text>'
            for y, line in zip(tops, lines, strict=True)
        ),
    )


def _spans(line: str) -> str:
    """Turn terminal codes into elements; `paint` ends each style before the next begins."""
    names = {code: name for name, code in STYLES.items()}
    # Split by a pattern with a group: text, code, text, code, ..., text.
    first, *rest = CODE.split(line)
    drawn = [html.escape(first, quote=False)]
    for code, text in zip(rest[::2], rest[1::2], strict=True):
        text = html.escape(text, quote=False)
        drawn.append(f'<tspan class="{names[code]}">{text}</tspan>' if code in names else text)
    return "".join(drawn)


if __name__ == "__main__":
    try:
        Path(sys.argv[1]).write_text(draw(excerpt(record())), encoding="utf-8")
    except Unavailable as refusal:
        sys.exit(f"make picture: {refusal}")
