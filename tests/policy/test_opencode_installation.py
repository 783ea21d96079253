"""Installing the OpenCode plugin: for a project, for all, never over a stranger's file; and which of several gates."""

import os
from pathlib import Path

import pytest
from opencode_driver import ALLOW, Project, before, needs_node

from anyplug.model.errors import ConfigError
from anyplug.policy.opencode import installation


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give OpenCode's folder for all projects."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "opencode"


@pytest.mark.requirement("CUP-01")
def test_a_project_gets_a_copy_that_knows_its_program_and_home(tmp_path: Path) -> None:
    changed = installation.install(str(tmp_path), home="/some/home")
    assert changed == installation.Changed(
        path=str(tmp_path / ".opencode" / "plugin" / "anyplug-policy.js"), change="added"
    )
    text = Path(changed.path).read_text()
    assert text.startswith(installation.MARKER)
    assert '"home": "/some/home"' in text
    assert os.stat(changed.path).st_mode & 0o777 == 0o644
    assert os.listdir(os.path.dirname(changed.path)) == ["anyplug-policy.js"]


@pytest.mark.requirement("CUP-02")
def test_the_copy_for_all_lies_in_opencodes_own_folder(config: Path) -> None:
    assert installation.install().path == str(config / "plugin" / "anyplug-policy.js")
    assert installation.remove() == [
        installation.Changed(path=str(config / "plugin" / "anyplug-policy.js"), change="removed")
    ]


def test_installing_again_changes_nothing(tmp_path: Path) -> None:
    installation.install(str(tmp_path))
    assert installation.install(str(tmp_path)).change == "unchanged"


def test_an_older_copy_is_replaced_where_it_lies_and_kept(tmp_path: Path) -> None:
    old = tmp_path / ".opencode" / "plugins" / "anyplug-policy.js"
    old.parent.mkdir(parents=True)
    old.write_text(installation.MARKER + "an older one\n")
    changed = installation.install(str(tmp_path))
    assert (changed.path, changed.change) == (str(old), "updated")
    assert Path(changed.kept).read_text() == installation.MARKER + "an older one\n"
    assert not changed.kept.endswith((".js", ".ts"))


@pytest.mark.parametrize("do", [installation.install, installation.remove])
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, do: object) -> None:
    theirs = tmp_path / ".opencode" / "plugin" / "anyplug-policy.js"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("export const Mine = async () => ({});\n")
    with pytest.raises(ConfigError, match="does not belong to anyplug") as caught:
        do(str(tmp_path))  # type: ignore[operator]
    assert caught.value.hint
    assert theirs.read_text() == "export const Mine = async () => ({});\n"


def test_removing_takes_every_copy_of_the_project_and_nothing_else(tmp_path: Path) -> None:
    installation.install(str(tmp_path))
    second = tmp_path / ".opencode" / "plugins" / "anyplug-policy.js"
    second.parent.mkdir()
    second.write_text(installation.render())
    (tmp_path / ".opencode" / "plugin" / "other.js").write_text("")
    assert [changed.change for changed in installation.remove(str(tmp_path))] == ["removed", "removed"]
    assert [changed.change for changed in installation.remove(str(tmp_path))] == ["absent"]
    assert os.listdir(tmp_path / ".opencode" / "plugin") == ["other.js"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / ".opencode").write_text("a file")
    with pytest.raises(ConfigError, match="cannot "):
        installation.install(str(tmp_path))


def test_copies_are_found_up_to_the_root_of_the_repository(tmp_path: Path, config: Path) -> None:
    root, below = tmp_path / "repository", tmp_path / "repository" / "src"
    below.mkdir(parents=True)
    (root / ".git").mkdir()
    paths = [installation.install(str(folder)).path for folder in (below, root)]
    installation.install(str(tmp_path))  # above the repository: OpenCode does not look there
    paths.append(installation.install().path)
    copies = installation.installed_copies(str(below))
    assert [(copy.path, copy.scope) for copy in copies] == list(
        zip(paths, ["project", "project", "global"], strict=True)
    )
    assert all(copy.is_current and copy.is_loaded and copy.version for copy in copies)
    assert installation.problems(str(below)) == []


def test_doctor_hears_of_copies_that_are_not_loaded_or_not_current(tmp_path: Path, config: Path) -> None:
    misplaced = tmp_path / ".opencode" / "plugins" / "cupcake" / "index.js"
    misplaced.parent.mkdir(parents=True)
    misplaced.write_text(installation.render())
    old = config / "plugin" / "anyplug-policy.js"
    old.parent.mkdir(parents=True)
    old.write_text(installation.render().replace("timeoutMs: 5000", "timeoutMs: 1"))
    first, second = installation.problems(str(tmp_path))
    assert (first.code, first.level) == ("opencode_policy_misplaced", "error")
    assert str(misplaced) in first.message
    assert (second.code, second.level) == ("opencode_policy_outdated", "warning")
    assert second.hint == "replace it with `anyplug connect opencode --policy --global`"


def test_a_copy_of_another_home_or_program_is_current_all_the_same(tmp_path: Path) -> None:
    installation.install(str(tmp_path), home="/elsewhere", program=["/usr/bin/anyplug"])
    [copy] = installation.installed_copies(str(tmp_path))
    assert copy.is_current


# --------------------------------------------------------------------------------------------------- which copy gates


def install_for_all(project: Project) -> str:
    """Never with the real program, which would start a host that stays."""
    return installation.install(program=[str(project.folder / "bin" / "anyplug")]).path


@pytest.mark.requirement("CUP-03")
@needs_node
def test_the_copy_for_all_stands_down_where_a_project_has_its_own(tmp_path: Path, config: Path) -> None:
    project = Project(tmp_path / "project")
    project.decides(ALLOW)
    for_all = install_for_all(project)
    for plugins in ([for_all, project.plugin], [project.plugin, for_all]):
        project.seen.unlink(missing_ok=True)
        driven = project.drive(before(), plugins=plugins)
        assert driven.threw == [None]
        assert driven.err == ""
        assert len(project.events) == 1


@needs_node
def test_the_copy_for_all_gates_if_the_projects_own_did_not_start(tmp_path: Path, config: Path) -> None:
    project = Project(tmp_path / "project")
    project.decides('print(json.dumps({"decision": "deny", "reason": "no"}))')
    driven = project.drive(before(), plugins=[install_for_all(project)])
    assert driven.threw == ["❌ Policy Violation\n\nno"]
    assert "The project's own copy did not start" in driven.err


@needs_node
def test_the_nearest_of_several_copies_gates(tmp_path: Path, config: Path) -> None:
    project = Project(tmp_path / "project")
    project.decides(ALLOW)
    below = project.folder / "src"
    nearest = installation.install(str(below)).path
    driven = project.drive(
        before(), plugins=[project.plugin, nearest], directory=str(below), worktree=str(project.folder)
    )
    assert driven.threw == [None]
    assert len(project.events) == 1
    assert ["tool" in hooks for hooks in driven.hooks] == [False, True]


@needs_node
def test_the_copy_for_all_leaves_projects_without_policies_alone(tmp_path: Path, config: Path) -> None:
    project = Project(tmp_path / "project")
    bare = tmp_path / "bare"
    bare.mkdir()
    for_all = install_for_all(project)
    assert project.drive(before(), plugins=[for_all], directory=str(bare)).hooks == [[]]
    (config.parent / "cupcake").mkdir()
    assert project.drive(plugins=[for_all], directory=str(bare)).hooks != [[]]
