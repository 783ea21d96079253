"""A format owns its facts: each has all of them, no other module knows a format, and others can bring one."""

import os
import pathlib
import types

import pytest

import acme_distribution
import command_line
import plugin_folders
import test_layers
from anyplug.catalog.catalog import Catalog
from anyplug.formats import distributions, registry
from anyplug.formats.shared.contract import Folder, Format
from anyplug.home import digest
from anyplug.home.settings import find_home
from anyplug.model.types import Plugin

NAMES = [*Format.__annotations__, *(name for name in vars(Format) if not name.startswith("_"))]
ALL = (*registry.FORMATS, registry.BY_NAME["builtin"])
SIMPLE = {str: str, bool: bool, frozenset[str]: frozenset, tuple[str, ...]: tuple}


@pytest.fixture
def acme(acme_format):
    """Give the sixth format."""
    assert registry.bring([acme_distribution.NAME]) == []
    return registry.BY_NAME[acme_distribution.NAME]


def check_facts(format):
    assert distributions.missing(format) == []
    for name, kind in Format.__annotations__.items():
        if kind in SIMPLE:
            assert isinstance(getattr(format, name), SIMPLE[kind]), f"{name} of {format.NAME}"
    for name in (format.PEER, format.LINT):
        assert not name or callable(registry._imported(name))
    if format.NEW is not None:
        assert all(os.path.isdir(os.path.join(format.NEW.folder, f"new-{one}")) for one in format.NEW.languages)


def test_every_format_has_every_fact(acme):
    for format in (*ALL, acme):
        check_facts(format)
    assert len(NAMES) > 25
    assert {format.NAME for format in registry.PRECEDENCE} == {format.NAME for format in registry.FORMATS}


def test_a_format_that_lacks_a_fact_is_noticed():
    whole = vars(registry.FORMATS[0])
    for name in NAMES:
        partial = types.SimpleNamespace(**{key: value for key, value in whole.items() if key != name})
        assert distributions.missing(partial) == [name]


def test_the_defaults_are_all_that_a_format_has_but_its_own():
    from anyplug.formats.shared import defaults

    assert set(NAMES) - set(defaults.__all__) == {"NAME", "TITLE", "MANIFEST", "load", "request", "result"}
    assert set(defaults.__all__) <= set(NAMES)


def test_a_change_of_any_manifest_is_another_digest(acme, root):
    manifests = [(format, format.MANIFEST) for format in (*registry.FORMATS, acme)]
    manifests += [(registry.BY_NAME["stavrobot"], "act/manifest.json"), (registry.BY_NAME["workbench"], "package.json")]
    catalog = Catalog(find_home(), [], [])
    try:
        for format, manifest in manifests:
            folder = os.path.join(root, format.NAME, manifest.replace("/", "-"))
            plugin = Plugin(name=format.NAME, format=format.NAME, path=folder)
            found = set()
            for version in "1", "2":
                path = plugin_folders.write(os.path.join(folder, manifest), f'{{"version": {version}}}')
                found.add(catalog.digest(plugin).value)
            assert len(found) == 2, path
    finally:
        catalog.close()


EVERYWHERE = {
    "run": "#!/bin/sh\n",
    "lib/part.py": "PART = 1\n",
    "lib/manifest.json": "{}",
    "lib/extension.json": '{"enabled": false}',
    "data.txt": "data\n",
    "named.txt": "named\n",
    "config.json": '{"permissions": ["*"]}',
    "package.json": "{}",
    "uv.lock": "",
    "lib/node_modules/one/readme.txt": "one\n",
}
DIGESTS = {  # how each begins
    "cyclop": "185cb86d937a0ed1",
    "zot": "d74d585756518a8d",
    "stavrobot": "7a2f860917e1dae7",
    "mcp": "910ecc9be9d7d57c",
    "workbench": "3b79a00bd6ea1648",
    "acme": "a1f5febd17a90938",
}


@pytest.mark.parametrize("format", DIGESTS)
def test_a_digest_that_people_approved_stays_what_it_was(format, acme, root):
    manifest = {
        "cyclop": '{"name": "one"}',
        "zot": '{"name": "one", "exec": "./run", "enabled": true}',
        "stavrobot": '{"name": "one"}',
        "mcp": '{"mcpServers": {"one": {"command": "./run", "args": ["named.txt"]}}}',
        "workbench": "exports.register = () => {};\n",
        "acme": '{"description": "One.", "command": "run"}',
    }[format]
    folder = os.path.join(root, "one")
    for name, text in {**EVERYWHERE, registry.BY_NAME[format].MANIFEST: manifest}.items():
        plugin_folders.write(os.path.join(folder, name), text, 0o755 if name == "run" else 0o644)
    catalog = Catalog(find_home(), [], [])
    try:
        plugin = registry.load(Folder(folder, folder), [acme_distribution.NAME])
        assert plugin.format == format
        assert catalog.digest(plugin).value[:16] == DIGESTS[format]
    finally:
        catalog.close()


def test_the_digest_knows_the_manifests_of_our_formats():
    named = digest.MANIFESTS | {"index.js"}  # which is code
    assert {format.MANIFEST for format in registry.FORMATS} <= named
    assert registry.BY_NAME["zot"].MANIFEST == digest.SWITCHED


# What is about the protocol itself: signing in to a server, snippets that name servers, and what servers offer besides
# tools, which agents are offered as servers said it.
ABOUT_THE_PROTOCOL = {
    ("frontends.cli.login", "http_client"),
    ("frontends.cli.login", "sign_in"),
    ("frontends.mcp.handlers", "services"),
    ("manage.bundles.foreign_bundle", "config_file"),
    ("manage.installer", "config_variables"),
    ("manage.pasted_servers", "config_file"),
    ("manage.pasted_servers", "unpinned_commands"),
}


@pytest.mark.xdist_group("source")  # which has parsed them
def test_only_the_registry_knows_single_formats():
    formats = {format.NAME for format in ALL}
    found = set()
    for module in set(test_layers.FILES) - test_layers.EXEMPT:
        if module.startswith("anyplug.formats"):
            continue
        for name, _ in test_layers.imports(module):
            format = name.removeprefix("anyplug.formats.").partition(".")[0]
            if format in formats and name.startswith("anyplug.formats."):
                found.add(f"{module} imports {name}")
    assert found == {f"anyplug.{user} imports anyplug.formats.mcp.{name}" for user, name in ABOUT_THE_PROTOCOL}


def test_a_format_of_another_package_is_off_unless_the_person_names_it(acme_format, settings):
    plugin_folders.acme(".acme", "greet")
    assert command_line.ok("list", "--json").json == []
    settings(acme_distribution.SETTINGS)
    (found,) = command_line.ok("list", "--json").json
    assert (found["name"], found["format"], found["state"]) == ("greet", "acme", "new")


def test_a_plugin_of_another_packages_format_is_checked_installed_approved_and_called(acme_format, settings):
    settings(acme_distribution.SETTINGS)
    source = plugin_folders.acme("source", "greet", plugin_folders.python("print('hello', given['name'])"))
    assert "Acme plugin with 1 tool" in command_line.ok("check", source).out
    command_line.ok("install", source, "--yes")
    assert "Acme" in command_line.ok("list").out
    assert command_line.ok("call", "greet", "name=Ada").out.strip() == "hello Ada"
    installed = os.path.join(os.environ["ANYPLUG_HOME"], "plugins", "greet")
    plugin_folders.write(os.path.join(installed, "acme.json"), '{"description": "Another.", "command": "run"}')
    assert "changed" in command_line.fails(3, "call", "greet").err


BROKEN = {
    "missing": ("", "", "the format 'acme' is not installed"),
    "import": ("acme = acme_broken\n", "import no_such_module", "cannot be imported: ModuleNotFoundError"),
    "facts": ("acme = acme_broken\n", "NAME = 'acme'", "it lacks TITLE, MANIFEST"),
    "name": (
        "acme = acme_broken\n",
        pathlib.Path(acme_distribution.FOLDER, "acme_format.py").read_text().replace('"acme"', '"other"'),
        "its NAME is 'other'",
    ),
    "two": ("acme = acme_broken\n\n", "", "there are several formats 'acme'"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_format_that_cannot_be_used_is_a_warning_with_the_cure_and_the_others_go_on(
    how, cyclop, root, settings, tmp_path, monkeypatch
):
    entry_points, module, said = BROKEN[how]
    folder = str(tmp_path / "site")
    info = os.path.join(folder, "acme_broken-1.0.dist-info")
    plugin_folders.write(os.path.join(info, "METADATA"), "Metadata-Version: 2.1\nName: acme-broken\nVersion: 1.0\n")
    plugin_folders.write(os.path.join(info, "entry_points.txt"), f"[anyplug.formats]\n{entry_points}")
    plugin_folders.write(os.path.join(folder, "acme_broken.py"), module)
    acme_distribution.install(monkeypatch, folder)
    if how == "two":
        acme_distribution.install(monkeypatch)
    settings(acme_distribution.SETTINGS)
    done = command_line.ok("--plugin", cyclop("fine"), "list", "--json")
    assert [plugin["name"] for plugin in done.json] == ["fine"]
    assert done.err.count("warning: ") == 1
    assert said in done.err
    assert "or remove 'acme' from `formats` in settings.toml" in done.err
    assert command_line.ok("--plugin", os.path.join(root, "fine"), "call", "fine").out.strip() == "done"


def test_a_format_that_fails_to_read_a_folder_is_a_problem_of_that_plugin_only(acme, settings, root, monkeypatch):
    settings(acme_distribution.SETTINGS)
    folders = [plugin_folders.acme(root, "greet"), plugin_folders.cyclop(root, "fine")]

    def fail(folder):
        raise KeyError("oops")

    monkeypatch.setattr(acme, "load", fail)
    catalog = Catalog(find_home(), folders, [])
    try:
        greet, fine = catalog.load().entries
    finally:
        catalog.close()
    assert (greet.state, fine.state) == ("broken", "approved")
    assert "the format 'acme' failed to read" in greet.problems[0].message


def test_the_how_to_shows_the_format_that_is_tested_here():
    page = pathlib.Path(__file__).parent.parent.parent / "docs" / "how-to" / "add-a-format.md"
    code = pathlib.Path(acme_distribution.FOLDER, "acme_format.py").read_text()
    assert f"```python\n{code}```" in page.read_text()
