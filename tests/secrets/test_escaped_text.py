"""A secret is hidden however its characters are written."""

import base64
import html
import json
import re
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyplug.model import untrusted_text
from anyplug.secrets import escaped_text
from anyplug.secrets.mask import Mask, Stream
from random_examples import at_most
from rows import each_row

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY&EXA+LEKEY=="
ODD = "C:\\new\\users\\%41&amp;é😀 \"q'"
SPELLINGS = (
    lambda char: char,
    lambda char: f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1],
    lambda char: f"\\u{ord(char):04X}" if ord(char) < 0x10000 else json.dumps(char)[1:-1].upper().replace("U", "u"),
    lambda char: f"\\u{{{ord(char):x}}}",
    lambda char: f"\\x{ord(char):02X}" if ord(char) < 0x80 else char,
    lambda char: f"\\{ord(char):03o}" if ord(char) < 0x80 else char,
    lambda char: f"\\{char}" if char in "/\"'&+=" else char,
    lambda char: f"&#{ord(char)};",
    lambda char: f"&#x{ord(char):X};",
    lambda char: f"&#x000{ord(char):x};",
    html.escape,
    lambda char: quote(char, safe=""),
    lambda char: "".join(f"%{byte:02x}" for byte in char.encode()),
)


@pytest.mark.claim("masked-however-escaped")
@pytest.mark.parametrize(
    "written",
    [
        SECRET.replace("/", "\\/"),
        SECRET.replace("&", "\\u0026"),
        SECRET.replace("+", "\\u002B").replace("&", "\\u0026"),
        SECRET.replace("&", "&amp;").replace("/", "&#x2F;").replace("=", "&#x3D;"),
        SECRET.replace("+", "&#43;"),
        SECRET.replace("/", "&sol;").replace("+", "&plus;").replace("=", "&equals;"),
        SECRET.replace("/", "%2f"),
        SECRET.replace("=", "%3D"),
        json.dumps(json.dumps(SECRET.replace("/", "\\/"))),
        quote(json.dumps(html.escape(SECRET))),
    ],
)
def test_what_usual_writers_escape_is_hidden(written):
    hidden = Mask([SECRET]).text(f"before {written} after")
    assert (hidden.startswith("before "), hidden.endswith(" after"), "•••" in hidden) == (True, True, True)
    assert "MDENG" not in hidden


@pytest.mark.claim("masked-however-escaped")
@pytest.mark.parametrize("between", ["\x1b[0m", "\x1b[01;31m\x1b[K", "\0", "\u200b", "\u00ad\u2060", "\U000e0041"])
def test_what_is_removed_before_a_text_is_shown_puts_no_secret_together(between):
    written = f"before {SECRET[:5]}{between}{SECRET[5:]} after"
    for text in (written, json.dumps(written)):
        assert SECRET not in untrusted_text.for_models(Mask([SECRET]).text(text))
        assert "•••" in Mask([SECRET]).text(text)
    data = written.encode()
    for cut in range(len(data)):
        stream = Stream(lambda: Mask([SECRET]))
        assert stream.feed(data[:cut]) + stream.feed(data[cut:]) + stream.end() == "before ••• after".encode()


def test_all_that_is_removed_before_a_text_is_shown_is_nothing_in_a_secret():
    planes = [*range(0x30000), *range(0xE0000, 0xE1000), *range(0xF0000, 0x110000, 251)]
    removed = [chr(point) for point in planes if untrusted_text.for_models(f"a{chr(point)}b") == "ab"]
    assert len(removed) > 10_000
    kept = [char for char in removed if escaped_text.said(f"a{char}b".encode(errors="surrogatepass")) != b"ab"]
    assert kept == []
    shown = "é☃あ語\u2028\u00a0😀\U0001f3fb\r\n\t"
    assert escaped_text.said(shown.encode()) == shown.encode()


LETTERS = "pässwörd-<7&x>-ключ"[:13]
DUMPED = LETTERS.encode().hex(" ").split()


@pytest.mark.claim("masked-however-escaped")
@pytest.mark.parametrize(
    "written",
    [
        "".join(f"\\x{byte:02x}" for byte in LETTERS.encode()),
        str(LETTERS.encode())[2:-1],
        "".join(f"\\{byte:03o}" for byte in LETTERS.encode("latin-1")),
        "".join(f"\\{byte:o}" for byte in LETTERS.encode()),
        "".join(f"\\{byte:o}" if byte < 0o100 else chr(byte) for byte in LETTERS.encode("latin-1")),
        *(LETTERS.replace("-", f"&{name};") for name in ("hyphen", "dash", "ndash", "minus")),
        "".join(f"%u{ord(char):04X}" for char in LETTERS),
        LETTERS.replace("&", "&AMP").replace("<", "&LT").replace(">", "&gt"),
        ":".join(DUMPED),
        "-".join(DUMPED).upper(),
        ", ".join(f"0x{byte}" for byte in DUMPED),
        "9f:" + ":".join(DUMPED) + ":a7:a7",
        " ".join(DUMPED),
    ],
)
def test_bytes_that_are_written_one_by_one_are_hidden(written):
    hidden = Mask([LETTERS]).text(f"before {written} after")
    assert (hidden.startswith("before "), hidden.endswith(" after"), "•••" in hidden) == (True, True, True)
    assert not {*DUMPED[2:9]} & {*re.split(r"\W+", hidden)}


@pytest.mark.claim("masked-however-escaped")
@settings(deadline=None, max_examples=at_most(200))
@given(
    st.sampled_from([SECRET, "pässwörd-ключ", "😀 with blanks 😀"]), st.lists(st.sampled_from(SPELLINGS), min_size=50)
)
def test_each_character_may_be_written_in_any_of_its_spellings(secret, spellings):
    written = "".join(spell(char) for char, spell in zip(secret, spellings, strict=False))
    assert Mask([secret]).text(f"<{written}>") == "<•••>"


@settings(deadline=None, max_examples=at_most(200))
@given(
    st.lists(st.sampled_from(SPELLINGS), min_size=50),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1),
)
def test_a_stream_is_hidden_as_a_text_is_however_it_is_cut(spellings, cuts):
    written = "".join(spell(char) for char, spell in zip(SECRET, spellings, strict=False))
    data, mask, at, seen = f"before\\n{written}\nafter & 100% \\".encode(), Mask([SECRET]), 0, b""
    stream = Stream(lambda: mask)
    while at < len(data):
        for cut in cuts:
            seen += stream.feed(data[at : at + cut])
            at += cut
    assert seen + stream.end() == "before\\n•••\nafter & 100% \\".encode()


def test_a_secret_that_has_escapes_itself_is_hidden():
    mask = Mask([ODD])
    for written in (ODD, json.dumps(ODD), json.dumps(ODD, ensure_ascii=False), html.escape(ODD), quote(ODD)):
        assert "users" not in mask.text(f"x {written} x"), written


@pytest.mark.claim("masked-however-escaped")
@each_row("width", [4, 8, 20, 60, 64, 76])
@each_row("before", ["", "u:", "user:", "Aladdin:"])
def test_base64_is_hidden_in_lines_of_any_length_and_at_any_offset(width, before):
    whole = base64.b64encode(f"{before}{SECRET}".encode()).decode()
    lines = "\n".join(whole[at : at + width] for at in range(0, len(whole), width))
    for written in (lines, json.dumps(lines), lines.replace("\n", "\r\n  ")):
        hidden = Mask([SECRET]).text(f"token: {written}")
        assert "•••" in hidden
        assert "".join(hidden.split()).count(whole[12:20]) == 0


@pytest.mark.claim("masked-however-escaped")
def test_base64_and_hexadecimal_are_hidden_in_each_encoding():
    secret = "süßes-Gehéimnis-7"
    for data in (secret.encode(), secret.encode("latin-1")):
        for written in (base64.b64encode(data).decode(), base64.b64encode(b"u:" + data).decode(), data.hex()):
            assert "•••" in Mask([secret]).text(f"token: {written}"), written


def test_text_that_only_looks_escaped_stays_as_it_is():
    mask = Mask([SECRET])
    for text in ("100% & more \\ &nosuch; &#x110000; %zz \\u12", "\\" * 99, "&" * 99, "\ud800 \\ud800"):
        assert mask.text(text) == text
