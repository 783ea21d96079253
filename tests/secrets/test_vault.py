"""Secrets: where they are kept, who gets them, and that nobody sees them afterwards."""

import base64
import html
import itertools
import json
import os
import stat
import sys
import textwrap
import threading
import urllib.parse

import anyio
import mcp_types as types
import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

import command_line
import mcp_clients
import plugin_folders
import zot_folders
from anyplug.catalog import discovery
from anyplug.formats.cyclop.format import RAW_SHOWN
from anyplug.formats.shared.contract import Folder
from anyplug.home.plugin_config import SHOWN_SECRET
from anyplug.home.settings import Home
from anyplug.model.errors import Unavailable, UsageError
from anyplug.model.types import Audio, Failure, File, Image, Plugin, Resource, ResourceUpdated, Result, Text
from anyplug.runtime.processes import toolchain
from anyplug.secrets import mask, vault
from anyplug.secrets.mask import Mask, Stream
from anyplug.secrets.redaction import MOST, Redactions
from anyplug.secrets.vault import Secrets, SecretsUnusable
from random_examples import at_most
from rows import each_row

SECRET = "s3cr3t/Pass+word é"
TOKEN = "tok-4f9c1e77b2"
VARIABLE = "SERVICE_TOKEN"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n"


def load(folder: str) -> Plugin:
    found = discovery.read(Folder(folder, folder))
    assert found is not None
    return found


@pytest.fixture
def plugin(cyclop):
    return load(cyclop("owner"))


@pytest.fixture
def secrets(home):
    return Secrets(Home(str(home)))


# What a mask hides

MARKED = "a&b<c>d\"e'f"
LONG = "".join(f"{number:02d}-token-" for number in range(20))


@each_row(
    "leak",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps(SECRET, ensure_ascii=False), ensure_ascii=False),
        json.dumps(SECRET, ensure_ascii=False).replace("/", "\\/"),
        urllib.parse.quote(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote(SECRET, safe="").lower().replace("pass", "Pass"),
        urllib.parse.quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
    ],
)
def test_a_secret_is_hidden_in_the_forms_in_which_it_leaks(leak):
    hidden = Mask([SECRET])
    assert hidden.text(f"<{leak}>").strip('<">\\') == SHOWN_SECRET
    assert hidden.data(f"<{leak}>".encode()).decode().strip('<">\\') == SHOWN_SECRET


@pytest.mark.parametrize("user", ["a", "ad", "ada", "ada.lovelace"])
def test_a_password_is_hidden_in_the_header_of_a_login(user):
    header = base64.b64encode(f"{user}:{TOKEN}".encode()).decode()
    hidden = Mask([TOKEN]).text(f"Authorization: Basic {header}")
    assert SHOWN_SECRET in hidden
    left = hidden.removeprefix("Authorization: Basic ").replace(SHOWN_SECRET, "").rstrip("=")
    assert TOKEN[:4].encode() not in base64.b64decode(left + "=" * (-len(left) % 4))


def test_a_secret_with_quotes_and_lines_is_hidden_in_json():
    secret = 'two "words"\nand \\ more'
    assert json.loads(Mask([secret]).text(json.dumps({"said": secret}))) == {"said": SHOWN_SECRET}


@pytest.mark.parametrize(
    "leak",
    [
        html.escape(MARKED),
        html.escape(MARKED, quote=False),
        html.escape(MARKED).replace("&#x27;", "&#39;"),
        html.escape(MARKED).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        json.dumps(MARKED)[1:-1].replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
    ],
)
def test_a_secret_is_hidden_as_pages_have_it(leak):
    assert Mask([MARKED]).text(f"({leak})") == f"({SHOWN_SECRET})"


@pytest.mark.parametrize(
    "leak",
    [
        base64.encodebytes(LONG.encode()).decode(),
        textwrap.fill(base64.b64encode(LONG.encode()).decode(), 64),
        textwrap.fill(LONG.encode().hex(), 60),
    ],
)
def test_a_long_secret_is_hidden_in_lines_of_the_usual_lengths(leak):
    left = Mask([LONG]).text(leak).replace(SHOWN_SECRET, "").replace("\n", "")
    assert len(left) < mask.SHORTEST_LINE


def test_the_password_of_an_address_is_hidden_by_itself():
    hidden = Mask(["postgres://ada:horse%40battery@db.example.org/x"])
    assert hidden.text("password 'horse@battery' refused, horse%40battery too") == (
        f"password '{SHOWN_SECRET}' refused, {SHOWN_SECRET} too"
    )
    assert hidden.text("postgres://ada:horse%40battery@db.example.org/x") == SHOWN_SECRET


def test_each_line_of_a_key_is_hidden():
    printed = "".join(f"    {line}\n" for line in PEM.splitlines())
    assert "MIIE" not in Mask([PEM]).text(printed)
    assert "AQEF" not in Mask([PEM]).text(printed)


def test_a_short_value_is_not_masked():
    assert Mask(["12345", " abcde\n"]).text("12345 abcde") == "12345 abcde"
    assert not Mask(["12345"])
    assert Mask(["123456"]).text("123456") == SHOWN_SECRET


def test_what_is_as_long_as_a_file_is_not_searched_for():
    assert not Mask(["x" * (mask.LONGEST + 1)])


def test_the_longest_of_several_secrets_is_hidden_whole():
    assert Mask(["secret", "secret-and-more"]).text("secret-and-more secret") == f"{SHOWN_SECRET} {SHOWN_SECRET}"


def test_a_value_is_searched_with_its_keys_and_numbers():
    value = {"a": [TOKEN, {TOKEN: 1}], "n": 271828, "f": 2718.28, "t": True, "none": None}
    assert Mask([TOKEN, "271828", "2718.28"]).value(value) == {
        "a": [SHOWN_SECRET, {SHOWN_SECRET: 1}],
        "n": SHOWN_SECRET,
        "f": SHOWN_SECRET,
        "t": True,
        "none": None,
    }


def test_what_is_nested_too_deeply_to_look_is_hidden_whole():
    value: list = [TOKEN]
    for _ in range(sys.getrecursionlimit()):
        value = [value]
    assert Mask([TOKEN]).value(value) == SHOWN_SECRET


def test_a_result_is_searched_except_for_names_paths_and_binary_data():
    data = base64.b64encode(TOKEN.encode()).decode()

    def saying(word):
        return Result(
            content=(
                Text(f"a {word}"),
                Image(f"image/{word}", data),
                Audio(f"audio/{word}", data),
                Resource(f"https://x/?k={word}", word, word, data, word, word),
                File(f"{word}.txt", f"text/{word}", f"/tmp/{TOKEN}.txt"),
            ),
            structured={"k": word},
            metadata={"stderr": word},
            is_error=True,
            error=Failure("crashed", f"it said {word}", f"not {word}"),
            tool=TOKEN,
        )

    assert Mask([TOKEN]).result(saying(TOKEN)) == saying(SHOWN_SECRET)


def test_an_error_is_searched():
    error = Unavailable(f"it said {TOKEN}", f"hint {TOKEN}", partial=TOKEN, stderr=TOKEN)
    Mask([TOKEN]).error(error)
    assert TOKEN not in repr((str(error), error.args, error.message, error.hint, error.partial, error.metadata))


@pytest.mark.claim("masked-however-escaped")
def test_a_schema_keeps_its_own_words_and_nothing_else():
    def having(word):
        of_it = {"type": "string", "default": word, "enum": [word], "description": word}
        return {"type": "object", "properties": {word: of_it, "x": {"pattern": word}}, "required": [word], word: word}

    assert Mask([TOKEN, "object", "required"]).schema(having(TOKEN)) == having(SHOWN_SECRET)


FEW_LETTERS = st.text("ab•", min_size=6, max_size=9)


@bounds(max_examples=at_most(400))
@given(
    secrets=st.lists(FEW_LETTERS, min_size=1, max_size=3),
    pieces=st.lists(st.one_of(st.integers(0, 2), st.text("ab•c", max_size=6)), max_size=12),
    cuts=st.lists(st.integers(0, 120), max_size=12),
)
def test_a_stream_is_masked_as_the_whole_would_be_however_it_is_cut(secrets, pieces, cuts):
    whole = "".join(secrets[piece % len(secrets)] if isinstance(piece, int) else piece for piece in pieces).encode()
    hidden = Mask(secrets)
    stream = Stream(lambda: hidden)
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    seen = b"".join(stream.feed(whole[begin:end]) for begin, end in itertools.pairwise(places))
    assert seen + stream.end() == hidden.data(whole)


@given(st.text(min_size=6, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_is_left_of_any_text(secret, before, after):
    whole = secret.strip()
    if len(whole) >= mask.SHORTEST and SHOWN_SECRET not in whole:
        assert whole not in Mask([secret]).text(before + secret + after).replace(SHOWN_SECRET, "\0")


def test_a_stream_holds_back_no_more_than_it_must():
    hidden = Mask([TOKEN])
    stream = Stream(lambda: hidden)
    assert stream.feed(b"a line\n") == b"a line\n"
    assert stream.feed(b"now: " + TOKEN[:5].encode()) == b"now: "
    assert stream.feed(b"!") == TOKEN[:5].encode() + b"!"


def test_a_stream_without_secrets_passes_as_it_is():
    stream = Stream(lambda: None)
    assert (stream.feed(b"tok-"), stream.end()) == (b"tok-", b"")


# Where they are kept


def test_what_is_stored_belongs_to_one_plugin(secrets, plugin, cyclop):
    other = load(cyclop("other"))
    assert secrets.set(plugin, VARIABLE, TOKEN) == "file"
    assert (secrets.names(plugin), secrets.values(plugin)) == ([VARIABLE], {VARIABLE: TOKEN})
    assert (secrets.get(plugin, VARIABLE), secrets.get(plugin, "ELSE")) == (TOKEN, None)
    assert (secrets.names(other), secrets.values(other), secrets.get(other, VARIABLE)) == ([], {}, None)


def test_only_the_user_can_read_the_file(secrets, plugin, home):
    os.chmod(home, 0o755)
    secrets.set(plugin, VARIABLE, TOKEN)
    assert stat.S_IMODE(os.stat(home / "secrets.json").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(home).st_mode) == 0o700
    assert [name for name in os.listdir(home) if "secret" in name] == ["secrets.json"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_or_write_is_not_used(secrets, plugin, home, mode):
    secrets.set(plugin, VARIABLE, TOKEN)
    os.chmod(home / "secrets.json", mode)
    with pytest.raises(SecretsUnusable, match="readable and writable by nobody else"):
        Secrets(Home(str(home))).values(plugin)


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "\xff", '{"a": {"b": 1}}'])
def test_a_file_that_cannot_be_read_is_left_as_it_is(secrets, plugin, home, text):
    plugin_folders.write(str(home / "secrets.json"), text.encode("latin-1"), 0o600)
    for use in (secrets.values, secrets.names, lambda who: secrets.set(who, VARIABLE, TOKEN)):
        with pytest.raises(SecretsUnusable):
            use(plugin)
    assert (home / "secrets.json").read_bytes() == text.encode("latin-1")


def test_a_link_in_the_place_of_the_file_is_not_followed(secrets, plugin, home, tmp_path):
    plugin_folders.write(str(tmp_path / "else.json"), "{}", 0o600)
    os.symlink(tmp_path / "else.json", home / "secrets.json")
    with pytest.raises(SecretsUnusable):
        secrets.values(plugin)


def test_what_another_process_stores_is_seen(secrets, plugin, home):
    other = Secrets(Home(str(home)))
    assert secrets.values(plugin) == {}
    other.set(plugin, VARIABLE, TOKEN)
    assert secrets.values(plugin) == {VARIABLE: TOKEN}
    other.set(plugin, VARIABLE, "another-one")
    assert secrets.values(plugin) == {VARIABLE: "another-one"}


def test_many_who_store_at_once_lose_nothing(home, plugin):
    def store(number: int) -> None:
        Secrets(Home(str(home))).set(plugin, f"KEY_{number}", f"value-{number}")

    threads = [threading.Thread(target=store, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Secrets(Home(str(home))).values(plugin)) == 16


def test_what_is_removed_is_gone(secrets, plugin, home):
    secrets.set(plugin, VARIABLE, TOKEN)
    secrets.set(plugin, "OTHER_KEY", TOKEN)
    assert secrets.remove(plugin, VARIABLE)
    assert not secrets.remove(plugin, VARIABLE)
    assert secrets.names(plugin) == ["OTHER_KEY"]
    secrets.forget(plugin.path)
    assert command_line.read_json(str(home / "secrets.json")) == {}
    secrets.forget(plugin.path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "x"),
        ("A=B", "x"),
        ("1A", "x"),
        ("A B", "x"),
        ("A", ""),
        ("A", "a\0b"),
        ("A", "x" * 70_000),
        ("A", "\udcff"),
    ],
)
def test_what_cannot_be_a_variable_is_refused(secrets, plugin, home, name, value):
    with pytest.raises(UsageError):
        secrets.set(plugin, name, value)
    assert not (home / "secrets.json").exists()


# In a keyring

BACKEND = """
import json, os, time
from keyring.backend import KeyringBackend

class Ring(KeyringBackend):
    priority = 1

    def _all(self):
        if os.path.exists(os.environ["RING"] + ".locked"):
            raise RuntimeError("it is locked")
        try:
            with open(os.environ["RING"]) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def _save(self, entries):
        with open(os.environ["RING"], "w") as file:
            json.dump(entries, file)

    def get_password(self, service, username):
        return self._all().get(f"{service}|{username}")

    def set_password(self, service, username, password):
        self._save({**self._all(), f"{service}|{username}": password})

    def delete_password(self, service, username):
        entries = self._all()
        del entries[f"{service}|{username}"]
        self._save(entries)
"""


@pytest.fixture
def ring(tmp_path, monkeypatch):
    """Let the keyring package use a backend of ours, as people choose one: by its own variable. Gives its file."""
    keyring = pytest.importorskip("keyring")
    plugin_folders.write(str(tmp_path / "backends" / "ring_of_tests.py"), BACKEND)
    monkeypatch.syspath_prepend(str(tmp_path / "backends"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "backends"), prepend=":")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "ring_of_tests.Ring")
    monkeypatch.setenv("RING", str(tmp_path / "ring.json"))
    keyring.core.init_backend()
    yield tmp_path / "ring.json"
    monkeypatch.undo()
    sys.modules.pop("ring_of_tests", None)


def test_a_keyring_keeps_the_value_and_the_file_only_the_name(ring, secrets, plugin, home):
    assert secrets.set(plugin, VARIABLE, TOKEN) == "keyring"
    assert command_line.read_json(str(home / "secrets.json")) == {plugin.path: {VARIABLE: None}}
    assert TOKEN in ring.read_text()
    assert Secrets(Home(str(home))).values(plugin) == {VARIABLE: TOKEN}
    assert secrets.places(plugin) == {VARIABLE: "keyring"}
    secrets.set(plugin, VARIABLE, "another-one")
    assert secrets.values(plugin) == {VARIABLE: "another-one"}
    secrets.forget(plugin.path)
    assert json.loads(ring.read_text()) == {}


def test_two_homes_do_not_share_what_is_in_a_keyring(ring, secrets, plugin, tmp_path):
    other = Secrets(Home(str(tmp_path / "second")))
    secrets.set(plugin, VARIABLE, TOKEN)
    other.set(plugin, VARIABLE, "another-one")
    assert secrets.remove(plugin, VARIABLE)
    assert other.values(plugin) == {VARIABLE: "another-one"}


def test_a_locked_keyring_is_no_reason_to_write_a_secret_to_a_file(ring, secrets, plugin, home):
    plugin_folders.write(f"{ring}.locked", "")
    with pytest.raises(SecretsUnusable, match="it is locked") as raised:
        secrets.set(plugin, VARIABLE, TOKEN)
    assert "unlock it" in raised.value.hint
    assert not (home / "secrets.json").exists()


def test_a_keyring_that_does_not_answer_is_given_up(ring, secrets, plugin, monkeypatch):
    import keyring

    monkeypatch.setattr(vault, "KEYRING_S", 0.05)
    over = threading.Event()
    ours = keyring.get_keyring()
    monkeypatch.setattr(type(ours), "set_password", lambda *_: over.wait(10))
    with pytest.raises(SecretsUnusable, match="did not answer"):
        secrets.set(plugin, VARIABLE, TOKEN)
    over.set()


def test_a_value_that_left_the_keyring_is_named(ring, secrets, plugin, home):
    secrets.set(plugin, VARIABLE, TOKEN)
    ring.unlink()
    with pytest.raises(SecretsUnusable, match=f"{VARIABLE}.*does not have it"):
        Secrets(Home(str(home))).values(plugin)
    assert Secrets(Home(str(home))).values(plugin, ["OTHER"]) == {}


def test_without_a_keyring_that_works_there_is_the_file(secrets, plugin, monkeypatch):
    keyring = pytest.importorskip("keyring")
    for backend in ("fail", "null"):
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", f"keyring.backends.{backend}.Keyring")
        keyring.core.init_backend()
        assert secrets.set(plugin, VARIABLE, TOKEN) == "file"


# Which values are secret


@pytest.fixture
def configured(stavrobot):
    keys = {
        "api_key": {"description": "", "default": "default-key"},
        "pin": {"description": "", "secret": True},
        "key_colour": {"description": "", "secret": False},
        "city": {"description": ""},
        "nested_secret": {"description": ""},
    }
    return load(stavrobot("kit", config=keys))


def masked(secrets, plugin, values, *texts, granted=()):
    plugin_folders.write(os.path.join(plugin.path, "config.json"), json.dumps(values))
    found = Redactions(secrets).of(plugin, granted)
    return [found.text(text) == SHOWN_SECRET for text in texts]


def test_what_the_manifest_calls_secret_is(secrets, configured):
    values = {
        "api_key": "a-b-c-d-e",
        "pin": 271828,
        "key_colour": "turquoise",
        "city": "Whitby Bay",
        "nested_secret": {"a": ["first-leaf", "second-leaf"]},
    }
    texts = ["a-b-c-d-e", "271828", "turquoise", "Whitby Bay", "first-leaf", "second-leaf"]
    assert masked(secrets, configured, values, *texts) == [True, True, False, False, True, True]


def test_a_default_is_no_secret(secrets, configured):
    assert masked(secrets, configured, {"api_key": "default-key"}, "default-key") == [False]


def test_what_tools_add_is_judged_by_whole_words(secrets, configured):
    values = {
        "refresh_token": "token-one",
        "accessToken": "token-two",
        "oauth": {"client-secret": "token-three", "scope": "read-all"},
        "keywords": ["weather"],
        "monkey": "baboon-1",
        "other": "ghp_0123456789abcdefghij",
    }
    texts = ["token-one", "token-two", "token-three", "read-all", "weather", "baboon-1", "ghp_0123456789abcdefghij"]
    assert masked(secrets, configured, values, *texts) == [True, True, True, False, False, False, True]


def test_of_variables_only_granted_ones_that_look_secret_are(secrets, configured, monkeypatch):
    for name, value in {"MY_TOKEN": "token-one", "OTHER_TOKEN": "token-two", "LANGUAGE": "klingon"}.items():
        monkeypatch.setenv(name, value)
    texts = ["token-one", "token-two", "klingon"]
    granted = ("network", "env:MY_TOKEN", "env:LANGUAGE")
    assert masked(secrets, configured, {}, *texts, granted=granted) == [True, False, False]


def test_a_value_that_was_replaced_stays_hidden(secrets, configured):
    path = os.path.join(configured.path, "config.json")
    plugin_folders.write(path, json.dumps({"pin": "first-pin"}))
    found = Redactions(secrets).of(configured)
    assert found.text("first-pin second-pin") == f"{SHOWN_SECRET} second-pin"
    plugin_folders.write(path, json.dumps({"pin": "second-pin"}))
    assert found.text("first-pin second-pin") == f"{SHOWN_SECRET} {SHOWN_SECRET}"
    plugin_folders.write(path, "{ half a file")
    os.unlink(path)
    assert found.text("first-pin second-pin") == f"{SHOWN_SECRET} {SHOWN_SECRET}"


def test_values_that_change_all_the_time_do_not_pile_up(secrets, configured):
    found = Redactions(secrets).of(configured)
    for number in range(MOST + 20):
        plugin_folders.write(os.path.join(configured.path, "config.json"), json.dumps({"pin": f"pin-number-{number}-"}))
        found.mask()
    assert found.text("pin-number-5-") == "pin-number-5-"
    assert found.text(f"pin-number-{MOST}-") == SHOWN_SECRET


def test_a_plugin_without_secrets_has_no_mask(secrets, plugin):
    assert Redactions(secrets).of(plugin, ("network",)).mask() is None


# Plugins that leak

LEAKS = plugin_folders.python(f"""
import base64, urllib.parse
token = os.environ["{VARIABLE}"]
how = given.get("input", given).get("text", "")
sys.stderr.write("with " + token[:5]); sys.stderr.flush()
sys.stderr.write(token[5:] + " done\\n"); sys.stderr.flush()
if how == "exit":
    sys.exit("no luck with " + token)
if how == "long":
    sys.stderr.write("x" * 478 + token)
    sys.exit(3)
if how == "flood":
    sys.stderr.write("x" * (1 << 21))
if how == "garbage":
    print("y" * {RAW_SHOWN - 9} + token + token)
    sys.exit()
said = {{"plain": token, "b64": base64.b64encode(token.encode()).decode(), "json": json.dumps(token),
        "url": urllib.parse.quote(token, safe="")}}.get(how, token)
print(json.dumps({{"result": said, "is_error": how == "error", token: [token]}}))
""")


async def leak(h, tool, **arguments):
    """Call a tool, and see to it that its secret is nowhere to be seen."""
    result = await h.call(tool, arguments)
    written = msgspec.json.encode(result).decode()
    assert TOKEN not in written
    assert TOKEN[:8] not in written
    assert base64.b64encode(TOKEN.encode()).decode() not in written
    assert SHOWN_SECRET in written, written
    return result


def everything(home) -> str:
    """All that was written down: logs, records, jobs."""
    found = ""
    for folder, _, names in os.walk(home):
        for name in names:
            path = os.path.join(folder, name)
            if name != "secrets.json" and not os.path.islink(path):  # the links lead to Node and uv
                with open(path, "rb") as file:
                    found += file.read().decode(errors="replace")
    return found


@pytest.fixture
def approved(host, root, home):
    """Make a host whose plugins are approved as they are, with a variable granted and stored."""

    def make(folder: str, *granted: str, store: bool = True):
        h = host(roots=(root,))
        plugin = load(folder)
        given = (*plugin.permissions, f"env:{VARIABLE}", *granted)
        h.catalog.approvals.approve(plugin, h.catalog.digest(plugin), given, always=True, follow=True, unconfined=False)
        if store:
            h.catalog.secrets.set(plugin, VARIABLE, TOKEN)
        return h

    return make


@pytest.mark.combinations
@pytest.mark.anyio
@pytest.mark.parametrize("how", ["plain", "b64", "json", "url", "error", "exit", "long", "garbage", "flood"])
@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
async def test_what_a_process_leaks_is_hidden(approved, format, how, request, home):
    async with approved(request.getfixturevalue(format)("leaky", LEAKS)) as h:
        result = await leak(h, "leaky" if format == "cyclop" else "leaky.act", text=how)
    assert result.is_error == (
        how in {"exit", "long", "garbage", "error"}
        and (format, how) != ("stavrobot", "error")
        and (format, how) != ("stavrobot", "garbage")
    )
    assert TOKEN not in everything(home)
    assert TOKEN[:8] not in everything(home)
    assert f"with {SHOWN_SECRET} done" in everything(home / "logs")


@pytest.mark.anyio
@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
async def test_what_a_process_said_before_it_was_too_slow_is_hidden(approved, format, request, settings):
    settings("[plugins.leaky]\ntimeout_s = 2.0\n")
    slow = f'#!/bin/sh\necho "${VARIABLE}"\nexec sleep 60\n'
    async with approved(request.getfixturevalue(format)("leaky", slow)) as h:
        result = await leak(h, "leaky" if format == "cyclop" else "leaky.act")
    assert result.error is not None
    assert result.error.code == "timed_out"


@pytest.mark.anyio
async def test_the_digest_in_the_record_is_that_of_what_the_caller_sees(approved, cyclop, home):
    from anyplug.audit.audit_log import digest_of_output

    async with approved(cyclop("leaky", LEAKS)) as h:
        result = await leak(h, "leaky", text="plain")
        record = h._audit.calls()[-1].record
    assert record.output == digest_of_output(result)


@pytest.mark.anyio
async def test_a_secret_that_the_caller_passes_reaches_the_tool(approved, cyclop):
    script = plugin_folders.python('print(json.dumps({"result": str(len(given["input"]["text"]))}))')
    async with approved(cyclop("counting", script)) as h:
        assert (await h.call("counting", {"text": TOKEN})).text == str(len(TOKEN))


@pytest.mark.anyio
@pytest.mark.parametrize("name", [VARIABLE, "WITHOUT_SUCH_A_NAME"])
async def test_a_stored_secret_is_given_only_if_it_was_granted(host, cyclop, root, name):
    script = plugin_folders.python(f'print(json.dumps({{"result": str("{name}" in os.environ)}}))')
    plugin = load(cyclop("asking", script))
    async with host(roots=(root,)) as h:
        h.catalog.secrets.set(plugin, name, TOKEN)
        digest = h.catalog.digest(plugin)
        said = []
        for granted in ((), (f"env:{name}",), ("env:OTHER",)):
            h.catalog.approvals.approve(plugin, digest, granted, always=True, follow=False, unconfined=False)
            said.append((await h.call("asking")).text)
    assert said == ["False", "True", "False"]


@pytest.mark.anyio
async def test_a_secret_of_one_plugin_is_not_given_to_another(approved, cyclop):
    script = plugin_folders.python(f'print(json.dumps({{"result": os.environ.get("{VARIABLE}", "none")}}))')
    cyclop("owner", script)
    other = cyclop("other", script)
    async with approved(other, store=False) as h:
        h.catalog.secrets.set(load(os.path.join(os.path.dirname(other), "owner")), VARIABLE, TOKEN)
        assert (await h.call("other")).text == "none"


@pytest.mark.anyio
async def test_what_is_stored_comes_before_the_environment_and_can_change(approved, cyclop, monkeypatch):
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    script = plugin_folders.python(f'print(json.dumps({{"result": os.environ["{VARIABLE}"][::-1]}}))')
    folder = cyclop("asking", script)
    async with approved(folder) as h:
        said = [(await h.call("asking")).text]
        h.catalog.secrets.set(load(folder), VARIABLE, "another-one")
        said.append((await h.call("asking")).text)
        h.catalog.secrets.remove(load(folder), VARIABLE)
        said.append((await h.call("asking")).text)
    assert [text[::-1] for text in said] == [TOKEN, "another-one", "from-the-environment"]


@pytest.mark.anyio
async def test_a_secret_that_cannot_be_read_stops_the_call(approved, cyclop, home):
    async with approved(cyclop("asking", LEAKS)) as h:
        os.chmod(home / "secrets.json", 0o644)
        result = await h.call("asking")
    assert result.error is not None
    assert (result.error.code, result.error.hint.split()[-3]) == ("bad_config", "`chmod")


ROTATES = plugin_folders.python("""
with open("../config.json") as file:
    config = json.load(file)
before, config["token"] = config["token"], "rotated-token-2"
with open("../config.json", "w") as file:
    json.dump(config, file)
print(json.dumps([before, config["token"]]))
""")


@pytest.mark.anyio
async def test_a_token_that_a_tool_renews_is_hidden_before_and_after(host, stavrobot):
    folder = stavrobot("renewing", ROTATES, config={"token": {"description": ""}})
    plugin_folders.write(os.path.join(folder, "config.json"), '{"token": "first-token-1"}', 0o600)
    async with host(folder) as h:
        for _ in range(2):
            result = await h.call("renewing.act")
            assert result.structured == [SHOWN_SECRET, SHOWN_SECRET]
            assert json.loads(result.text) == [SHOWN_SECRET, SHOWN_SECRET]
        assert h._secrecies.of(load(folder)).text("first-token-1") == SHOWN_SECRET
    assert command_line.read_json(os.path.join(folder, "config.json")) == {"token": "rotated-token-2"}


@pytest.mark.anyio
async def test_the_record_of_a_job_is_masked(approved, stavrobot, home):
    async with approved(stavrobot("leaky", LEAKS, tool={"async": True})) as h:
        await leak(h, "leaky.act", text="plain")
        job = h.jobs()[-1]
    assert SHOWN_SECRET in json.dumps(job.result, ensure_ascii=False)
    assert TOKEN not in everything(home)


@pytest.mark.anyio
async def test_a_chain_hands_on_what_everyone_sees(approved, cyclop, host, root):
    echo = plugin_folders.python('print(json.dumps({"result": given["input"]["text"]}))')
    cyclop("repeating", echo)
    async with approved(cyclop("leaky", LEAKS)) as h:
        repeating = load(os.path.join(root, "repeating"))
        h.catalog.approvals.approve(
            repeating, h.catalog.digest(repeating), (), always=True, follow=False, unconfined=False
        )
        steps = [
            {"tool": "leaky", "input": {"text": "plain"}},
            {"tool": "repeating", "input": {"text": "{{step0.content}}"}},
            {"tool": "leaky", "input": {"text": "exit"}},
        ]
        outcome = await h.run_chain(steps)
    assert outcome.steps[1].text == SHOWN_SECRET
    assert SHOWN_SECRET in (outcome.error or "")
    assert TOKEN not in repr(outcome)


@pytest.mark.anyio
async def test_what_an_init_script_prints_is_masked(host, stavrobot, root, monkeypatch):
    folder = stavrobot("setting-up", init={"entrypoint": "init.sh"}, config={"api_key": {"description": ""}})
    plugin_folders.write(os.path.join(folder, "init.sh"), "#!/bin/sh\ncat config.json\ncat config.json >&2\n", 0o755)
    plugin_folders.write(os.path.join(folder, "config.json"), json.dumps({"api_key": TOKEN}), 0o600)
    async with host(roots=(root,)) as h:
        said = await h.prepare(load(folder))
        plugin_folders.write(os.path.join(folder, "init.sh"), "#!/bin/sh\ncat config.json\nexit 1\n", 0o755)
        with pytest.raises(Exception, match=SHOWN_SECRET) as raised:
            await h.prepare(load(folder))
    assert TOKEN not in said + str(raised.value)
    assert SHOWN_SECRET in said


EXTENSION = f"""
token = os.environ["{VARIABLE}"]
def err(text):
    os.write(2, text.encode())
err("begun with " + token + "\\n")
hello()
properties = {{"text": {{"default": token}}, token: {{"pattern": token}}}}
tool("leaky", description="uses " + token, schema={{"type": "object", "properties": properties}})
command("tell", description="tells " + token)
emit("subscribe", intercept=["tool_call"])
emit("ready")
for frame in heard():
    if frame["type"] == "event_intercept":
        emit("event_intercept_response", id=frame["id"], reason="seen with " + token,
             block=frame["tool_args"].get("text") == "block")
    elif frame["type"] == "tool_call":
        how = frame["args"].get("text")
        err("with " + token[:4])
        if how == "malformed":
            emit("no frame " + token)
            time.sleep(0.05)
        err(token[4:] + " done\\n")
        emit("notify", level="warn", message="note " + token)
        if how == "crash":
            err("x" * 490 + token)
            os._exit(3)
        say(frame, "said " + token, structured_content={{"k": token}}, is_error=how == "error")
    elif frame["type"] == "command_invoked":
        emit("notify", message="ran with " + token)
        args = frame.get("args", "")
        if args == "panel":
            emit("command_response", id=frame["id"], action="open_panel",
                 open_panel={{"id": "p" + token, "title": token, "lines": ["a", token], "footer": token}})
            time.sleep(0.1)
            emit("panel_render", panel_id="p" + token, title=token, lines=[token], footer=token)
        elif args == "error":
            emit("command_response", id=frame["id"], error="failed with " + token)
        else:
            emit("command_response", id=frame["id"], action=args, **{{args: token}})
"""


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["plain", "error", "malformed", "crash", "block"])
async def test_what_an_extension_leaks_is_hidden(approved, zot, how, home):
    heard = []
    async with approved(zot("leaky", EXTENSION)) as h:
        h.listen(heard.append)
        await leak(h, "leaky", text=how)
        with anyio.fail_after(command_line.PATIENCE_S):
            while how != "block" and "done" not in (home / "logs" / "leaky.log").read_text():
                await anyio.sleep(0.01)
        record = h._audit.calls()[-1].record
        places = h.peers.places
        shown = repr(
            [(place.reason, place.offer_now, place.peer and place.peer.session.stderr_end) for place in places]
        )
        listed = repr([(entry.tools, entry.commands, entry.problems) for entry in h.plugins])
    assert TOKEN not in shown + listed + repr(heard) + repr(record) + everything(home)
    assert SHOWN_SECRET in listed
    assert SHOWN_SECRET in (record.reason if how == "block" else record.notes[0])
    if how != "block":
        assert SHOWN_SECRET in shown + repr(heard)
        assert SHOWN_SECRET in (home / "logs" / "leaky.log").read_text()


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["prompt", "insert", "display", "error", "panel"])
async def test_what_a_command_leaks_is_hidden(approved, zot, how, home):
    heard = []
    folder = zot("leaky", EXTENSION)
    async with approved(folder) as h:
        h.listen(heard.append)
        outcome = await h.run_command(f"/tell {how}")
        with anyio.fail_after(command_line.PATIENCE_S):
            while how == "panel" and h.panels.open[0].lines != (SHOWN_SECRET,):
                await anyio.sleep(0.01)
        panels = h.panels.open
        for panel in panels:
            h.panels.press(panel, "up")
            h.panels.close(panel)
        with anyio.fail_after(command_line.PATIENCE_S):
            while panels and not zot_folders.heard(folder, "panel_close"):
                await anyio.sleep(0.01)
        told = [*zot_folders.heard(folder, "panel_key"), *zot_folders.heard(folder, "panel_close")]
    assert [frame["panel_id"] for frame in told] == [f"p{TOKEN}"] * 2 * len(panels)
    assert TOKEN not in repr((outcome, heard, panels)) + everything(home)
    assert SHOWN_SECRET in repr(outcome)


CONFIDES = f"""
SECRET = os.environ["{VARIABLE}"]
GREETING["capabilities"] = {{"tools": {{}}, "prompts": {{}}}}
MADE = [{{"role": "user", "content": {{"type": "text", "text": SECRET}}}},
        {{"role": "user", "content": {{"type": "image", "data": "aGk=", "mimeType": "image/png"}}}}]
FIELDS = {{"kept": {{"type": "string", "title": SECRET, "default": SECRET}}, SECRET: {{"type": "string"}}}}
FORM = {{"type": "object", "properties": FIELDS, "required": [SECRET]}}
PAGE = {{"mode": "url", "message": "go", "elicitationId": "1"}}
ASKED = [
    ("notifications/progress", {{"progress": 1, "message": "x" * 3995 + SECRET}}),
    ("notifications/progress", {{"progress": 2, "message": "at " + SECRET}}),
    ("notifications/resources/updated", {{"uri": "x:" + SECRET}}),
    ("notifications/resources/updated", {{"uri": "x:y"}}),
    ("elicitation/create", {{"message": "x" * 3995 + SECRET, "requestedSchema": FORM}}),
    ("elicitation/create", {{**PAGE, "url": "https://x.example/" + SECRET}}),
    ("elicitation/create", {{**PAGE, "url": "https://x.example/"}}),
    ("sampling/createMessage", {{"maxTokens": 5, "systemPrompt": SECRET, "messages": MADE}}),
]
for m in messages(tools=(TOOL,)):
    if m.get("method") == "prompts/list":
        answer(m, prompts=[{{"name": "good"}}, {{"name": "bad"}}])
    elif m.get("method") == "prompts/get" and m["params"]["name"] == "good":
        answer(m, description=SECRET, messages=MADE)
    elif m.get("method") == "prompts/get":
        send(id=m["id"], error={{"code": -32000, "message": SECRET}})
    elif m.get("method") == "tools/call":
        waiting, left = m, [name for name, _ in ASKED if "/create" in name]
        for number, (method, params) in enumerate(ASKED):
            token = {{"progressToken": m["params"]["_meta"]["progressToken"]}}
            send(method=method, params={{**params, **token}}) if "notifications" in method else send(
                id=str(number), method=method, params=params)
    elif "method" not in m:
        left.pop()
        if not left:
            say(waiting)
    elif "id" in m:
        answer(m)
"""


@pytest.mark.claim("masked-however-escaped")
@pytest.mark.anyio
@pytest.mark.parametrize("is_fast", [True, False])
async def test_what_a_server_says_besides_results_is_masked(approved, root, is_fast):
    said, reports, heard = [], [], []

    async def elicit(context, params):
        said.append(params)
        fields = getattr(params, "requested_schema", {}).get("properties", {})
        return types.ElicitResult(action="accept", content=dict.fromkeys(fields, "once"))

    async def sample(context, params):
        said.append(params)
        return types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(text="x"))

    async def progress(done, total, message):
        reports.append(message)

    async with approved(mcp_clients.mcp_plugin(root, CONFIDES)) as h:
        h.listen(heard.append)
        asking = {"elicitation_callback": elicit, "sampling_callback": sample}
        async with mcp_clients.client(h, "older", is_fast=is_fast, **asking) as agent:
            await agent.call_tool("mcp_kit_act", {}, progress_callback=progress)
            prompt = await agent.get_prompt("mcp_kit_good", {})
            with pytest.raises(MCPError) as refused:
                await agent.get_prompt("mcp_kit_bad", {})
        outcome = await h.run_command("/mcp_kit_good")
    written = "\n".join(one.model_dump_json() for one in (*said, prompt)) + "".join(reports) + repr(outcome)
    assert TOKEN not in written
    assert TOKEN[:4] not in written  # where a text is cut
    assert [one.uri for one in heard if isinstance(one, ResourceUpdated)] == ["x:y"]
    assert sorted(report[:3] for report in reports) == [f"at {SHOWN_SECRET}"[:3], "xxx"]
    assert [f"at {SHOWN_SECRET}"] == [report for report in reports if report.startswith("at")]
    (asked,) = (one for one in said if isinstance(one, types.CreateMessageRequestParams))
    (page,) = (one for one in said if isinstance(one, types.ElicitRequestURLParams))
    # A server asks without waiting for answers, so the order in which people are asked is open.
    question, form = sorted(
        (one for one in said if isinstance(one, types.ElicitRequestFormParams)),
        key=lambda one: "kept" in one.requested_schema["properties"],
    )
    assert len(said) == 4
    assert list(form.requested_schema["properties"]) == ["kept"]
    assert form.requested_schema["properties"]["kept"]["default"] == SHOWN_SECRET
    assert page.url == "https://x.example/"
    assert SHOWN_SECRET in question.message
    assert asked.system_prompt == asked.messages[0].content.text == SHOWN_SECRET
    assert asked.messages[1].content.data == prompt.messages[1].content.data == "aGk="
    assert prompt.messages[0].content.text == prompt.description.split()[-1] == outcome.prompt == SHOWN_SECRET
    assert SHOWN_SECRET in str(refused.value)
    assert TOKEN not in str(refused.value)


@pytest.mark.anyio
async def test_what_an_extension_asks_other_tools_for_is_not_masked_on_the_way(approved, zot, cyclop, root):
    script = f"""
hello("call_tool")
tool("asking")
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        parent = frame
        emit("call_tool", id="1", name="counting", args={{"text": os.environ["{VARIABLE}"]}}, parent_id=frame["id"])
    elif frame["type"] == "tool_result":
        say(parent, frame["content"][0]["text"])
"""
    counting = load(
        cyclop("counting", plugin_folders.python('print(json.dumps({"result": str(len(given["input"]["text"]))}))'))
    )
    async with approved(zot("asking", script)) as h:
        h.catalog.approvals.approve(
            counting, h.catalog.digest(counting), (), always=True, follow=False, unconfined=False
        )
        assert (await h.call("asking")).text == str(len(TOKEN))


@pytest.mark.anyio
async def test_a_tool_named_like_a_secret_can_be_called_and_is_not_named_in_the_record(approved, zot):
    script = f"""
hello()
tool("use_" + os.environ["{VARIABLE}"])
emit("ready")
for frame in heard():
    if frame["type"] == "tool_call":
        say(frame, "done")
"""
    async with approved(zot("naming", script)) as h:
        result = await h.call(f"use_{TOKEN}")
        record = h._audit.calls()[-1].record
    assert (result.text, result.tool, record.tool) == ("done", f"use_{TOKEN}", f"use_{SHOWN_SECRET}")


@pytest.mark.anyio
async def test_an_extension_that_cannot_start_does_not_leak_why(approved, zot):
    script = f'sys.stderr.write("bad key " + os.environ["{VARIABLE}"]); sys.exit(1)\n'
    async with approved(zot("failing", script)) as h:
        reason = h.peers.places[0].reason
        problems = repr(h.problems)
    assert SHOWN_SECRET in reason
    assert TOKEN not in reason + problems


WORKBENCH = f"""
const token = process.env.{VARIABLE};
process.stderr.write("begun with " + token.slice(0, 4));
module.exports.register = (api) => {{
  process.stderr.write(token.slice(4) + " done\\n");
  api.registerTool({{
    name: "leak.say", description: "uses " + token,
    inputSchema: {{ type: "object", properties: {{ text: {{ type: "string", default: token }} }} }},
    run: async (input) => {{
      console.log("log", token);
      if (input.text === "throw") throw new Error("no luck with " + token);
      if (input.text === "exit") {{ process.stderr.write("x".repeat(490) + token); process.exit(3); }}
      return {{ content: "said " + token, metadata: {{ k: token }} }};
    }},
  }});
}};
"""


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["plain", "throw", "exit"])
async def test_what_a_workbench_plugin_leaks_is_hidden(approved, root, how, home):
    if toolchain.find_node() is None:
        pytest.skip("there is no Node")
    folder = os.path.join(root, "leaky")
    plugin_folders.write(os.path.join(folder, "index.js"), WORKBENCH)
    plugin_folders.write(os.path.join(folder, "package.json"), '{"type": "commonjs"}')
    async with approved(folder) as h:
        await leak(h, "leak.say", text=how)
        listed = repr([(entry.tools, entry.problems) for entry in h.plugins])
        reasons = repr([(place.reason, place.offer_now) for place in h.peers.places])
    assert TOKEN not in listed + reasons + everything(home)
    assert SHOWN_SECRET in listed
    assert f"begun with {SHOWN_SECRET} done" in everything(home / "logs")


@pytest.mark.anyio
async def test_a_workbench_plugin_that_cannot_load_does_not_leak_why(approved, root):
    if toolchain.find_node() is None:
        pytest.skip("there is no Node")
    folder = os.path.join(root, "leaky")
    throws = f'throw new Error("no luck with " + process.env.{VARIABLE}); // before it can register'
    plugin_folders.write(os.path.join(folder, "index.js"), throws)
    plugin_folders.write(os.path.join(folder, "package.json"), '{"type": "commonjs"}')
    async with approved(folder) as h:
        reason, problems = h.peers.places[0].reason, repr(h.problems)
    assert f"no luck with {SHOWN_SECRET}" in reason
    assert TOKEN not in reason + problems


# On the command line


@pytest.fixture
def installed(cyclop):
    """Install a plugin that prints its variable; give its name."""
    command_line.ok("install", cyclop("leaky", LEAKS), "--yes")
    return "leaky"


def test_a_secret_is_piped_in_listed_granted_used_and_forgotten(installed):
    assert command_line.ok("secret", installed).out == "No secrets are stored for leaky.\n"
    done = command_line.ok("secret", installed, VARIABLE, stdin=f"{TOKEN}\n")
    assert "with `anyplug grant leaky env:SERVICE_TOKEN`" in done.err
    command_line.ok("grant", installed, f"env:{VARIABLE}")
    listed = command_line.ok("secret", installed, "--json").json
    assert listed == [{"name": VARIABLE, "kept_in": "file", "granted": True}]
    called = command_line.run("call", installed, "text=plain", "--json", "--yes")
    assert called.json["text"] == SHOWN_SECRET
    assert TOKEN not in command_line.ok("logs", installed).out + called.out + done.out + done.err
    assert command_line.ok("secret", installed, "--unset", VARIABLE).out == "No secrets are stored for leaky.\n"
    command_line.fails(2, "secret", installed, "--unset", VARIABLE)


def test_a_secret_is_typed_without_echo(installed, home):
    with command_line.Terminal("secret", installed, VARIABLE) as terminal:
        terminal.sees(f"{VARIABLE} (not shown):")
        assert not terminal.echoes()
        terminal.types(TOKEN)
    assert terminal.code == 0
    assert TOKEN not in terminal.seen
    assert TOKEN in (home / "secrets.json").read_text()


def test_a_secret_of_several_lines_is_kept_as_it_is(installed, home):
    command_line.ok("secret", installed, "MY_KEY", stdin=PEM)
    (kept,) = command_line.read_json(str(home / "secrets.json")).values()
    assert kept == {"MY_KEY": PEM.removesuffix("\n")}


@pytest.mark.parametrize(
    ("word", "stdin"), [(f"{VARIABLE}={TOKEN}", "x"), (VARIABLE, ""), ("NOT A NAME", "x"), (VARIABLE, b"\xff\xfe")]
)
def test_what_is_no_secret_is_refused(installed, home, word, stdin):
    command_line.fails(2, "secret", installed, word, stdin=stdin)
    assert not (home / "secrets.json").exists()


def test_secrets_of_a_plugin_that_is_not_there_cannot_be_set():
    command_line.fails(4, "secret", "nobody", VARIABLE, stdin=TOKEN)


def test_a_secret_stays_when_its_plugin_is_removed_unless_all_is(installed, cyclop, home):
    command_line.ok("secret", installed, VARIABLE, stdin=TOKEN)
    said = command_line.ok("remove", installed, "--yes").err
    assert f"This stays (--purge removes it too):\n  /left/leaky/1\n  the secret {VARIABLE}" in said.replace(
        str(home), ""
    )
    command_line.ok("install", cyclop("leaky", LEAKS), "--yes")
    said = command_line.ok("remove", installed, "--yes", "--purge").err
    assert f"  the secret {VARIABLE}\n" in said
    assert command_line.read_json(str(home / "secrets.json")) == {}


def test_the_command_line_uses_the_keyring(ring, installed, home):
    done = command_line.ok("secret", installed, VARIABLE, "--json", stdin=TOKEN)
    assert done.json == [{"name": VARIABLE, "kept_in": "keyring", "granted": False}]
    command_line.ok("grant", installed, f"env:{VARIABLE}")
    assert command_line.run("call", installed, "text=plain", "--json", "--yes").json["text"] == SHOWN_SECRET
    command_line.ok("remove", installed, "--yes", "--purge")
    assert json.loads(ring.read_text()) == {}


def test_show_hides_secrets_in_what_an_extension_says(home):
    folder = zot_folders.extension(home / "plugins", "leaky", EXTENSION)
    command_line.ok(
        "approve",
        "leaky",
        "--yes",
        "--grant",
        f"env:{VARIABLE}",
        "--grant",
        "network",
        env=os.environ | {VARIABLE: TOKEN},
    )
    shown = command_line.ok("show", "leaky", "--json", env=os.environ | {VARIABLE: TOKEN})
    assert TOKEN not in shown.out
    assert shown.json["process"]["stderr_tail"] == f"begun with {SHOWN_SECRET}\n"
    assert os.path.isdir(folder)
