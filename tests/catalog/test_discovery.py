"""Finding plugins: where, in which order, whose they are; and what is wrong there is a problem and nothing more."""

import json
import os
import sys

import pytest

import plugin_folders
from anyplug.catalog import discovery
from anyplug.catalog.catalog import Catalog
from anyplug.catalog.snapshot import OURS
from anyplug.formats.registry import standard_roots
from anyplug.home.settings import find_home
from anyplug.model import tool_names
from anyplug.model.errors import ToolNotFound


@pytest.fixture
def load(root):
    """Load the test's root, and what is named besides."""
    catalogs = []

    def load_it(*explicit, roots=(root,)):
        catalogs.append(Catalog(find_home(), explicit=list(explicit), roots=list(roots)))
        return catalogs[-1].load()

    yield load_it
    for catalog in catalogs:
        catalog.close()


def states(snapshot):
    return {entry.name: entry.state for entry in snapshot.entries}


def the_problem(snapshot, name):
    (problem,) = snapshot.plugin(name).problems
    assert problem.hint
    return problem.message


@pytest.mark.requirement("CYC-03", "ZOT-03")
def test_the_roots_are_these_in_this_order(home, tmp_path, monkeypatch):
    work, user = tmp_path / "work", tmp_path / "user"
    expected = [
        work / ".anyplug" / "plugins",
        work / ".zot" / "extensions",
        work / "plugins",
        work / "data" / "tools",
        home / "plugins",
        user / ".local" / "state" / "zot" / "extensions",
        user / ".cyclopone" / "plugins",
    ]
    if sys.platform == "linux":
        assert standard_roots(find_home(), str(work)) == [str(path) for path in expected]
        monkeypatch.setenv("XDG_STATE_HOME", "/state")
        assert standard_roots(find_home(), str(work))[5] == "/state/zot/extensions"
    monkeypatch.setenv("ZOT_HOME", "/zot")
    assert standard_roots(find_home(), str(work))[5] == "/zot/extensions"


def test_the_home_is_where_it_was_said_to_be(monkeypatch, home):
    assert find_home("/given").path == "/given"
    assert find_home().path == str(home)
    monkeypatch.delenv("ANYPLUG_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    if sys.platform == "linux":
        assert find_home().path == "/data/anyplug"
        monkeypatch.delenv("XDG_DATA_HOME")
        assert find_home().path == os.path.expanduser("~/.local/share/anyplug")


@pytest.mark.requirement("ZOT-53")
def test_the_first_plugin_of_a_name_wins_and_the_others_are_listed_as_shadowed(load, tmp_path):
    paths = [plugin_folders.cyclop(tmp_path / where, description=where) for where in ("named", "first", "second")]
    snapshot = load(paths[0], roots=[tmp_path / "first", tmp_path / "second"])
    assert [entry.plugin.description for entry in snapshot.entries] == ["named", "first", "second"]
    assert [entry.state for entry in snapshot.entries] == ["approved", "shadowed", "shadowed"]
    assert [entry.shadowed_by for entry in snapshot.entries] == ["", paths[0], paths[0]]
    assert snapshot.plugin("hello").path == paths[0]
    assert snapshot.plugin(paths[2]).state == "shadowed"
    assert snapshot.tool("hello")[1].path == paths[0]


def test_within_a_root_the_order_is_the_names(load, root):
    for name in ("b", "a", "c"):
        plugin_folders.cyclop(root, name)
    assert [entry.name for entry in load().entries] == ["a", "b", "c"]


def test_the_same_folder_is_read_once(load, root):
    folder = plugin_folders.cyclop(root)
    os.symlink(folder, os.path.join(root, "again"))
    assert len(load(folder, roots=[root, root]).entries) == 1


def test_a_link_is_followed_and_shown_with_its_target(load, root, tmp_path):
    target = plugin_folders.cyclop(tmp_path / "elsewhere")
    os.symlink(target, os.path.join(root, "hello"))
    (entry,) = load().entries
    assert (entry.plugin.path, entry.plugin.found_at) == (target, os.path.join(root, "hello"))


def test_other_files_and_folders_are_ignored(load, root):
    plugin_folders.write(f"{root}/README.md", "")
    plugin_folders.write(f"{root}/src/main.py", "")
    plugin_folders.write(f"{root}/page/manifest.json", json.dumps({"name": "page", "entrypoint": "x"}))
    plugin_folders.cyclop(root, ".hidden")
    os.mkfifo(f"{root}/pipe")
    os.symlink("README.md", f"{root}/link")
    assert load().entries == ()


def test_a_folder_with_both_manifests_is_cyclop_ones(load, root):
    plugin_folders.stavrobot(root, "both")
    plugin_folders.cyclop(root, "both")
    assert load().plugin("both").format == "cyclop"


def test_roots_that_do_not_exist_are_no_problem(load):
    assert load(roots=["/no/such/root"]).entries == ()


# One broken plugin never hides another


def test_a_dangling_link_is_a_problem_of_its_own(load, root):
    plugin_folders.cyclop(root)
    os.symlink("/no/such/folder", f"{root}/gone")
    os.symlink("loop", f"{root}/loop")
    snapshot = load()
    assert states(snapshot) == {"gone": "broken", "hello": "new", "loop": "broken"}
    assert the_problem(snapshot, "gone") == f"{root}/gone is a broken link"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_a_problem_of_its_own(load, root):
    plugin_folders.cyclop(root)
    os.chmod(plugin_folders.cyclop(root, "closed"), 0)
    snapshot = load()
    assert states(snapshot) == {"closed": "broken", "hello": "new"}
    assert "is not readable" in the_problem(snapshot, "closed")


@pytest.mark.parametrize("name", ["plugin.json", "manifest.json"])
def test_a_manifest_of_100_megabytes_is_a_problem_and_is_not_read(name, load, root):
    plugin_folders.cyclop(root)
    plugin_folders.write(f"{root}/huge/{name}", "")
    os.truncate(f"{root}/huge/{name}", 100 << 20)
    snapshot = load()
    assert states(snapshot) == {"hello": "new", "huge": "broken"}
    assert "104,857,600 bytes" in the_problem(snapshot, "huge")


@pytest.mark.parametrize("name", ["plugin.json", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "dangling", "socket"])
def test_a_manifest_that_is_no_file_is_a_problem_and_holds_nobody_up(kind, name, load, root):
    plugin_folders.cyclop(root)
    path = f"{root}/odd/{name}"
    os.mkdir(f"{root}/odd")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    else:
        os.symlink({"device": "/dev/zero", "dangling": "nothing", "socket": "/dev/log"}[kind], path)
    snapshot = load()
    assert states(snapshot) == {"hello": "new", "odd": "broken"}
    assert the_problem(snapshot, "odd").startswith(f"Cannot read plugin manifest at {path}")


@pytest.mark.parametrize("format", ["cyclop", "stavrobot"])
@pytest.mark.parametrize("name", ["../../evil", "/evil", "..", "evil/../../x"])
def test_a_name_that_climbs_is_a_problem_and_makes_no_folder(format, name, load, root, home):
    folder = getattr(plugin_folders, format)(root, "climber")
    path = f"{folder}/{'plugin' if format == 'cyclop' else 'manifest'}.json"
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    plugin_folders.write(path, json.dumps(manifest | {"name": name}))
    snapshot = load(folder)
    assert states(snapshot) == {"climber": "broken"}
    assert os.listdir(home) == []


def test_a_folder_whose_name_is_no_text_is_a_problem(load, root):
    plugin_folders.cyclop(root)
    os.rename(plugin_folders.cyclop(root, "odd"), os.fsencode(root) + b"/\xff\xfe")
    snapshot = load()
    assert sorted(states(snapshot).values()) == ["broken", "new"]
    (broken,) = [entry for entry in snapshot.entries if entry.state == "broken"]
    assert "is not a UTF-8 name" in broken.problems[0].message
    json.dumps(broken.path)
    broken.path.encode()


def test_a_folder_that_the_person_named_and_that_is_no_plugin_is_a_problem(load, tmp_path):
    (tmp_path / "empty").mkdir()
    plugin_folders.write(str(tmp_path / "file"), "")
    snapshot = load(str(tmp_path / "empty"), str(tmp_path / "missing"), str(tmp_path / "file"), roots=[])
    assert states(snapshot) == {"empty": "broken", "missing": "broken", "file": "broken"}
    assert the_problem(snapshot, "empty").endswith("is not a plugin")


def test_every_kind_of_trouble_at_once_leaves_the_good_ones_alone(load, root):
    for number in range(5):
        plugin_folders.cyclop(root, f"good-{number}")
        plugin_folders.write(f"{root}/bad-{number}/plugin.json", os.urandom(100))
        plugin_folders.write(f"{root}/worse-{number}/manifest.json", "[" * 100_000)
    found = states(load())
    assert [state for name, state in found.items() if name.startswith("good")] == ["new"] * 5
    assert sorted(found.values()) == ["broken"] * 10 + ["new"] * 5


# Names of tools


@pytest.mark.requirement("CYC-15")
def test_of_two_tools_with_one_name_the_first_wins_and_the_other_is_a_problem(load, root):
    tool = {"name": "same", "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
    other = tool | {"name": "other"}
    plugin_folders.cyclop(root, "a", tools=[tool])
    plugin_folders.cyclop(root, "b", tools=[tool, other])
    snapshot = load()
    assert snapshot.tool("same")[1].name == "a"
    assert snapshot.tool("other")[1].name == "b"
    assert the_problem(snapshot, "b") == "Duplicate tool name 'same' from plugin 'b': the name belongs to plugin 'a'"


@pytest.mark.requirement("CYC-16", "ZOT-20")
@pytest.mark.parametrize(
    "name", ["click", "take_screenshot", "read", "write", "edit", "bash", "skill", "builtin.x", "mcp.server.tool"]
)
def test_reserved_names_are_not_given_to_plugins(name, load, root):
    plugin_folders.cyclop(
        root, tools=[{"name": name, "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}]
    )
    snapshot = load()
    assert snapshot.owners == {}
    assert "the name belongs to a " in the_problem(snapshot, "hello")


def test_a_stavrobot_tool_may_be_called_like_a_built_in(load, root):
    plugin_folders.stavrobot(root, tools={"click": plugin_folders.ANSWER})
    assert load().tool("bundle.click")


def test_model_names_fit_every_client_and_stay_the_same(load, root):
    tools = [
        {"name": name, "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
        for name in ("plain_name", "with.dot", "with_dot", "with dot", "ünï", "x" * 80, "x" * 81)
    ]
    plugin_folders.cyclop(root, tools=tools)
    plugin_folders.stavrobot(root, "my-bundle")
    first, second = load(), load()
    assert first.model_names == second.model_names
    assert len(set(first.model_names.values())) == len(first.owners) + len(OURS) == 8 + len(OURS)  # with the host's own
    for full, model_name in first.model_names.items():
        assert len(model_name) <= 48
        assert model_name.isascii()
        assert tool_names._NOT_ALLOWED.search(model_name) is None
        assert first.tool(model_name)[0].name == full
    assert first.model_names["plain_name"] == "plain_name"
    assert first.model_names["my-bundle.act"] == "my-bundle_act"
    assert first.model_names["with_dot"] == "with_dot"


def test_a_model_name_that_somebody_has_already_is_not_given_again(load, root):
    taken = {"a_b"}
    for _ in range(3):  # whoever knows how names are made may take those that would come next
        taken.add(tool_names.model_name("a.b", taken))
    tools = [
        {"name": name, "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
        for name in ("a.b", *sorted(taken))
    ]
    plugin_folders.cyclop(root, tools=tools)
    snapshot = load()
    assert len(snapshot.owners) == 5
    assert len(set(snapshot.model_names.values())) == len(snapshot.model_names)
    for full, model_name in snapshot.model_names.items():
        assert snapshot.tool(model_name)[0].name == full


def test_a_model_name_leads_to_its_tool_before_another_ones_short_name(load, root):
    plugin_folders.stavrobot(root, "a-first", tools={"see_it": plugin_folders.ANSWER})
    tool = {"name": "see.it", "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
    plugin_folders.cyclop(root, "b-second", tools=[tool])
    snapshot = load()
    assert snapshot.model_names["see.it"] == "see_it"
    assert snapshot.tool("see_it")[0].name == "see.it"
    assert snapshot.tool("a-first/see_it")[0].name == "a-first.see_it"


def test_no_plugin_has_the_name_by_which_agents_know_a_tool_of_ours(load, root):
    tool = {"name": "builtin_reload_plugins", "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
    plugin_folders.cyclop(root, tools=[tool])
    snapshot = load()
    assert snapshot.tool("builtin_reload_plugins")[0].name == "builtin.reload_plugins"
    assert "the name belongs to a tool of anyplug" in the_problem(snapshot, "hello")


def test_an_unknown_tool_is_answered_for_by_the_plugin_that_declares_it(load, root):
    plugin_folders.cyclop(root, "a-broken", entrypoint=...)
    plugin_folders.write(f"{root}/b-broken/plugin.json", '{"name": "b-broken", "tools": [{"name": "tide", }]}')
    plugin_folders.stavrobot(root, "c-broken")
    plugin_folders.write(f"{root}/c-broken/manifest.json", '{"name": "c-broken"}')
    plugin_folders.write(f"{root}/d-server/mcp.json", '{"mcpServers": {"sky": {"command": "true"}}}')
    plugin_folders.write(f"{root}/e-broken/mcp.json", '{"mcpServers": {"sea": {"command": "true"}')
    plugin_folders.stavrobot(root, "f-partly", tools={"good": plugin_folders.ANSWER, "bad": plugin_folders.ANSWER})
    plugin_folders.write(f"{root}/f-partly/bad/manifest.json", '{"name": "bad"}')
    tool = {"name": "mcp.mine", "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
    other = plugin_folders.cyclop(os.path.join(root, "elsewhere"), "g-named", tools=[tool, {**tool, "name": "mine"}])
    snapshot = load(other)
    for name, reason, hint in (
        ("a_broken", "plugin 'a-broken' is broken: ", 'add "entrypoint"'),
        ("tide", "plugin 'b-broken' is broken: plugin.json is not valid JSON", "`python3 -m json.tool "),
        ("c-broken.act", "plugin 'c-broken' is broken: ", 'add "description"'),
        ("act", "plugin 'c-broken' is broken: ", 'add "description"'),
        ("mcp.sky.look", "plugin 'd-server' is not approved yet", "then run `anyplug approve d-server`"),
        ("mcp.sea.look", "plugin 'e-broken' is broken: ", "`python3 -m json.tool "),
        ("f-partly.bad", "plugin 'f-partly': Skipping tool \"bad\"", ""),
        ("f-partly/bad", "plugin 'f-partly': Skipping tool \"bad\"", ""),
        ("mcp.mine", "plugin 'g-named': the tool 'mcp.mine' is left out", "rename the tool"),
        ("g-named", "that is a plugin", "did you mean mine?"),
        ("nobody's", "these plugins could not be loaded: e-broken; these plugins are not", "`anyplug list`"),
    ):
        with pytest.raises(ToolNotFound) as unknown:
            snapshot.tool(name)
        assert unknown.value.message.startswith(f"no tool is named '{name}': {reason}"), name
        assert hint in unknown.value.hint, name


def test_what_a_hint_tells_to_type_runs_nothing_of_a_folders_name(load, root):
    plugin_folders.write(f"{root}/x; touch pwned/extension.json", "{}")
    with pytest.raises(ToolNotFound) as unknown:
        load().tool("x; touch pwned/tool")
    assert "anyplug" not in unknown.value.hint or "'x; touch pwned'" in unknown.value.hint


@pytest.mark.parametrize("other", ["a-thief", "z-thief"])
def test_a_plugin_and_its_tool_always_lead_there_whatever_others_call_theirs(other, load, root):
    plugin_folders.cyclop(
        root, "hello", tools=[{"name": "say", "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}]
    )
    tools = [
        {"name": name, "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}
        for name in ("hello/say", "hello/else", f"{other}/mine")
    ]
    plugin_folders.cyclop(root, other, tools=tools)
    snapshot = load()
    assert snapshot.tool("hello/say")[0].plugin == "hello"
    assert [tool.name for tool in snapshot.plugin(other).tools] == ["hello/else", f"{other}/mine"]
    assert "'hello/say'" in the_problem(snapshot, other)
    assert "belongs to plugin 'hello'" in the_problem(snapshot, other)


def test_a_tool_with_an_unprintable_name_breaks_its_plugin_only(load, root):
    plugin_folders.cyclop(
        root, tools=[{"name": "a\nb", "description": "d", "input_schema": plugin_folders.NO_PARAMETERS}]
    )
    plugin_folders.cyclop(root, "other")
    assert states(load()) == {"hello": "broken", "other": "new"}


@pytest.mark.claim("names-of-ours")
@pytest.mark.parametrize("name", ["builtin", "resident", "host"])
def test_a_plugin_with_a_name_of_ours_is_refused(name, tmp_path):
    plugin_folders.cyclop(tmp_path / "cyclop", name)
    plugin_folders.write(f"{tmp_path}/mcp/{name}/mcp.json", '{"mcpServers": {"one": {"command": "true"}}}')
    roots = [str(tmp_path / "cyclop"), str(tmp_path / "mcp")]
    client = plugin_folders.write(f"{tmp_path}/client.json", '{"mcpServers": {"one": {"command": "true"}}}')
    for plugin in discovery.discover([], roots, {name: client}):
        assert plugin.is_broken
        assert f"the name '{name}' is reserved for the host" in [problem.message for problem in plugin.problems]
