"""The results as a picture, and as a table in the documentation."""

import os
import re
from xml.sax.saxutils import escape

from bench.measure import Row

DOCS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "docs")
PAGE = os.path.join(DOCS, "explanation", "speed.md")
PICTURE = os.path.join(DOCS, "pictures", "speed.svg")
BLOCK = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- /bench -->)", re.DOTALL)
LINE, TOP, BOTTOM = 22, 58, 16  # pixels
NAMES, SCALE, NUMBERS = 420, 260, 150  # widths: of what was measured, of the aim, and of the numbers
MOST = 2.0  # times the aim; a longer bar is cut
FONT = "font-family='system-ui, sans-serif' font-size='13'"
INK, MET, MISSED, FAINT = "#1f2328", "#1a7f64", "#b35900", "#eef1f4"


def draw(rows: list[Row]) -> str:
    """Draw a bar for each row that has an aim: how far it goes towards the aim, and whether it is met."""
    shown = [row for row in rows if row.met is not None]
    width, height = NAMES + int(SCALE * MOST) + NUMBERS, TOP + LINE * len(shown) + BOTTOM
    aim = NAMES + SCALE
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' {FONT} role='img'>",
        "<title>What anyplug costs, against its aims</title>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        f"<text x='12' y='24' fill='{INK}' font-weight='600'>As a share of the aim: shorter is better</text>",
        f"<text x='{aim}' y='46' fill='{INK}' text-anchor='middle'>aim</text>",
    ]
    for number, row in enumerate(shown):
        parts += _bar(row, TOP + LINE * number)
    parts.append(f"<line x1='{aim}' y1='52' x2='{aim}' y2='{height - BOTTOM}' stroke='{INK}' stroke-dasharray='4 3'/>")
    return "\n".join([*parts, "</svg>", ""])


def _bar(row: Row, top: int) -> list[str]:
    assert row.ratio is not None
    assert row.aim is not None
    share = min(row.ratio / row.aim, MOST)
    colour, verdict = (MET, "met") if row.met else (MISSED, "not met")
    middle = top + LINE - 7
    numbers = f"{row.ratio:.2f}, aim {row.aim:g}: {verdict}"
    return [
        f"<text x='12' y='{middle}' fill='{INK}'>{escape(row.what)}</text>",
        f"<rect x='{NAMES}' y='{top + 4}' width='{SCALE * MOST:.0f}' height='{LINE - 8}' fill='{FAINT}'/>",
        f"<rect x='{NAMES}' y='{top + 4}' width='{SCALE * share:.0f}' height='{LINE - 8}' fill='{colour}'/>",
        f"<text x='{NAMES + SCALE * MOST + 8:.0f}' y='{middle}' fill='{INK}'>{numbers}</text>",
    ]


def table(rows: list[Row]) -> str:
    """Return the rows as a table of the documentation."""
    lines = ["| measured | | against | | ratio | aim | |", "|---|---:|---|---:|---:|---:|---|"]
    for row in rows:
        baseline = "" if row.baseline is None else f"{row.baseline:,.2f} {row.unit}"
        ratio, aim = "" if row.ratio is None else f"{row.ratio:.2f}", "" if row.aim is None else f"{row.aim:g}"
        verdict = {True: "met", False: "**not met**", None: ""}[row.met]
        lines.append(
            f"| {row.what} | {row.measured:,.2f} {row.unit} | {row.against} | {baseline} "
            f"| {ratio} | {aim} | {verdict} |"
        )
    return "\n".join([*lines, ""])


def into_docs(rows: list[Row], about: str) -> None:
    """Put the picture and the table into the documentation; `about` tells what they were measured on."""
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write(draw(rows))
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(BLOCK.sub(lambda _: f"\n{about}\n\n{table(rows)}\n", page))
