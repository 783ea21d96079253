"""Arguments for every builtin: mostly of the right type and of its own grammar, sometimes of none."""
# ruff: noqa: E501, RUF001 - samples are read by the line, and odd characters are what they are for

import base64
import functools
import json
import random
from collections.abc import Callable
from typing import Any

from anyplug.rego.values import numbers
from anyplug.rego.values.json import from_json
from anyplug.rego.values.values import FALSE, NULL, TRUE, Object, Set

Make = Callable[[random.Random], Any]

PIECES = (
    "", "a", "b", "ab", "abc", "A", "foo", "bar", "foo.bar", "a/b", "/a/b", "ä", "ß", "İ", "ı", "ſ", "\u212a", "ǆ", "ς", "Σ",
    "日本", "😀", "e\u0301", "\u0000", "\n", "\r\n", "\t x ", "\u00a0", "\u2028", "\ufeff", "\ufffd", "%", "a,b,c", "aaa", "\\",
    '"', "'", "`", "<&>", "0", "1", "-1", "1.5", "true", "null", "\x7f", "\x85", "~1", "~0", "$1", "${a}", "\x1f", "ﬁ", "ŉ",
    "\u1e9e", "\u03f4", "\u2126", "\U00010400", "\u0345", "-", "--", "b-c", " ", ";", ":", "&", "=", "+", "x=1", "\u200b",
)  # fmt: skip
NUMBERS = (
    "0", "1", "2", "3", "4", "5", "7", "8", "10", "12", "16", "17", "31", "59", "64", "100", "255", "256", "1000", "-1", "-2",
    "-3", "-10", "-0", "0.0", "-0.0", "1.0", "3.0", "-7.0", "0.1", "0.2", "0.5", "1.5", "-1.5", "2.5", "-2.5", "1e0", "1e1", "1e3",
    "1E3", "10e-1", "1e-1", "1e10", "1e15", "1e16", "1e19", "1e20", "1e21", "1e22", "1.0e2", "123456789.123456789",
    "3.14159265358979323846", "2.675", "1e-7", "1e-10", "5e-324", "1.7976931348623157e308", "1e308", "1e309", "1e400", "-1e400",
    "9007199254740991", "9007199254740992", "9007199254740993", "2147483647", "2147483648", "4294967296", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
    "123456789012345678901234567890", "-123456789012345678901234567890", "0.30000000000000004", "1.10", "100.50",
    "1700000000000000000", "1.7e18", "99999999999999999999.5",
)  # fmt: skip


def one(*choices: Any) -> Make:
    return lambda rng: rng.choice(choices)


def mix(*makes: Make) -> Make:
    return lambda rng: rng.choice(makes)(rng)


def number_of(text: str) -> Any:
    found = numbers.parse(text)
    # 1e0 has no form of its own here: OPA keeps the digits as they were written.
    return found if found.__class__ is int or set(str(found)) & set(".E") else int(found)


def number(rng: random.Random) -> Any:
    if rng.random() < 0.7:
        return number_of(rng.choice(NUMBERS))
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randrange(-20, 40)
    if kind == 1:
        return rng.getrandbits(rng.randrange(1, 140)) * rng.choice((1, -1))
    text = f"{rng.choice(('', '-'))}{rng.randrange(1000)}.{rng.randrange(100000)}"
    return number_of(text if kind == 2 else f"{text}e{rng.randrange(-30, 30)}")


def small(rng: random.Random) -> Any:
    return rng.randrange(-3, 12) if rng.random() < 0.9 else number(rng)


def text(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5))))


def letters(rng: random.Random) -> str:
    return "".join(rng.choice("ab.c") for _ in range(rng.randrange(6)))


def scalar(rng: random.Random) -> Any:
    return rng.choice((NULL, TRUE, FALSE, number(rng), number(rng), text(rng), text(rng), rng.choice("abc")))


def anything(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(9 if depth else 4)
    if kind < 4:
        return scalar(rng)
    items = [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind < 6:
        return tuple(items)
    if kind == 6:
        return Set(items)
    return Object({(rng.choice("abcd") if rng.random() < 0.8 else scalar(rng)): item for item in items})


def array(make: Make, most: int = 5) -> Make:
    return lambda rng: tuple(make(rng) for _ in range(rng.randrange(most)))


def set_of(make: Make, most: int = 5) -> Make:
    return lambda rng: Set(make(rng) for _ in range(rng.randrange(most)))


def listed(make: Make, most: int = 5) -> Make:
    return mix(array(make, most), set_of(make, most))


def objects(key: Make, value: Make, most: int = 5) -> Make:
    return lambda rng: Object({key(rng): value(rng) for _ in range(rng.randrange(most))})


def document(rng: random.Random) -> Any:
    made = anything(rng)
    return made if made.__class__ is Object else Object({"a": made, rng.choice("abcd"): anything(rng)})


def mutated(alphabet: str, *samples: str, rate: float = 0.5) -> Make:
    """Take a sample, and often change some of its characters."""

    def make(rng: random.Random) -> str:
        found = rng.choice(samples)
        while rng.random() < rate:
            at = rng.randrange(len(found) + 1)
            kind = rng.randrange(4)
            if kind == 0:
                found = found[:at] + rng.choice(alphabet) + found[at:]
            elif kind == 1:
                found = found[:at] + found[at + 1 :]
            elif kind == 2:
                found = found[:at] + rng.choice(alphabet) + found[at + 1 :]
            else:
                other = rng.choice(samples)
                found = found[:at] + other[rng.randrange(len(other) + 1) :]
        return found

    return make


cidr = mutated(
    "0123456789abcdef.:/%x ", "10.0.0.0/8", "10.1.2.3/32", "192.168.1.0/24", "0.0.0.0/0", "10.0.0.0/25", "10.0.0.128/25", "::/0",
    "2001:db8::/32", "2001:db8:1::/48", "fe80::1/64", "::ffff:10.0.0.0/104", "10.1.2.3", "::1", "2001:db8::1", "10.0.0.1/8",
    "172.16.0.0/12", "010.0.0.0/8", "255.255.255.255/31", "::ffff:1.2.3.4", "10.0.0/8", "1.2.3.4/33", "1.2.3.4/-1", "1.2.3.4/08",
    rate=0.25,
)  # fmt: skip
small_cidr = mutated(
    "0123456789abcdef.:/%x ", "10.0.0.0/30", "10.1.2.3/32", "192.168.1.0/28", "::1/126", "2001:db8::/124", "10.0.0.255/24",
    "255.255.255.252/30", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126", "10.0.0.1", "::ffff:10.0.0.0/126", rate=0.2,
)  # fmt: skip
semver = mutated(
    "0123456789.-+abvV ", "1.2.3", "0.0.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-rc.1+build.5", "10.20.30",
    "1.0.0+20130313144700", "v1.2.3", "01.2.3", "1.2", "1", "1.0.0-0.3.7", "1.0.0--", "1.0.0-alpha.10", "1.0.0-alpha.2",
    "99999999999999999999.0.0", "1.0.0-99999999999999999999", "9223372036854775807.0.0", "1.0.0-01", "1.0.0-a..b", "1.0.0+",
    rate=0.3,
)  # fmt: skip
units = mutated(
    '0123456789.eEkKmMgGtTpPiIbB "-+', "100", "100g", "10KI", "2t", "1.5M", "10m", "3Ki", "1e3", "1e3K", "1E", "5Ei", "2P", "2Pi",
    "1.5KiB", "200mb", "1GB", "1gib", "0.5k", "1_000", "", "m", "-5", "-5K", "+3M", "1..5", ".5", "5.", "1e", "1EB", "12345678901G",
    "0.001", "1n", "1u", "1µ", "1 K", '"10K"', "1e-3", "1e400", "10kb", "7Eib", "0x10", "inf", "nan", "1mi", rate=0.4,
)  # fmt: skip
duration = mutated(
    "0123456789.hmsundµw -+y", "1h", "1d", "1w", "1y", "1h15m30.918s", "-1.5h", "300ms", "2h45m", "1us", "1µs", "1μs", "1ns", "0", "+5s", "1d12h",
    ".5s", "5.s", "1.5d", "1w2d", "9223372036854775807ns", "9223372036854775808ns", "106752d", "1e3s", "", "s", "1", "-", "100000000h",
    rate=0.3,
)  # fmt: skip
stamp = mutated(
    "0123456789-:.TZ+ ", "2021-02-03T04:05:06Z", "1970-01-01T00:00:00Z", "2021-02-03T04:05:06.789Z", "2021-02-03T04:05:06+02:00",
    "2021-02-30T00:00:00Z", "2020-02-29T23:59:59.999999999-07:00", "2262-04-11T23:47:16.854775807Z", "2262-04-11T23:47:16.854775808Z",
    "1677-09-21T00:12:43.145224192Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2021-12-31T24:00:00Z", "2021-02-03T4:05:06Z",
    "2021-02-03t04:05:06z", "2021-02-03T04:05:60Z", "2021-02-03T04:05:06,5Z", "2021-02-03T04:05:06+24:00", "0000-01-01T00:00:00Z",
    "2021-02-03T04:05:06+0200", "2021-02-03 04:05:06Z", rate=0.25,
)  # fmt: skip
LAYOUTS = (
    ("2006-01-02", "2021-02-03"), ("2006-01-02 15:04:05", "2021-02-03 04:05:06"), ("RFC3339", "2021-02-03T04:05:06Z"),
    ("RFC1123", "Wed, 03 Feb 2021 04:05:06 UTC"), ("RFC1123Z", "Wed, 03 Feb 2021 04:05:06 +0100"),
    ("ANSIC", "Wed Feb  3 04:05:06 2021"), ("RFC822", "03 Feb 21 04:05 GMT"), ("RFC850", "Wednesday, 03-Feb-21 04:05:06 UTC"),
    ("RubyDate", "Wed Feb 03 04:05:06 +0200 2021"), ("UnixDate", "Wed Feb  3 04:05:06 CET 2021"),
    ("Jan 2, 2006 3:04pm", "Feb 3, 2021 7:54pm"), ("Jan _2 2006 03:04PM", "Feb  3 2021 07:54PM"), ("2006-002", "2021-034"),
    ("06/1/2", "21/2/3"), ("15:04:05.000", "04:05:06.789"), ("2006-01-02T15:04:05.999Z07:00", "2021-02-03T04:05:06.78+01:00"),
    ("20060102150405", "20210203040506"), ("Monday January 2 2006", "wednesday february 3 2021"), ("RFC3339Nano", "2021-02-03T04:05:06.5Z"),
    ("2006-01-02 15:04:05 -07", "2021-02-03 04:05:06 +02"), ("2006 Z07", "2021 Z"), ("15h04", "12h30"), ("", ""), ("2006-01-02", "2021-2-3"),
    ("DateTime", "2021-02-03 04:05:06"), ("DateOnly", "2021-02-03"), ("TimeOnly", "04:05:06"), ("Kitchen", "3:04PM"),
    ("Stamp", "Feb  3 04:05:06"), ("2006-01-02 __2", "2021-02-03  34"), ("2006-01-02 15:04:05 MST", "2021-02-03 04:05:06 PST"),
    ("2006-01-02 15:04:05 -0700 MST", "2021-02-03 04:05:06 +0100 CET"), ("2006-01-02 15:04:05 -0700 MST", "2021-02-03 04:05:06 +0100 UTC"), ("2006-01-02 3:04PM Z07:00 MST", "2021-02-03 4:05PM Z EST"),
    ("15:04 MST 2006", "04:05 GMT+3 2021"), ("15:04 MST", "04:05 WITA"), ("MST 2006", "ChST 2021"), ("MST 2006", "ABCDT 2021"), ("MST 2006", "-03 2021"), ("2006 MST", "2021 ABCD"),
    ("Z0700 2006", "+0130 2021"), ("2006-01-02 15:04:05,000", "2021-02-03 04:05:06,123"), ("5.00 2006", "7.25 2021"),
    ("02 Jan 2006 -07:00:00", "03 Feb 2021 +01:02:03"), ("2006-01-02 Z070000", "2021-02-03 +010203"),
)  # fmt: skip
LAYOUT_LETTERS = "0123456789 -:.,/TZapmPMJanFebMon_+"
layout = mutated(LAYOUT_LETTERS, *(each[0] for each in LAYOUTS), rate=0.25)
dated = mutated(LAYOUT_LETTERS, *(each[1] for each in LAYOUTS), rate=0.25)
zone = one(
    "UTC", "Local", "", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "CET", "EST5EDT", "Nowhere/At_All",
    "utc", "Pacific/Apia", "GMT", "Etc/GMT+5", "../etc/passwd", "Africa/Monrovia",
)  # fmt: skip


def parsed_time(rng: random.Random) -> tuple[Any, Any]:
    if rng.random() < 0.2:
        return layout(rng), dated(rng)
    form, said = rng.choice(LAYOUTS)
    if rng.random() < 0.3:
        form = mutated(LAYOUT_LETTERS, form, rate=0.5)(rng)
    if rng.random() < 0.4:
        said = mutated(LAYOUT_LETTERS, said, rate=0.5)(rng)
    return form, said


def instant(rng: random.Random) -> Any:
    kind = rng.randrange(8)
    if kind < 4:
        return rng.randrange(-(2**61), 2**62)
    if kind < 6:
        return rng.choice(
            (
                0,
                1,
                -1,
                10**9,
                951782400 * 10**9,
                1583020800 * 10**9 + 5,
                1616893200 * 10**9,
                1636264800 * 10**9,
                2**63 - 1,
                -(2**63),
            )
        )
    return number(rng)


def moment(rng: random.Random) -> Any:
    kind = rng.randrange(6)
    if kind < 3:
        return instant(rng)
    if kind < 5:
        return (instant(rng), zone(rng))
    return (instant(rng), zone(rng), layout(rng))


json_text = mutated(
    '{}[]",:0123456789.eE+-truefalsn \\u\n', '{"a": 1}', "[1, 2.0, 1e3]", '"x"', "null", "true", "{}", "[]", '{"a": {"b": [1, null, "c"]}}',
    '{"a": 1, "a": 2}', "1", "-0", "01", "1.", ".5", "NaN", "Infinity", '"\\u00e4"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\x"', " 1 ", "",
    '"\t"', "[1,]", "1 2", "1e400", "123456789012345678901234567890", "{'a': 1}", "\ufeff1", '"a\\/b"', "\u00a01", "nul", rate=0.3,
)  # fmt: skip
yaml_text = mutated(
    "ab: -\n[]{},'\"#&*!|>1.~y%@?`_+0xoe\t\r\x07\x7f\x85\u00a0\u2028\ufeff\u00e9\U0001f600", "a: 1", "a: [1, yes, 'x']", "- a\n- b", "a:\n  b: c\n  d:\n  - e", "a: |\n  x\n  y\n", "a: >\n  x\n  y\n",
    '"q"', "null", "~", "true", "1.5", "0x1F", "0o17", "017", "1_000", ".inf", ".nan", "2021-01-01", "a: &x 1\nb: *x", "---\na: 1\n...",
    "# c\na: 1 # d", "{a: 1, b: [2, 3]}", "? a\n: b", "a: b: c", "1: 2", "true: 1", "a: 1\na: 2", "", "- - 1\n  - 2", "<<: {a: 1}\nb: 2",
    "!!str 1", "a: 'it''s'", "yes", "no", "on", "Off", "n", "y", "1e3", "+1", "-1", "0b11", "1:30", 'a: "x\\ny"', "a:\tb", "key: |-\n  z", "a: [",
    "a: |\n  x\n   y\n\n  z\nb: 1\n", "- |-\n  x\n- >+\n  y\n  z\n\n", "a: >-\n  x\n  y\n\n  z\n", "a: b | c > d", "x1: 2\nisnull: 3\ny.5: z\n", "a:\n  b: |\n    if x:\n      y # z\n  c: d\n",
    "null: 1", "[1, 2]: 3", "x: !!binary aGk=", "%YAML 1.1\n---\na: 1", "a: 1\n---\nb: 2", rate=0.3,
)  # fmt: skip
yaml_word = mutated(
    "ab01:-#,.'\"[]{}&*!|>%@`?_+ \n\t~=<é日😀xobTZ", "hello world", "a: b", "it's", "x, y", "#no", "- a", "2021-01-01", "2021-1-2T3:4:5Z", "2021-01-02 03:04:05", "1.5", "10", "true",
    "Yes", "*.py", "https://a.b/c?d=e", "a\nb", "a\nb\n", "  a\n b\n\n", "\n", "", "{x}", "a #b", "user@host", "null", "~", "1e3", "0x1f", "0b11", "0o17", "017", "-0b1", "1_000",
    "100%", "C:\\x", '"q"', "a\tb", "1:30", "12:30:45.5", "$HOME", "---", "...", ".inf", "-.INF", ".5e3", "+1", "18446744073709551616", "rm -rf /tmp/x && echo done",
    "a sentence of many words that is longer than eighty characters, so that a writer might wrap it", "x1", "x10", "x2", "x02", "<<", "=", "- ", "a:", "a\n  b", "a \nb", "a\n\n\nb", rate=0.4,
)  # fmt: skip
yaml_name = mix(
    yaml_word, mutated("ab01029-_./A", "a", "b1", "a10", "a2", "x-1", "x_1", "1", "01", "B", "a1b", "a01b", rate=0.4)
)


def yaml_value(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(8 if depth else 5)
    if kind < 3:
        return yaml_word(rng)
    if kind < 5:
        return number(rng) if kind == 3 else scalar(rng)
    items = [yaml_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    return tuple(items) if kind == 5 else Object({yaml_name(rng): item for item in items})


url = mutated(
    "abz019:/?#[]@%&=+.-_~!$'()*,; \"<>\\^`{|}é\x7f", "https://user:pw@example.com:8080/a/b?x=1&y=2#frag", "http://example.com", "/a/b", "a/b", "",
    "mailto:a@b.c", "http://[::1]:80/", "http://[fe80::1%25en0]/", "//host/path", "?q", "#f", "http://a.b/%2Fc%20d", "http://a/%zz", ":foo", "1http:x",
    "a:b/c", "http://ex ample.com/", "http://host:port/", "http://a.b:/", "urn:isbn:123", "http://%41/", "http://a/é", "http://user@/x",
    "*", "http://a@b@c/", "http://a/b?c#d?e#f", "file:///etc/passwd", "http://[::1", "http://a?b", "http://a/;x=[1]", "HTTP://A/", "http://a/b%c3%a9",
    rate=0.3,
)  # fmt: skip
query = mutated(
    "ab=&%+;20é ", "a=1&b=2", "a=1&a=2", "a", "=x", "a=%20b", "a=%zz", "a;b", "", "&&", "a=b=c", "%61=%62", "a+b=c+d", "%", "%a", "a=%ff", rate=0.3
)  # fmt: skip
encoded = mutated(
    "abcAZ019+/=-_ \n", "YQ==", "YWI=", "YWJj", "YQ", "", "_-8=", "+/8=", "_-8", "aGVsbG8gd29ybGQ=", "YQ=", "Y", "w6Q=", "4pyT", "/w==", "YR==", "Y\nQ==", rate=0.3
)  # fmt: skip
hexed = mutated("0123456789abcdefgGxF ", "", "61", "6162", "C3A4", "c3", "6", "0x61", "ff", "6g", rate=0.3)
uuid = mutated(
    "0123456789abcdefg-{}:", "00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "000003e8-48b9-21ee-b200-325096b39f47",
    "urn:uuid:6ba7b811-9dad-11d1-80b4-00c04fd430c8", "{6ba7b812-9dad-11d1-80b4-00c04fd430c8}", "6ba7b8109dad11d180b400c04fd430c8",
    "ffffffff-ffff-ffff-ffff-ffffffffffff", "018f4e9e-7e3b-7cc0-a3b5-1f9c1a5b2c3d", "1ec9414c-232a-6b00-b3c8-9f6bdeced846",
    "URN:UUID:6BA7B811-9DAD-41D1-C0B4-00C04FD430C8", "", "x", "5a9dbd43-e3e8-21ee-8102-0242ac120002", "f47ac10b-58cc-4372-e567-0e02b2c3d479", rate=0.2,
)  # fmt: skip
REGEX_LETTERS = "ab01.*+?()[]{}|^$\\-,:<P>dwsbAzi "
regex = mutated(
    REGEX_LETTERS, "a", "a*", "a+b?", "^a.b$", "(a)(b)?", "(?i)A", "[a-z]+", "[^a]", "\\d+", "\\w\\b", "(?P<n>a)", "(?<n>a)", "a{2,3}", "a{2", "(?s).", "(?m)^a$", "", "a|b",
    "(", "[", "\\pL", "\\p{Greek}", "(?=a)", "(a)\\1", "\\Q.\\E", "[[:alpha:]]", "a*?", "(?:a)", "\\x{e4}", "\\z", "$", "^", "\\B", "a**", "x{1001}", ".", "ä", "[\\d\\-x]", rate=0.3,
)  # fmt: skip
subject = mutated(
    "ab01 .-,ä\nA",
    "",
    "a",
    "ab",
    "aab",
    "abab",
    "a.b",
    "baac",
    "AB",
    "a\nb",
    "ä",
    "foo bar",
    "a,b,c",
    "日本",
    "x1y22",
    rate=0.4,
)
template = mutated("$0123{}ab\\ ", "$1", "${1}", "${n}x", "$n", "$$", "", "a", "[$0]", "$1x", "${", "\\1", rate=0.3)
GLOB_LETTERS = "ab.*?[]{}!-,\\/:"
glob = mutated(
    GLOB_LETTERS, "*", "**", "a*", "*.b", "a?", "[ab]", "[!a]", "[a-c]", "{a,b}", "{a*,b?}", "a\\*", "*.*.c", "", "[", "{a", "a}", "a,b", "[a", "[]", "{}", "{a,{b,c}}", "**.b", "a**b",
    "[b-a]", "?", "a/*", "[!a-c]x", "{,a}", "ä*", "*{a,b}*", rate=0.3,
)  # fmt: skip
globbed = mutated("ab.c/:", "", "a", "ab", "a.b", "a.b.c", "a/b", "b", "ä", "c", "aXb", "*", rate=0.4)
simple = mutated(
    "abc.[]*+-\\09",
    "a",
    "a.b",
    "[a-c]*",
    "a+",
    "[0-9]+z",
    "b.b*",
    ".*",
    "",
    "[",
    "\\",
    "a[",
    "*",
    "ab*c",
    "[ab]c+",
    "[z-a]",
    rate=0.3,
)
braces = mutated("ab{}<>.:*|", "urn:{.*}:x", "a{b}c", "{[a-z]+}", "{", "}", "a", "{}", "{a{1}}", "a.b", rate=0.3)
delimiter = mix(one("{", "}", "<", ">", "", "{{", "a", "ä"), one("{", "}"))
VERBS = "dvsqxXtfFeEgGobcUTpOw%!z"


def form(rng: random.Random) -> str:
    out = []
    for _ in range(rng.randrange(1, 4)):
        out.append(rng.choice(("", "a", " ", "é", "%%", "100%")))
        flags = "".join(rng.choice("-+ 0-+ 0#") for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 1, 2))))
        width = rng.choice(("",) * 10 + ("5", "12", "*", "1"))
        precision = rng.choice(("",) * 12 + (".2", ".0", ".", ".10", ".*"))
        index = rng.choice(("",) * 20 + ("[1]", "[2]", "[9]", "[0]", "[x]", "["))
        out.append(f"%{flags}{width}{precision}{index}{rng.choice(VERBS)}")
    return "".join(out)


page = mutated(
    '{}.|$ab"() -1', "{{.a}}", "x{{.a.b}}y", "{{if .a}}t{{else}}f{{end}}", "{{range .a}}<{{.}}>{{end}}", "{{range $i, $e := .a}}{{$i}}={{$e}},{{end}}", "{{with .a}}{{.}}{{end}}",
    "{{len .a}}", "{{index .a 0}}", '{{index .a "b"}}', "{{eq .a .b}}", "{{ne .a 1}}", "{{lt .a 2}}", "{{and .a .b}}", "{{or .a .b}}", "{{not .a}}", '{{printf "%v-%s" .a .b}}',
    "{{print .a .b}}", "{{println .a}}", "{{.a | len}}", "{{- .a -}}", "{{/* c */}}x", "{{$x := .a}}{{$x}}", "{{.missing}}", "{{.a.missing}}", "plain", "{{", "}}", "{{end}}", '{{"q"}}', "{{1}}",
    "{{true}}", "{{nil}}", "{{html .a}}", "{{if eq .a 1}}x{{else if .b}}y{{end}}", "{{.}}", "{{range .a}}{{else}}none{{end}}", "{{.a.b.c}}", "{{gt 2 1}}", "{{ .a }}  {{- .b}}", "{{(.a)}}",
    "{{range .c}}{{.d}}{{end}}", "{{js .a}}", "{{urlquery .a}}", "{{slice .a 1}}", "{{1.5}}", "{{.a 1}}", '{{define "t"}}{{end}}', "{{break}}", rate=0.15,
)  # fmt: skip


def actions(rng: random.Random) -> str:
    """Make a template of whole words, most of which are not in place."""
    words = (
        ".a", ".b", ".c.d", "$x", "$", ".", "$.a", '"q"', "1", "0", "true", "eq", "ne", "lt", "and", "or", "not", "len", "index", "print", "printf", "println",
        "|", "(", ")", ":=", "$x :=", ",", "if", "else", "end", "range", "with", '"%v"', '"%s %q"', "nil", "-", ".missing", '"a"', '"b"', ".a.b", "`r`", "$i, $x :=", "=",
    )  # fmt: skip
    out = []
    opened = 0
    for _ in range(rng.randrange(1, 6)):
        kind = rng.randrange(6)
        inner = " ".join(rng.choice(words) for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))))
        if kind == 0:
            inner = f"{rng.choice(('if', 'range', 'with', 'range $i, $x :=', 'if $x :='))} {inner}"
            opened += 1
        elif kind == 1 and opened:
            inner = rng.choice(("end", "else", "end"))
            opened -= inner == "end"
        out.append(
            f"{rng.choice(('', ' ', 'x', ' y '))}{{{{{rng.choice(('', '', '- '))}{inner}{rng.choice(('', '', ' -'))}}}}}{rng.choice(('', ' z '))}"
        )
    return "".join(out) + "{{end}}" * (opened if rng.random() < 0.95 else 0)


filling = objects(
    one("a", "b", "c", "missing"), mix(number, text, anything, array(scalar), objects(one("b", "d"), scalar)), 4
)
pointer = mutated(
    "/ab01~-",
    "/a",
    "/a/b",
    "",
    "/",
    "a/b",
    "/a/0",
    "/b/-",
    "/a/1/b",
    "/c",
    "/a~1b",
    "/a~0",
    "//",
    "/a/",
    "a",
    "/a/00",
    "/-1",
    rate=0.2,
)
path = mix(pointer, pointer, array(mix(one("a", "b", "c", 0, 1, "0", "1", "-"), scalar), 4))


def patch(rng: random.Random) -> Any:
    made: dict[Any, Any] = {
        "op": rng.choice(("add", "add", "remove", "replace", "move", "copy", "test", "nothing", 1)), "path": path(rng), "value": anything(rng, 1),
        "from": path(rng),
    }  # fmt: skip
    for key in list(made):
        if rng.random() < 0.05:
            del made[key]
    return Object(made)


def patched(rng: random.Random) -> Any:
    return (
        from_json(
            rng.choice(
                ({"a": {"b": 1}, "b": [1, 2], "c": {"a": [1, {"b": 2}]}}, {"a": [1, 2, 3]}, {"a/b": 1, "": 2, "0": 3})
            )
        )
        if rng.random() < 0.6
        else anything(rng)
    )


node = one("a", "b", "c", "d", 1, NULL)
graph = objects(node, mix(listed(node), listed(node), listed(node), scalar), 6)


def schema(rng: random.Random, depth: int = 2) -> Any:
    made: dict[str, Any] = {}
    rate = {"properties": 0.3, "required": 0.1, "items": 0.2, "enum": 0.1, "const": 0.1, "additionalProperties": 0.1}
    if rng.random() < 0.8:
        made["type"] = rng.choice(
            (
                "object",
                "object",
                "array",
                "string",
                "number",
                "integer",
                "boolean",
                "null",
                rng.choice(("nothing", ("string", "number"), ("string", "null"), ("array", "array"), 1)),
            )
        )
    for key, make in (
        ("properties", lambda: Object({rng.choice("abc"): schema(rng, depth - 1) for _ in range(rng.randrange(3))}) if depth else Object()),
        ("required", lambda: array(one("a", "b"), 3)(rng)), ("items", lambda: schema(rng, depth - 1) if depth else TRUE),
        ("enum", lambda: array(mix(scalar, one("a", "b", 1, 2)))(rng)), ("const", lambda: mix(scalar, one("a", 1, TRUE, NULL))(rng)), ("additionalProperties", lambda: rng.choice((TRUE, FALSE, Object({"type": "string"})))),
        *((key, lambda: mix(small, number)(rng)) for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
        *((key, lambda: rng.choice((0, 1, 2, 3, rng.choice((1, -1, number(rng), "x"))))) for key in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")),
        ("uniqueItems", lambda: rng.choice((TRUE, FALSE, TRUE, 1))), ("title", lambda: rng.choice(("t", "t", 1))), ("pattern", lambda: regex(rng)),
        ("$schema", lambda: rng.choice(("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#", "x"))), ("$id", lambda: rng.choice(("https://a.b/c", "x", "%", 1))),
        ("anyOf", lambda: (schema(rng, depth - 1),) if depth else ()), ("examples", lambda: anything(rng)), ("format", lambda: "email"),
    ):  # fmt: skip
        if rng.random() < rate.get(key, 0.04):
            made[key] = make()
    return Object(made)


checked = mix(
    array(mix(scalar, small, one("a", "b", "ab"))),
    objects(one("a", "b", "c"), mix(one("a", "b", "aab", 1, 2, 3, TRUE), small, array(one("a", "b", 1), 4))),
    objects(one("a", "b", "c"), mix(scalar, array(scalar, 3), objects(one("a"), scalar, 2))),
    objects(one("a", "b"), anything, 3),
    json_text,
)

SECRET = "secret"
CLAIMS = ('{"sub":"a"}', '{"exp":1,"iss":"me"}', '{"aud":["x"],"nbf":99999999999}', "{}", "[]", '{"exp":"x"}', '{"iss":"me","aud":"x"}', "null", '{"exp":99999999999.5}', "not")  # fmt: skip


def token(rng: random.Random) -> str:
    import hmac

    def part(raw: str) -> str:
        return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")

    algorithm = rng.choice(("HS256", "HS384", "HS512", "HS256", "RS256", "none", "XX"))
    header = rng.choice((f'{{"alg":"{algorithm}","typ":"JWT"}}', f'{{"alg":"{algorithm}"}}', f'{{"typ":"JWT","alg":"{algorithm}","kid":"k1"}}', "{}", "[]", '{"alg":1}', f'{{"alg":"{algorithm}","cty":"JWT"}}', f'{{"alg":"{algorithm}","crit":["a"]}}', f'{{"alg":"{algorithm}","enc":"A128GCM"}}'))  # fmt: skip
    body = f"{part(header)}.{part(rng.choice(CLAIMS))}"
    size = {"HS384": "sha384", "HS512": "sha512"}.get(algorithm, "sha256")
    code = base64.urlsafe_b64encode(hmac.new(SECRET.encode(), body.encode(), size).digest()).decode().rstrip("=")
    made = f"{body}.{code}"
    return mutated("abcXYZ01.-_=", made, rate=0.6)(rng) if rng.random() < 0.4 else made


secret = one(SECRET, SECRET, SECRET, "other", "")
SIGNED = (*(f"{kind}{size}" for kind in ("rs", "ps", "es") for size in (256, 384, 512)), "eddsa")


@functools.cache
def key_pairs() -> list[tuple[Any, list[str]]]:
    """Make a key of each kind, with its public part as PEM and as JWK set."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    def unsigned(value: int, size: int) -> str:
        return base64.urlsafe_b64encode(value.to_bytes(size)).decode().rstrip("=")

    made: list[tuple[Any, list[str]]] = []
    for key in (
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate(),
    ):
        public: Any = key.public_key()
        pem = public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo).decode()
        jwk: dict[str, Any] = {"kid": "k1"}
        if isinstance(public, rsa.RSAPublicKey):
            found = public.public_numbers()
            jwk |= {"kty": "RSA", "n": unsigned(found.n, 256), "e": "AQAB"}
        elif isinstance(public, ec.EllipticCurvePublicKey):
            point = public.public_numbers()
            size = (public.key_size + 7) // 8
            jwk |= {
                "kty": "EC",
                "crv": f"P-{public.key_size}",
                "x": unsigned(point.x, size),
                "y": unsigned(point.y, size),
            }
        else:
            jwk |= {
                "kty": "OKP",
                "crv": "Ed25519",
                "x": base64.urlsafe_b64encode(public.public_bytes(form.Encoding.Raw, form.PublicFormat.Raw))
                .decode()
                .rstrip("="),
            }
        made.append(
            (key, [pem, json.dumps({"keys": [jwk]}), json.dumps({"keys": [{**jwk, "kid": "k2"}]}), json.dumps(jwk)])
        )
    return made


def signed(rng: random.Random) -> tuple[Any, ...]:
    """Sign a token with some key, and give it with that key or another."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

    key, public = rng.choice(key_pairs())
    digest: Any = rng.choice((hashes.SHA256, hashes.SHA384, hashes.SHA512))()
    name = rng.choice(
        (f"RS{digest.digest_size * 8}", f"PS{digest.digest_size * 8}", f"ES{digest.digest_size * 8}", "EdDSA")
    )
    header = json.dumps({"alg": name, **rng.choice(({}, {"kid": "k1"}, {"kid": "zz"}))})
    body = ".".join(base64.urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in (header, '{"sub":"a"}'))
    if isinstance(key, rsa.RSAPrivateKey):
        pad = padding.PKCS1v15() if rng.random() < 0.5 else padding.PSS(padding.MGF1(digest), digest.digest_size)
        signature = key.sign(body.encode(), pad, digest)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = utils.decode_dss_signature(key.sign(body.encode(), ec.ECDSA(digest)))
        size = (key.key_size + 7) // 8
        signature = r.to_bytes(size) + s.to_bytes(size)
    else:
        signature = key.sign(body.encode())
    made = f"{body}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
    if rng.random() < 0.15:
        made = mutated("abcXYZ01.-_=", made, rate=0.5)(rng)
    given = rng.choice(public) if rng.random() < 0.85 else rng.choice((*rng.choice(key_pairs())[1], "nothing", "{}"))
    return made, given


number_text = mutated("0123456789.eE+-_xinfNaN ", "1", "1.50", "-0", "+1", "0x1F", "1e3", "1_000", "inf", "NaN", "Infinity", ".5", "5.", "", " 1", "1 ", "007", "1e400", "1e-400", "0b1", "1E+5", "--1", "0x1p4", "١", rate=0.3)  # fmt: skip
options = objects(one("indent", "prefix", "pretty", "foo"), mix(one("\t", "  ", "", "> ", TRUE, FALSE), scalar), 4)
string_object = objects(text, mix(text, text, listed(text), scalar), 4)
keys = mix(listed(mix(one("a", "b", "c"), scalar)), objects(one("a", "b", "c"), scalar))
paths = listed(path)
cidrs = mix(
    cidr, listed(cidr), array(mix(cidr, array(mix(cidr, scalar), 3))), objects(one("a", "b"), mix(cidr, array(cidr, 3)))
)
words = mix(text, listed(text), listed(mix(text, scalar)))
prefixes = mix(letters, listed(letters))
numbers_list = listed(mix(number, number, number, number, number, scalar))
plain_numbers = listed(number)
many = mix(plain_numbers, numbers_list)
sets = set_of(mix(set_of(one(1, 2, 3, "a")), set_of(scalar)), 4)
some_set = mix(set_of(one(1, 2, 3, "a", "b")), set_of(scalar))
twice = mix(scalar, anything, one(1, "a"))


def pair(make: Make) -> Callable[[random.Random], tuple[Any, ...]]:
    """Give the same value twice, sometimes: comparisons must meet equals."""

    def made(rng: random.Random) -> tuple[Any, ...]:
        first = make(rng)
        return first, first if rng.random() < 0.2 else make(rng)

    return made


def each(*makes: Make) -> Callable[[random.Random], tuple[Any, ...]]:
    return lambda rng: tuple(make(rng) for make in makes)


COMPARED = pair(mix(number, text, anything))
MATHS = each(number, number)
ARGUMENTS: dict[str, Callable[[random.Random], tuple[Any, ...]]] = {
    **dict.fromkeys(("equal", "neq", "lt", "lte", "gt", "gte"), COMPARED), **dict.fromkeys(("plus", "mul", "div", "rem"), MATHS),
    "minus": mix(MATHS, each(some_set, some_set), each(number, some_set)), **dict.fromkeys(("and", "or"), each(some_set, some_set)),
    "internal.member_2": mix(each(scalar, anything), each(one("a", 1), mix(array(one("a", 1, "b")), objects(one("a"), one("a", 1))))),
    "internal.member_3": each(one("a", 0, 1, "b"), mix(one("a", 1), scalar), mix(anything, array(one("a", 1)), objects(one("a", "b"), one("a", 1)), set_of(one("a", 1)))),
    **dict.fromkeys(("round", "ceil", "floor", "abs", "bits.negate"), each(number)), **dict.fromkeys(("bits.and", "bits.or", "bits.xor"), MATHS),
    **dict.fromkeys(("bits.lsh", "bits.rsh"), each(number, mix(small, number))), "numbers.range": each(small, small), "numbers.range_step": each(small, small, small),
    "count": each(mix(anything, text)), **dict.fromkeys(("sum", "product"), each(many)), **dict.fromkeys(("max", "min", "sort"), each(mix(many, listed(anything)))),
    **dict.fromkeys(("intersection", "union"), each(sets)), "array.concat": each(array(scalar), array(scalar)), "array.slice": each(array(scalar), small, small),
    "array.reverse": each(array(scalar)), "array.flatten": each(array(mix(scalar, array(mix(scalar, array(scalar, 3)), 3)))), "to_number": each(mix(number_text, scalar)),
    "type_name": each(anything), **{f"is_{kind}": each(anything) for kind in ("null", "boolean", "number", "string", "array", "object", "set")},
    "concat": each(text, words), **dict.fromkeys(("contains", "startswith", "endswith", "indexof", "indexof_n", "strings.count", "trim_prefix", "trim_suffix"), mix(each(text, text), each(letters, letters))),
    **dict.fromkeys(("lower", "upper", "strings.reverse", "trim_space"), each(text)), "format_int": each(number, mix(one(2, 8, 10, 16, 36, 3), number)),
    "replace": mix(each(text, text, text), each(letters, letters, text)), "strings.replace_n": each(mix(objects(letters, text), objects(letters, mix(text, scalar)), objects(mix(text, scalar), text)), mix(letters, text)),
    **dict.fromkeys(("strings.any_prefix_match", "strings.any_suffix_match"), mix(each(prefixes, prefixes), each(words, words))), "split": mix(each(text, text), each(letters, letters)),
    "strings.split_n": mix(each(text, text, small), each(letters, one("a", ".", "", "b"), small)), "substring": each(text, small, small), **dict.fromkeys(("trim", "trim_left", "trim_right"), mix(each(text, text), each(letters, letters))),
    "sprintf": each(form, array(mix(number, text, anything, small), 4)), "strings.render_template": each(mix(page, actions), filling), "regex.match": each(regex, subject), "regex.is_valid": each(mix(regex, scalar)),
    "regex.find_n": each(regex, subject, small), "regex.find_all_string_submatch_n": each(regex, subject, small), "regex.split": each(regex, subject), "regex.replace": each(subject, regex, template),
    "regex.template_match": each(braces, mutated("urn:abx.", "urn:a:b:x", "abc", "a", "", rate=0.4), delimiter, delimiter), "regex.globs_match": each(simple, simple),
    "glob.match": each(glob, mix(one(NULL, (), (".",), ("/",), (".", "/")), array(mix(one(".", "/", "ab", ""), scalar), 3)), globbed), "glob.quote_meta": each(mix(text, glob)),
    "object.get": each(document, mix(one("a", "b", ("a", "b"), ("a", 0), ()), array(scalar, 3), scalar), scalar), "object.keys": each(document), "object.remove": each(document, keys), "object.filter": each(document, keys),
    "object.union": each(document, document), "object.union_n": each(array(mix(document, document, document, scalar), 4)), "object.subset": mix(pair(mix(document, document, array(one(1, 2, 3)), set_of(one(1, 2, 3)))), pair(anything), each(array(one(1, 2, 3)), set_of(one(1, 2, 3)))),
    "json.remove": each(mix(document, patched), paths), "json.filter": each(mix(document, patched), paths), "json.patch": each(patched, array(patch, 4)),
    **dict.fromkeys(("base64.encode", "base64url.encode", "base64url.encode_no_pad", "hex.encode", "urlquery.encode"), each(text)), **dict.fromkeys(("base64.decode", "base64url.decode"), each(encoded)), "base64.is_valid": each(mix(encoded, encoded, scalar)),
    "hex.decode": each(hexed), "urlquery.decode": each(mix(query, text)), "urlquery.encode_object": each(string_object), "urlquery.decode_object": each(query), "uri.parse": each(url), "uri.is_valid": each(mix(url, url, url, scalar)),
    "json.marshal": each(anything), "json.marshal_with_options": each(anything, options), "json.unmarshal": each(json_text), "json.is_valid": each(mix(json_text, json_text, scalar)), "yaml.marshal": each(mix(anything, yaml_value, yaml_value)), "yaml.unmarshal": each(yaml_text), "yaml.is_valid": each(mix(yaml_text, yaml_text, scalar)),
    "time.now_ns": each(), "time.parse_rfc3339_ns": each(stamp), "time.parse_ns": parsed_time, "time.parse_duration_ns": each(duration), "time.format": each(moment), **dict.fromkeys(("time.date", "time.clock", "time.weekday"), each(moment)),
    "time.add_date": each(instant, small, small, small), "time.diff": each(moment, moment), "net.cidr_contains": each(cidr, cidr), "net.cidr_is_valid": each(mix(cidr, cidr, cidr, scalar)), "net.cidr_intersects": each(cidr, cidr),
    "net.cidr_contains_matches": each(cidrs, cidrs), "net.cidr_expand": each(small_cidr), "net.cidr_merge": each(listed(mix(cidr, cidr, cidr, scalar))), "semver.is_valid": each(mix(semver, semver, scalar)), "semver.compare": pair(semver),
    "units.parse": each(units), "units.parse_bytes": each(units), "uuid.parse": each(mix(uuid, uuid, uuid, scalar)), "uuid.rfc4122": each(text), **dict.fromkeys(("crypto.md5", "crypto.sha1", "crypto.sha256"), each(text)),
    **dict.fromkeys(("crypto.hmac.md5", "crypto.hmac.sha1", "crypto.hmac.sha256", "crypto.hmac.sha512", "crypto.hmac.equal"), mix(each(text, text), pair(text))), "walk": each(anything), "graph.reachable": each(graph, listed(node)), "graph.reachable_paths": each(graph, listed(node)),
    "json.match_schema": each(checked, schema), "json.verify_schema": each(mix(schema, schema, json_text)), "rand.intn": each(text, small), "opa.runtime": each(), "trace": each(text),
    "io.jwt.decode": each(token), **{f"io.jwt.verify_{kind}": signed for kind in SIGNED}, **{f"io.jwt.verify_hs{size}": each(token, secret) for size in (256, 384, 512)},
}  # fmt: skip
