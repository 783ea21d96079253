"""Set rich's picture of a terminal in motion: its lines appear one after another, over and over.

Only CSS, so that it moves wherever the picture is shown as an image. A viewer that does not animate, or whose user
prefers less motion, shows all lines.
"""

import re

LINE_S = 0.16  # between two lines
PAUSE_S = 1.2  # where the text has an empty line
HELD_S = 10.0  # how long the whole picture stays
GONE_S = 0.5  # how long it is empty before it begins again

_OF_LINE = re.compile(r'<(?:text|rect)\b[^>]*clip-path="url\(#[\w-]+-line-(\d+)\)"')


def in_motion(svg: str) -> str:
    """Return the same picture with an animation."""
    lines = sorted({int(number) for number in _OF_LINE.findall(svg) if _has_text(svg, int(number))})
    begins: dict[int, float] = {}
    at, before = 0.4, -1
    for line in lines:
        at += LINE_S if line == before + 1 else PAUSE_S
        begins[line], before = at, line
    whole = at + HELD_S + GONE_S
    gone = 100 * (at + HELD_S) / whole
    rules = [f".line {{ animation: {whole:.1f}s step-end infinite }}"]
    for line, begin in begins.items():
        steps = f"0% {{ opacity: 0 }} {100 * begin / whole:.2f}% {{ opacity: 1 }} {gone:.2f}% {{ opacity: 0 }}"
        rules += [f"@keyframes line-{line} {{ {steps} }}", f".line-{line} {{ animation-name: line-{line} }}"]
    rules.append("@media (prefers-reduced-motion: reduce) { .line { animation: none } }")
    svg = svg.replace("</style>", "\n    ".join(["", *rules, "</style>"]), 1)
    return _OF_LINE.sub(lambda found: _marked(found[0], int(found[1]), begins), svg)


def _has_text(svg: str, line: int) -> bool:
    """Return whether a line has something other than spaces."""
    return any(text.replace("&#160;", "").strip() for text in re.findall(rf'-line-{line}\)">([^<]*)</text>', svg))


def _marked(tag: str, line: int, begins: dict[int, float]) -> str:
    if line not in begins:
        return tag
    return re.sub(r'class="', f'class="line line-{line} ', tag, count=1)
