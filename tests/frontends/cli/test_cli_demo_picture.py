"""The demo's picture moves, and without an animation it shows everything."""

import io
import re
from xml.etree import ElementTree as ET

from rich.console import Console

from anyplug.frontends.cli import demo_picture


def test_lines_come_one_after_another_and_are_all_there_where_nothing_moves():
    console = Console(record=True, width=40, file=io.StringIO())
    for text in ("first", "", "second [red]word[/]", "third"):
        console.print(text)
    moving = demo_picture.in_motion(console.export_svg(title="t"))
    ET.fromstring(moving)  # it is still a picture
    begins = [float(at) for at in re.findall(r"@keyframes line-\d+ \{ 0% \{ opacity: 0 \} ([\d.]+)%", moving)]
    assert len(begins) == 3
    assert begins == sorted(begins)
    assert begins[1] - begins[0] > begins[2] - begins[1]  # a pause where the text has one
    assert all(f'class="line line-{line} ' in moving for line in (0, 2, 3))
    assert "opacity" not in moving.partition("</style>")[2]
    assert "prefers-reduced-motion" in moving
