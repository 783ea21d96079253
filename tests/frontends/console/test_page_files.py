"""The page's files: small enough, free of other machines' names, in the colours that all faces share."""

import gzip
import json
import re
from pathlib import Path

from anyplug.frontends import design_tokens
from anyplug.frontends.console import static_files

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = Path(static_files.FOLDER)
LARGEST_FIRST_LOAD = 60_000  # bytes, compressed
LARGEST = 250_000


def compressed(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), mtime=0))


def test_the_page_is_small():
    index = (PAGE / "index.html").read_text()
    first = re.findall(r'(?:src|href)="/(assets/[^"]+)"', index)
    imported = {name for file in first for name in re.findall(r'from"\./([^"]+)"', (PAGE / file).read_text())}
    files = {PAGE / file for file in first} | {PAGE / "assets" / name for name in imported}
    assert len(files) > 1
    assert sum(map(compressed, files)) <= LARGEST_FIRST_LOAD
    assert sum(compressed(file) for file in PAGE.rglob("*.*") if file.suffix != ".gz") <= LARGEST


def test_the_page_names_no_other_machine_and_runs_nothing_inline():
    index = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=|https?://", index)
    for style in PAGE.rglob("*.css"):
        assert not re.search(r"https?://|@import|url\((?!data:)", style.read_text()), style


def test_the_lock_file_names_no_registry():
    locked = (ROOT / "web" / "package-lock.json").read_text()
    assert '"resolved"' not in locked
    assert all("integrity" in package for name, package in json.loads(locked)["packages"].items() if name)


def test_the_colours_and_signs_are_those_of_all_faces():
    style = (ROOT / "web" / "src" / "styles" / "tokens.css").read_text()
    for name, colour in design_tokens.LIGHT.items():
        assert f"--{name}: light-dark({colour}, {design_tokens.DARK[name]});" in style
    said = (ROOT / "web" / "src" / "base" / "say.ts").read_text()
    signs = [sign for sign in vars(design_tokens).values() if isinstance(sign, tuple)]
    assert len(signs) > 10
    for shape, word, tone in signs:
        assert f'["{shape}", "{word}", "{tone}"]' in said
