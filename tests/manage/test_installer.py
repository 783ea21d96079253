"""Installing, updating and removing, with real folders and real git repositories; nothing of a plugin runs here."""

import functools
import json
import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

import command_line
import plugin_folders
import zot_folders
from anyplug.audit.audit_log import Audit, Record
from anyplug.catalog.catalog import Catalog
from anyplug.home import untrusted_files
from anyplug.home.settings import find_home
from anyplug.manage import carry_over
from anyplug.manage.installer import Installer
from anyplug.manage.plugin_sources import Source
from anyplug.model.errors import InstallError, StoreError

NAMELESS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder, *words):
    """Run git as somebody, whatever the machine's configuration."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main", "-c",
           "commit.gpgsign=false"]  # fmt: skip
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], env=os.environ | NAMELESS, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder, message="more"):
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path):
    """Give a repository with the plugin `kit`, that says `one`."""
    folder = plugin_folders.stavrobot(tmp_path / "upstream", "kit", "#!/bin/sh\necho one")
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


@pytest.fixture
def catalog():
    catalog = Catalog(find_home())
    yield catalog
    catalog.close()


@pytest.fixture
def installer(catalog):
    return Installer(catalog)


def url(folder):
    return f"file://{folder}"


def installed():
    """What lies in the plugins folder, hidden things too."""
    folder = os.path.join(command_line.home(), "plugins")
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def said(plugin):
    return command_line.read(os.path.join(plugin.path, "act", "run")).rpartition("echo ")[2].strip()


@contextmanager
def nothing_changes(message, hint=""):
    """Expect an error that leaves the plugins folder as it is."""
    before = installed()
    with pytest.raises(InstallError) as caught:
        yield caught
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.hint
    assert installed() == before


def update(installer, plugin):
    with installer.update(plugin) as new:
        return new


def test_a_folder_is_copied_without_what_is_not_the_plugins(installer, tmp_path):
    folder = plugin_folders.cyclop(tmp_path / "here", "hello")
    for name in (".git/HEAD", "__pycache__/x.pyc", ".venv/bin/python", "sub/__pycache__/y.pyc", "sub/data.txt"):
        plugin_folders.write(f"{folder}/{name}", "x")
    done = installer.install(Source(location=folder))
    assert done.plugin.path == os.path.join(command_line.home(), "plugins", "hello")
    assert sorted(done.record.files) == ["plugin.json", "run", "sub/data.txt"]
    assert os.access(f"{done.plugin.path}/run", os.X_OK)
    assert (done.record.commit, done.left_config) == ("", False)
    assert installed() == ["hello"]


def test_the_folder_gets_the_plugins_own_name(installer, repository, tmp_path):
    os.rename(repository, tmp_path / "plugin-kit-repo")
    assert installer.install(Source(location=str(tmp_path / "plugin-kit-repo"))).plugin.name == "kit"
    assert installed() == ["kit"]


def test_a_repository_is_fetched_at_its_head(installer, repository):
    head = git(repository, "rev-parse", "HEAD")
    done = installer.install(Source(location=url(repository)))
    assert (done.record.commit, said(done.plugin)) == (head, "one")
    assert not os.path.exists(f"{done.plugin.path}/.git")


def test_a_bare_repository_needs_no_address(installer, repository, tmp_path):
    git(tmp_path, "clone", "--quiet", "--bare", repository, str(tmp_path / "bare.git"))
    assert installer.install(Source(location=str(tmp_path / "bare.git"))).record.commit


@pytest.mark.parametrize("kind", ["branch", "tag", "annotated", "commit"])
def test_a_version_can_be_asked_for(installer, repository, kind):
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "branch", "stable")
    git(repository, "tag", "v1")
    git(repository, "tag", "--annotate", "--message", "x", "v1-annotated")
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho two", 0o755)
    commit(repository)
    ref = {"branch": "stable", "tag": "v1", "annotated": "v1-annotated", "commit": first}[kind]
    done = installer.install(Source(location=url(repository), ref=ref))
    assert (done.record.commit, said(done.plugin)) == (first, "one")


def test_a_version_of_a_working_tree_can_be_asked_for_and_else_it_is_copied_as_it_is(installer, repository):
    git(repository, "tag", "v1")
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho unsaved", 0o755)
    done = installer.install(Source(location=repository))
    assert said(done.plugin) == "unsaved"
    installer.remove(done.plugin, purge=True)
    assert said(installer.install(Source(location=repository, ref="v1")).plugin) == "one"


def test_a_plugin_in_a_folder_of_a_repository(installer, repository):
    plugin_folders.cyclop(f"{repository}/tools/deep", "hello")
    commit(repository)
    done = installer.install(Source(location=url(repository), subdir="tools/deep/hello"))
    assert (done.plugin.name, done.plugin.format) == ("hello", "cyclop")
    assert installed() == ["hello"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ref": "nowhere"}, "couldn't find remote ref nowhere"),
        ({"ref": "-oops"}, "'-oops' is not a ref"),
        ({"ref": "--upload-pack=touch ran"}, "is not a ref"),
        ({"subdir": "nowhere"}, "(nowhere)' does not exist"),
        ({"subdir": "../other"}, "leads outside the source"),
        ({"subdir": "/etc"}, "leads outside the source"),
        ({"subdir": "out"}, "leads outside the source"),
        ({"subdir": "beside"}, "leads outside the source"),
        ({"subdir": "act"}, "is not a plugin"),
    ],
)
def test_a_version_or_folder_that_is_not_there(installer, repository, change, message):
    os.symlink("/etc", f"{repository}/out")
    plugin_folders.cyclop(os.path.dirname(repository), "kit-too")  # its path begins like the repository's
    os.symlink("../kit-too", f"{repository}/beside")
    commit(repository)
    with nothing_changes(message):
        installer.install(Source(location=url(repository), **change))
    if "subdir" in change:
        with nothing_changes(message):
            installer.install(Source(location=repository, **change))


def test_a_short_commit_gets_good_advice(installer, repository):
    short = git(repository, "rev-parse", "--short", "HEAD")
    with nothing_changes("git could not fetch", "40 digits"):
        installer.install(Source(location=url(repository), ref=short))


@pytest.mark.parametrize(
    "location",
    ["ext::sh -c 'touch ran'", "ext::touch% ran", "--upload-pack=touch ran", "-x", "nowhere", "", "x.zip", "fd::0"],
)
def test_what_is_neither_folder_nor_address_runs_nothing(installer, location):
    with nothing_changes(f"the folder '{location}' does not exist"):
        installer.install(Source(location=location))
    assert not os.path.exists("ran")


def test_an_address_whose_host_is_an_option_runs_nothing(installer):
    with nothing_changes("git could not fetch"):
        installer.install(Source(location="ssh://-oProxyCommand=touch%20ran/x"))
    with nothing_changes("git could not fetch"):
        installer.install(Source(location="git@-oProxyCommand=touch${IFS}ran:x"))
    assert not os.path.exists("ran")


def test_a_repository_that_is_not_there_is_an_error_without_passwords(installer, tmp_path):
    with nothing_changes("git could not fetch file:///nowhere"):
        installer.install(Source(location="file:///nowhere"))
    with nothing_changes("git could not fetch http://127.0.0.1:9/x") as caught:
        installer.install(Source(location="http://me:hunter2@127.0.0.1:9/x"))
    assert "hunter2" not in caught.value.message


def test_nothing_of_a_repository_runs_while_it_is_fetched(installer, repository):
    plugin_folders.write(f"{repository}/.gitattributes", "* filter=evil\n")
    plugin_folders.write(f"{repository}/.gitmodules", f'[submodule "x"]\n\tpath = x\n\turl = {url(repository)}\n')
    plugin_folders.write(f"{repository}/.git/hooks/post-checkout", "#!/bin/sh\ntouch ran", 0o755)
    commit(repository)
    done = installer.install(Source(location=url(repository)))
    assert not os.path.exists("ran")
    assert not os.path.exists(f"{done.plugin.path}/x")


@pytest.mark.claim("install-runs-nothing")
@pytest.mark.parametrize(
    "setting",
    [
        "filter.evil.smudge",
        "filter.evil.process",
        "core.fsmonitor",
        "diff.evil.textconv",
        "merge.evil.driver",
        "uploadpack.packObjectsHook",
    ],
)
def test_what_the_person_set_git_up_with_does_not_run_on_the_files_of_a_repository(
    setting, installer, repository, tmp_path, monkeypatch
):
    ran = tmp_path / "ran"
    plugin_folders.write(f"{repository}/.gitattributes", "* filter=evil diff=evil merge=evil\n")
    plugin_folders.write(f"{repository}/.gitignore", "*.log\n")
    commit(repository)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    section, _, key = setting.rpartition(".")
    kind, _, name = section.partition(".")
    header = f'[{kind} "{name}"]' if name else f"[{kind}]"
    plugin_folders.write(tmp_path / "gitconfig", f"{header}\n\t{key} = \"sh -c 'touch {ran}; cat'\"\n")
    for location in (url(repository), repository):
        installer.remove(installer.install(Source(location=location)).plugin, purge=True)
    assert not ran.exists()


def test_what_cannot_be_recorded_or_copied_is_refused(installer, cyclop):
    folder = cyclop("odd")
    strange = os.path.join(os.fsencode(folder), b"p\xff")
    os.mkdir(strange)
    plugin_folders.write(os.path.join(os.fsdecode(strange), "x"), "")
    with nothing_changes("is not valid UTF-8"):
        installer.install(Source(location=folder))
    shutil.rmtree(strange)
    os.unlink(f"{folder}/plugin.json")
    os.mkfifo(f"{folder}/plugin.json")
    with nothing_changes("is not a plugin"):
        installer.install(Source(location=folder))


def test_a_git_that_runs_us_does_not_get_in_the_way(installer, repository, tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet", str(tmp_path / "mine"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "mine" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "mine" / ".git" / "index"))
    assert installer.install(Source(location=url(repository))).plugin.name == "kit"


def test_a_configuration_in_the_source_is_never_taken_over(installer, repository):
    plugin_folders.write(f"{repository}/config.json", '{"permissions": [], "api_key": "theirs"}')
    plugin_folders.write(f"{repository}/act/config.json", "{}")
    commit(repository)
    for location in (url(repository), repository):
        done = installer.install(Source(location=location))
        assert done.left_config
        assert not os.path.exists(f"{done.plugin.path}/config.json")
        assert os.path.exists(f"{done.plugin.path}/act/config.json")
        installer.remove(done.plugin, purge=True)


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_nor_is_one_that_is_a_link_or_a_folder(installer, tmp_path, kind):
    folder = plugin_folders.stavrobot(tmp_path / "here", "kit")
    if kind == "link":
        os.symlink("/etc/passwd", f"{folder}/config.json")
    else:
        plugin_folders.write(f"{folder}/config.json/x", "")
    done = installer.install(Source(location=folder))
    assert done.left_config
    assert not os.path.lexists(f"{done.plugin.path}/config.json")


def test_links_stay_links_and_what_is_no_file_stays_behind(installer, tmp_path):
    folder = plugin_folders.cyclop(tmp_path / "here", "hello")
    (tmp_path / "secret").write_text("mine alone")
    os.symlink(tmp_path / "secret", f"{folder}/secret")
    os.symlink("run", f"{folder}/also")
    os.symlink("nowhere", f"{folder}/dangling")
    os.symlink(".", f"{folder}/loop")
    os.mkfifo(f"{folder}/pipe")
    done = installer.install(Source(location=folder))
    assert os.readlink(f"{done.plugin.path}/secret") == str(tmp_path / "secret")
    assert os.readlink(f"{done.plugin.path}/also") == "run"
    assert sorted(os.listdir(done.plugin.path)) == ["also", "dangling", "loop", "plugin.json", "run", "secret"]


def test_an_entrypoint_that_a_link_leads_out_is_refused(installer, tmp_path):
    folder = plugin_folders.cyclop(tmp_path / "here", "hello")
    os.unlink(f"{folder}/run")
    os.symlink("/bin/sh", f"{folder}/run")
    with nothing_changes("leads outside the plugin's folder"):
        installer.install(Source(location=folder))


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", ".", "..", ".hidden", "a/b", "A", "", "é", "x\0y", "x\ny"])
def test_a_hostile_name_is_refused(installer, tmp_path, name):
    plugin_folders.write(
        f"{tmp_path}/cyclop/plugin.json", json.dumps(plugin_folders.cyclop_manifest("x") | {"name": name})
    )
    plugin_folders.write(f"{tmp_path}/stavrobot/manifest.json", json.dumps({"name": name, "description": ""}))
    for folder in ("cyclop", "stavrobot"):
        with nothing_changes("the plugin is invalid"):
            installer.install(Source(location=f"{tmp_path}/{folder}"))


@pytest.mark.parametrize("name", ["checkout", "plugin", "copy", "before", "failed", "staging"])
def test_no_name_meets_our_own(installer, tmp_path, name):
    folder = plugin_folders.stavrobot(tmp_path / "here", name, "#!/bin/sh\necho one")
    git(folder, "init", "--quiet")
    commit(folder)
    plugin = installer.install(Source(location=url(folder))).plugin
    plugin_folders.write(f"{folder}/act/run", "#!/bin/sh\necho two", 0o755)
    commit(folder)
    assert said(update(installer, plugin).plugin) == "two"
    assert installed() == [name]


def test_a_name_too_long_for_the_disk_is_refused(installer, tmp_path):
    plugin_folders.write(f"{tmp_path}/here/manifest.json", json.dumps({"name": "x" * 300, "description": ""}))
    with nothing_changes("cannot install it"):
        installer.install(Source(location=f"{tmp_path}/here"))


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "x"}', ""])
def test_a_broken_manifest_is_refused_with_its_fault(installer, tmp_path, text):
    plugin_folders.write(f"{tmp_path}/here/plugin.json", text)
    with nothing_changes("the plugin is invalid: ") as caught:
        installer.install(Source(location=f"{tmp_path}/here"))
    assert ".staging" not in caught.value.message + caught.value.hint


def test_a_folder_without_a_plugin_is_refused_before_it_is_copied(installer, tmp_path):
    plugin_folders.write(f"{tmp_path}/here/README.md", "nothing here")
    with nothing_changes("is not a plugin", "owner/repo"):
        installer.install(Source(location=f"{tmp_path}/here"))


def test_a_folder_that_holds_our_own_home_is_refused(tmp_path):
    folder = plugin_folders.cyclop(tmp_path / "here", "hello")
    catalog = Catalog(find_home(f"{folder}/.home"))
    with pytest.raises(InstallError, match="contains anyplug's own home"):
        Installer(catalog).install(Source(location=folder))
    catalog.close()


def test_what_is_there_already_is_left_alone(installer, repository):
    plugin = installer.install(Source(location=url(repository))).plugin
    plugin_folders.write(f"{plugin.path}/state.json", "precious")
    with nothing_changes("plugin 'kit' already exists", "anyplug update kit"):
        installer.install(Source(location=url(repository)))
    assert command_line.read(f"{plugin.path}/state.json") == "precious"
    installer.remove(plugin, purge=True)
    plugin_folders.write(f"{command_line.home()}/plugins/kit/notes.txt", "no plugin, but mine")
    with nothing_changes("already"):
        installer.install(Source(location=url(repository)))


def test_of_two_who_install_at_once_one_succeeds_and_nothing_is_left(installer, repository):
    outcomes = []

    def work():
        catalog = Catalog(find_home())
        try:
            Installer(catalog).install(Source(location=url(repository)))
            outcomes.append("installed")
        except InstallError as error:
            outcomes.append(error.code)
        catalog.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["install_failed"] * 3 + ["installed"]
    assert installed() == ["kit"]


def test_what_cannot_be_remembered_is_not_installed(catalog, installer, repository):
    plugin_folders.write(
        os.path.join(command_line.home(), "anyplug.db"), "no database at all, whatever one does with it" * 20
    )
    with pytest.raises(StoreError):
        installer.install(Source(location=url(repository)))
    assert installed() == []


def test_an_approval_of_what_lay_there_before_does_not_count(catalog, installer, repository):
    plugin = installer.install(Source(location=repository)).plugin
    catalog.approvals.approve(plugin, catalog.digest(plugin), (), always=True, follow=True, unconfined=True)
    shutil.rmtree(plugin.path)
    again = installer.install(Source(location=repository)).plugin
    assert catalog.standing(again).state == "new"


def test_an_update_brings_the_new_version_and_keeps_what_was_written(installer, repository):
    plugin_folders.write(f"{repository}/old.txt", "theirs")
    commit(repository)
    plugin = installer.install(Source(location=url(repository))).plugin
    for name, text in (("config.json", '{"key": "mine"}'), ("state.json", "mine"), ("deep/er/state.db", "mine"),
                       ("act/cache.txt", "mine"), ("__pycache__/x.pyc", "mine"), ("both.txt", "mine")):  # fmt: skip
        plugin_folders.write(f"{plugin.path}/{name}", text)
    os.chmod(f"{plugin.path}/config.json", 0o600)
    os.symlink("state.json", f"{plugin.path}/link")
    os.symlink("deep", f"{plugin.path}/folder-link")
    os.mkfifo(f"{plugin.path}/pipe")
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho two", 0o755)
    plugin_folders.write(f"{repository}/both.txt", "theirs")
    plugin_folders.write(f"{repository}/config.json", '{"key": "theirs"}')
    os.unlink(f"{repository}/old.txt")
    head = commit(repository)
    done = update(installer, plugin)
    assert (done.record.commit, said(done.plugin), done.left_config) == (head, "two", True)
    new = done.plugin.path
    assert command_line.read(f"{new}/config.json") == '{"key": "mine"}'
    assert os.stat(f"{new}/config.json").st_mode & 0o777 == 0o600
    assert command_line.read(f"{new}/deep/er/state.db") == command_line.read(f"{new}/act/cache.txt") == "mine"
    assert (os.readlink(f"{new}/link"), os.readlink(f"{new}/folder-link")) == ("state.json", "deep")
    assert (command_line.read(f"{new}/both.txt"), command_line.read(f"{new}/both.txt.new")) == ("mine", "theirs")
    assert not any(os.path.lexists(f"{new}/{name}") for name in ("old.txt", "__pycache__", "pipe"))
    assert installed() == ["kit"]
    # What was carried over is still the person's at the next update.
    assert command_line.read(update(installer, done.plugin).plugin.path + "/state.json") == "mine"


def test_an_update_from_a_folder_works_wherever_it_is_run(installer, tmp_path, monkeypatch):
    folder = plugin_folders.stavrobot(tmp_path / "here", "kit", "#!/bin/sh\necho one")
    monkeypatch.chdir(tmp_path)
    plugin = installer.install(Source(location="here/kit")).plugin
    plugin_folders.write(f"{folder}/act/run", "#!/bin/sh\necho two", 0o755)
    monkeypatch.chdir("/")
    assert said(update(installer, plugin).plugin) == "two"


def test_an_update_follows_a_rewritten_history_and_a_branch(installer, repository):
    plugin = installer.install(Source(location=url(repository), ref="main")).plugin
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho rewritten", 0o755)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--amend", "--message", "another past")
    assert said(update(installer, plugin).plugin) == "rewritten"


def test_an_update_follows_another_default_branch(installer, repository):
    plugin = installer.install(Source(location=url(repository))).plugin
    git(repository, "checkout", "--quiet", "-b", "next")
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho next", 0o755)
    commit(repository)
    assert said(update(installer, plugin).plugin) == "next"


def test_an_update_of_a_fixed_version_stays_there(installer, repository):
    git(repository, "tag", "v1")
    plugin = installer.install(Source(location=url(repository), ref="v1")).plugin
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho two", 0o755)
    commit(repository)
    assert said(update(installer, plugin).plugin) == "one"


@pytest.mark.parametrize("fault", ["renamed", "broken", "gone", "no-plugin"])
def test_a_new_version_that_cannot_be_used_changes_nothing(installer, repository, fault):
    plugin = installer.install(Source(location=url(repository))).plugin
    plugin_folders.write(f"{plugin.path}/config.json", "{}")
    manifest = f"{repository}/manifest.json"
    if fault == "renamed":
        plugin_folders.write(manifest, '{"name": "other", "description": ""}')
    elif fault == "broken":
        plugin_folders.write(manifest, "{")
    elif fault == "no-plugin":
        os.unlink(manifest)
    commit(repository)
    if fault == "gone":
        os.rename(repository, f"{repository}-moved")
    message = {"renamed": "is named 'other', not 'kit'", "broken": "is invalid", "gone": "git could not fetch",
               "no-plugin": "is not a plugin"}[fault]  # fmt: skip
    with nothing_changes(message):
        update(installer, plugin)
    assert said(plugin) == "one"
    assert os.path.exists(f"{plugin.path}/config.json")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_when_the_block_fails_the_old_version_comes_back(installer, repository, error):
    plugin = installer.install(Source(location=url(repository))).plugin
    plugin_folders.write(f"{plugin.path}/state.json", "mine")
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho two", 0o755)
    head = commit(repository)

    def spoil():
        with installer.update(plugin) as new:
            assert said(new.plugin) == "two"
            plugin_folders.write(f"{plugin.path}/state.json", "spoilt by a set-up")
            plugin_folders.write(f"{plugin.path}/stubborn/file", "x")
            raise error

    with pytest.raises(error):
        spoil()
    assert (said(plugin), command_line.read(f"{plugin.path}/state.json")) == ("one", "mine")
    assert not os.path.exists(f"{plugin.path}/stubborn")
    assert installer.origin(plugin).commit != head
    assert installed() == ["kit"]


def test_even_if_the_block_took_the_new_version_away(installer, repository):
    plugin = installer.install(Source(location=url(repository))).plugin
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho two", 0o755)
    commit(repository)

    def lose():
        with installer.update(plugin):
            os.rename(plugin.path, f"{plugin.path}-lost")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        lose()
    assert said(plugin) == "one"


def test_what_is_carried_over_goes_through_no_link_and_over_no_file(installer, repository, tmp_path):
    plugin = installer.install(Source(location=url(repository))).plugin
    plugin_folders.write(f"{plugin.path}/data/authorized_keys", "evil")
    plugin_folders.write(f"{plugin.path}/cache/x", "mine")
    (tmp_path / "ssh").mkdir()
    os.symlink(tmp_path / "ssh", f"{repository}/data")
    plugin_folders.write(f"{repository}/cache", "a file now")
    commit(repository)
    new = update(installer, plugin).plugin
    assert os.listdir(tmp_path / "ssh") == []
    assert command_line.read(f"{new.path}/cache") == "a file now"


@pytest.fixture
def todo(installer, tmp_path):
    """Give the source of an extension that keeps a list beside itself, and the plugin installed from it."""
    source = zot_folders.extension(tmp_path / "here", "todo")
    plugin_folders.write(f"{source}/todos.json", '["example"]')
    return source, installer.install(Source(location=source)).plugin


def kept(name, number=1):
    return f"{command_line.home()}/kept/{name}/{number}"


def test_data_that_came_with_a_plugin_and_was_changed_stays_while_the_default_is_the_same(installer, todo):
    source, plugin = todo
    plugin_folders.write(f"{plugin.path}/todos.json", '["mine"]')
    os.utime(f"{plugin.path}/todos.json", (0, 0))  # what counts is what is in it
    plugin_folders.write(f"{source}/README.md", "new")
    done = update(installer, plugin)
    assert command_line.read(f"{plugin.path}/todos.json") == '["mine"]'
    assert (done.inheritance.stays, done.inheritance.beside, done.kept) == (("todos.json",), {}, "")
    assert sorted(os.listdir(plugin.path)) == ["README.md", "extension.json", "run.py", "todos.json"]
    installer.remove(done.plugin, purge=False)
    assert command_line.read(f"{kept('todo')}/todos.json") == '["mine"]'


def test_a_new_default_is_put_beside_what_was_changed_and_an_old_one_gives_way(installer, todo):
    source, plugin = todo
    plugin_folders.write(f"{plugin.path}/todos.json", '["mine"]')
    for default in ('["second"]', '["third"]'):
        plugin_folders.write(f"{source}/todos.json", default)
        assert update(installer, plugin).inheritance.beside == {"todos.json": "todos.json.new"}
        assert command_line.read(f"{plugin.path}/todos.json") == '["mine"]'
        assert command_line.read(f"{plugin.path}/todos.json.new") == default
    plugin_folders.write(f"{plugin.path}/todos.json.new", "mine as well")
    plugin_folders.write(f"{source}/todos.json", '["fourth"]')
    assert update(installer, plugin).inheritance.beside == {"todos.json": "todos.json.new.2"}
    assert command_line.read(f"{plugin.path}/todos.json.new") == "mine as well"
    assert command_line.read(f"{plugin.path}/todos.json.new.2") == '["fourth"]'


def test_data_that_nobody_changed_is_the_new_versions(installer, todo):
    source, plugin = todo
    plugin_folders.write(f"{source}/todos.json", '["better"]')
    os.utime(f"{plugin.path}/todos.json")
    assert update(installer, plugin).inheritance.stays == ()
    assert command_line.read(f"{plugin.path}/todos.json") == '["better"]'


def test_changed_data_stays_that_the_new_version_does_not_bring_any_more(installer, todo):
    source, plugin = todo
    plugin_folders.write(f"{plugin.path}/todos.json", '["mine"]')
    os.unlink(f"{source}/todos.json")
    update(installer, plugin)
    assert command_line.read(f"{plugin.path}/todos.json") == '["mine"]'


def test_what_a_record_without_hashes_does_not_know_is_not_lost(catalog, installer, todo):
    _, plugin = todo
    known = installer.origin(plugin)
    old = msgspec.json.encode(msgspec.structs.replace(known, hashes={}))
    catalog.store.run("UPDATE installs SET record = ?", old)
    plugin_folders.write(f"{plugin.path}/todos.json", '["mine"]')
    os.utime(f"{plugin.path}/todos.json", (known.at + 9, known.at + 9))
    assert update(installer, plugin).inheritance.beside == {"todos.json": "todos.json.new"}
    assert command_line.read(f"{plugin.path}/todos.json") == '["mine"]'


def test_code_is_the_new_versions_and_what_was_changed_of_it_is_kept(installer, todo):
    source, plugin = todo
    plugin_folders.write(f"{source}/run.py", "# theirs", 0o755)
    plugin_folders.write(f"{source}/todos.json", "#!/bin/sh", 0o755)  # a program now
    plugin_folders.write(f"{source}/notes", "theirs: a file now")
    plugin_folders.write(f"{plugin.path}/run.py", "# mine", 0o755)
    plugin_folders.write(f"{plugin.path}/todos.json", '["mine"]')
    plugin_folders.write(f"{plugin.path}/notes/one.txt", "mine")
    done = update(installer, plugin)
    assert command_line.read(f"{plugin.path}/run.py") == "# theirs"
    assert command_line.read(f"{plugin.path}/todos.json") == "#!/bin/sh"
    assert (done.kept, sorted(done.inheritance.kept)) == (kept("todo"), ["notes/one.txt", "run.py", "todos.json"])
    assert command_line.read(f"{kept('todo')}/run.py") == "# mine"
    assert command_line.read(f"{kept('todo')}/todos.json") == '["mine"]'
    assert command_line.read(f"{kept('todo')}/notes/one.txt") == "mine"
    assert os.stat(kept("todo")).st_mode & 0o777 == 0o700


def test_where_every_file_is_code_a_changed_one_is_kept_elsewhere(installer, tmp_path):
    source = plugin_folders.cyclop(tmp_path / "here", "hello")
    plugin_folders.write(f"{source}/words.txt", "theirs")
    plugin = installer.install(Source(location=source)).plugin
    plugin_folders.write(f"{plugin.path}/words.txt", "mine")
    plugin_folders.write(f"{source}/words.txt", "theirs, and better")
    update(installer, plugin)
    assert command_line.read(f"{plugin.path}/words.txt") == "theirs, and better"
    assert command_line.read(f"{kept('hello')}/words.txt") == "mine"


def test_an_update_that_does_not_happen_keeps_nothing_elsewhere(installer, todo):
    source, plugin = todo
    plugin_folders.write(f"{source}/run.py", "# theirs", 0o755)
    plugin_folders.write(f"{plugin.path}/run.py", "# mine", 0o755)

    def refuse():
        with installer.update(plugin) as new:
            assert os.path.exists(new.kept)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        refuse()
    assert command_line.read(f"{plugin.path}/run.py") == "# mine"
    assert not os.path.exists(kept("todo"))


def test_an_update_to_nothing_new_moves_nothing_and_waits_for_nobody(catalog, installer, repository):
    plugin = installer.install(Source(location=url(repository))).plugin
    Audit(catalog.store).begin(Record(call="c1", at=0, attachment="x", tool="kit.act", plugin="kit"))
    inode = os.stat(plugin.path).st_ino
    head = commit(repository, "another commit, and nothing in it")
    done = update(installer, plugin)
    assert (done.is_new, done.record.commit, os.stat(plugin.path).st_ino) == (False, head, inode)
    assert installer.origin(plugin).commit == head
    assert installed() == ["kit"]


@pytest.mark.parametrize("damage", ["changed", "gone", "closed"])
def test_an_update_to_nothing_new_mends_code_that_nobody_approved(catalog, installer, repository, damage):
    plugin = installer.install(Source(location=url(repository))).plugin
    program = f"{plugin.path}/act/run"
    if damage == "changed":
        plugin_folders.write(program, "#!/bin/sh\necho mine", 0o755)
    elif damage == "gone":
        os.unlink(program)
    else:
        os.chmod(program, 0o644)
    assert update(installer, plugin).is_new
    assert said(plugin) == "one"
    assert os.access(program, os.X_OK)
    assert os.path.exists(f"{kept('kit')}/act/run") == (damage == "changed")


def test_code_that_a_person_changed_and_approved_stays_until_there_is_something_new(catalog, installer, repository):
    plugin = installer.install(Source(location=url(repository))).plugin
    plugin_folders.write(f"{plugin.path}/act/run", "#!/bin/sh\necho mine", 0o755)
    catalog.approvals.approve(plugin, catalog.digest(plugin), (), always=True, follow=False, unconfined=False)
    assert not update(installer, plugin).is_new
    assert said(plugin) == "mine"


def test_what_anyplug_did_not_install_cannot_be_updated(catalog, installer):
    plugin_folders.cyclop("plugins", "hello")
    plugin = catalog.load().plugin("hello").plugin
    with nothing_changes("was not installed by anyplug", plugin.path):
        update(installer, plugin)


def test_an_update_waits_for_calls_under_way(catalog, installer, repository, monkeypatch):
    plugin = installer.install(Source(location=url(repository))).plugin
    plugin_folders.write(f"{repository}/act/run", "#!/bin/sh\necho two", 0o755)
    commit(repository)
    record = Record(call="c1", at=0, attachment="x", tool="kit.act", plugin="kit")
    trail = Audit(catalog.store)
    trail.begin(record)
    monkeypatch.setattr("anyplug.manage.installer.CALLS_END_S", 0.2)
    with nothing_changes("calls of 'kit' are still running"):
        update(installer, plugin)
    ended = threading.Timer(0.1, lambda: trail.end(msgspec.structs.replace(record, outcome="done")))
    monkeypatch.setattr("anyplug.manage.installer.CALLS_END_S", command_line.PATIENCE_S)
    ended.start()
    update(installer, plugin)
    ended.join()


def test_removing_keeps_the_data_unless_told_otherwise(catalog, installer, repository):
    home = find_home()
    for purge in (False, True):
        plugin = installer.install(Source(location=url(repository))).plugin
        for path in (home.data(plugin), home.files(plugin), home.cache(plugin)):
            plugin_folders.write(f"{path}/x", "")
        plugin_folders.write(home.log(plugin), "")
        going, staying = installer.belongings(plugin, purge=purge)
        installer.remove(plugin, purge=purge)
        assert installed() == []
        assert not any(map(os.path.exists, going))
        assert all(map(os.path.exists, staying))
        assert os.path.exists(f"{home.left}/kit/1/data/x") == os.path.exists(home.log(plugin)) == (not purge)
        assert not os.path.exists(home.data(plugin))
        assert installer.origin(plugin) is None


def test_removing_a_link_leaves_what_it_leads_to(catalog, installer, tmp_path):
    real = plugin_folders.cyclop(tmp_path / "real", "hello")
    os.makedirs(f"{command_line.home()}/plugins")
    os.symlink(real, f"{command_line.home()}/plugins/hello")
    installer.remove(catalog.load().plugin("hello").plugin, purge=True)
    assert installed() == []
    assert os.path.exists(f"{real}/run")


def test_a_home_behind_a_link_works_too(repository, tmp_path):
    (tmp_path / "real-home").mkdir()
    os.symlink(tmp_path / "real-home", tmp_path / "linked-home")
    catalog = Catalog(find_home(tmp_path / "linked-home"))
    installer = Installer(catalog)
    installer.install(Source(location=url(repository)))
    plugin = catalog.load().plugin("kit").plugin
    assert installer.is_ours(plugin)
    assert installer.origin(plugin) is not None
    update(installer, plugin)
    installer.remove(catalog.load().plugin("kit").plugin, purge=True)
    assert os.listdir(tmp_path / "real-home" / "plugins") == []
    catalog.close()


def test_the_plugins_folder_is_only_as_open_as_it_must_be(installer, repository):
    installer.install(Source(location=url(repository)))
    assert Path(command_line.home(), "plugins").stat().st_mode & 0o022 == 0


def an_extension_as_its_author_has_it(folder):
    """Make an extension whose program is built into a folder that git ignores."""
    for name in ("dist/main.sh", "dist/main.o", "node_modules/a/b.js", ".venv/bin/python", "notes.txt", "trace.log"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (folder / ".gitignore").write_text("dist/\nnode_modules/\n*.log\n")
    (folder / "extension.json").write_text(json.dumps({"name": "built", "exec": "./dist/main.sh"}))
    return folder


def test_of_what_git_ignores_an_extension_takes_only_what_it_names(installer, tmp_path):
    source = an_extension_as_its_author_has_it(tmp_path / "built")
    plugin = installer.install(Source(location=str(source))).plugin
    found = {path.relative_to(plugin.path).as_posix() for path in Path(plugin.path).rglob("*") if path.is_file()}
    assert found == {".gitignore", "extension.json", "notes.txt", "dist/main.sh"}


@pytest.mark.parametrize(
    ("program", "whole"), [("./.venv/bin/python", ".venv"), ("./node_modules/.bin/run", "node_modules")]
)
@pytest.mark.parametrize("format", ["zot", "mcp"])
def test_what_is_named_of_installed_modules_is_taken_with_all_of_them(format, program, whole, installer, tmp_path):
    source = an_extension_as_its_author_has_it(tmp_path / "built")
    plugin_folders.write(f"{source}/.venv/pyvenv.cfg", "home = /usr/bin\n")
    plugin_folders.write(f"{source}/.venv/lib/venv/module.py", "")
    plugin_folders.write(f"{source}/node_modules/run/cli.js", "#!/usr/bin/env node\n", 0o755)
    plugin_folders.write(f"{source}/node_modules/__pycache__/x.pyc", "")
    os.mkdir(f"{source}/node_modules/.bin")
    os.symlink("../run/cli.js", f"{source}/node_modules/.bin/run")
    if format == "zot":
        zot_folders.write_manifest(str(source), {"name": "built", "exec": program, "args": ["notes.txt"]})
    else:
        os.unlink(source / "extension.json")
        servers = {"one": {"command": program, "args": ["notes.txt"]}}
        plugin_folders.write(f"{source}/mcp.json", json.dumps({"mcpServers": servers}))
        plugin_folders.write(f"{source}/.gitignore", "")
    done = installer.install(Source(location=str(source)))
    found = {path.relative_to(done.plugin.path).as_posix() for path in Path(done.plugin.path).rglob("*")}
    assert {".venv/lib/venv/module.py", ".venv/bin/python"} <= found or whole != ".venv"
    assert {"node_modules/a/b.js", "node_modules/run/cli.js"} <= found or whole != "node_modules"
    assert "node_modules/__pycache__" not in found
    assert os.access(os.path.join(done.plugin.path, program), os.X_OK)
    assert whole not in done.left_modules


def test_modules_that_stay_behind_are_named(tmp_path):
    source = an_extension_as_its_author_has_it(tmp_path / "built")
    done = command_line.ok("install", str(source), "--yes")
    assert "not copied: .venv and node_modules;" in done.err
    assert os.path.join(command_line.home(), "plugins", "built") in done.err


def test_an_extension_whose_program_is_not_there_is_not_installed(installer, tmp_path, home):
    source = an_extension_as_its_author_has_it(tmp_path / "built")
    (source / "dist" / "main.sh").unlink()
    with pytest.raises(InstallError, match="is not in"):
        installer.install(Source(location=str(source)))
    assert os.listdir(home / "plugins") == []


@pytest.mark.parametrize(
    ("location", "subdir", "name"),
    [
        ("https://example.org/someone/counter.git", "", "counter"),
        ("git@example.org:counter", "", "counter"),
        ("https://example.org/someone/many", "plugins/counter/", "counter"),
        ("/somewhere/counter/", ".", "counter"),
        ("/somewhere/a:b", "", "a:b"),
    ],
)
def test_a_source_names_a_folder(location, subdir, name):
    assert Source(location=location, subdir=subdir).folder_name == name


# Links, and what a plugin wrote beside itself


def extension_in(folder, **files):
    made = zot_folders.extension(folder, "linked")
    for name, target in files.items():
        os.symlink(target, os.path.join(made, name))
    return made


def test_a_link_to_a_file_elsewhere_in_the_same_clone_becomes_that_file(installer, tmp_path):
    mono = f"{tmp_path}/mono"
    plugin_folders.write(f"{mono}/shared/helper.py", "SHARED = 1\n")
    extension_in(mono, helper="../shared/helper.py", inside="run.py")
    git(mono, "init", "--quiet")
    commit(mono)
    plugin = installer.install(Source(location=url(mono), subdir="linked")).plugin
    assert command_line.read(f"{plugin.path}/helper") == "SHARED = 1\n"
    assert not os.path.islink(f"{plugin.path}/helper")
    assert os.readlink(f"{plugin.path}/inside") == "run.py"


@pytest.mark.parametrize("target", ["../../.ssh/id_ed25519", "../.git/config", "../shared.txt"])
def test_a_link_of_a_folder_gives_nothing_away_that_lies_around_it(target, installer, tmp_path):
    for name in (".ssh/id_ed25519", "here/shared.txt"):
        plugin_folders.write(f"{tmp_path}/{name}", "secret\n")
    folder = extension_in(f"{tmp_path}/here", key=target)
    git(f"{tmp_path}/here", "init", "--quiet")
    with nothing_changes(f"key is a link that leads outside the plugin, to {target}", "replace it with a copy"):
        installer.install(Source(location=folder))


@pytest.mark.parametrize("target", ["../.git/config", "../../../../../../../../etc/hostname"])
def test_a_link_in_a_clone_gives_nothing_away_but_what_came_with_it(target, installer, tmp_path):
    mono = f"{tmp_path}/mono"
    extension_in(mono, key=target)
    git(mono, "init", "--quiet")
    commit(mono)
    with nothing_changes("key is a link that leads outside the plugin", "replace it with a copy"):
        installer.install(Source(location=url(mono), subdir="linked"))


def test_links_to_programs_of_the_machine_and_to_nothing_stay_links(installer, tmp_path):
    folder = extension_in(f"{tmp_path}/here", shell="/bin/sh", nothing="nowhere")
    plugin = installer.install(Source(location=folder)).plugin
    assert [os.readlink(f"{plugin.path}/{name}") for name in ("shell", "nothing")] == ["/bin/sh", "nowhere"]


def test_what_an_extension_wrote_beside_itself_outlives_its_removal_where_no_plugin_can_reach_it(installer, tmp_path):
    source = Source(location=zot_folders.extension(f"{tmp_path}/here", "keeper"))
    for name in ("counted.json", "untouched.json"):
        plugin_folders.write(f"{source.location}/{name}", "0")
    kept = f"{command_line.home()}/kept/keeper"
    for number in (1, 2):
        plugin = installer.install(source).plugin
        plugin_folders.write(f"{plugin.path}/counted.json", str(number))
        assert not os.path.exists(f"{plugin.path}/state.json"), "what comes next may be another's"
        plugin_folders.write(f"{plugin.path}/state.json", str(number))
        plugin_folders.write(f"{plugin.path}/notes/one.txt", "1")
        plugin_folders.write(f"{plugin.path}/planted.py", "evil = 1")
        plugin_folders.write(f"{plugin.path}/config.json", '{"token": "secret-token"}')
        os.symlink("/etc/passwd", f"{plugin.path}/link")
        os.mkfifo(f"{plugin.path}/pipe")
        assert f"{kept}/{number}" in installer.belongings(plugin, purge=False)[1]
        installer.remove(plugin, purge=False)
        assert installed() == []
    assert [command_line.read(f"{kept}/{number}/state.json") for number in (1, 2)] == ["1", "2"]
    assert sorted(os.listdir(f"{kept}/2")) == ["counted.json", "notes", "state.json"]
    assert command_line.read(f"{kept}/2/counted.json") == "2"
    assert os.stat(f"{kept}/2").st_mode & 0o777 == 0o700
    installer.remove(installer.install(source).plugin, purge=True)
    assert not os.path.exists(kept)


def test_of_a_format_that_writes_nothing_beside_itself_nothing_is_kept(installer, tmp_path):
    plugin = installer.install(Source(location=plugin_folders.cyclop(tmp_path / "here", "hello"))).plugin
    plugin_folders.write(f"{plugin.path}/state.json", "{}")
    installer.remove(plugin, purge=False)
    assert not os.path.exists(f"{command_line.home()}/kept")


def test_a_plugin_that_wrote_too_much_beside_itself_is_removed_with_all_of_it(installer, repository, monkeypatch):
    plugin = installer.install(Source(location=url(repository))).plugin
    for number in range(60):
        plugin_folders.write(f"{plugin.path}/many/{number}", "")
    monkeypatch.setattr(carry_over, "Budget", functools.partial(untrusted_files.Budget, entries=50))
    with pytest.raises(InstallError, match="more than 50 files and folders") as refused:
        installer.remove(plugin, purge=False)
    assert refused.value.hint == f"remove all of it with `anyplug remove {plugin.name} --purge`"
    installer.remove(plugin, purge=True)
    assert not os.path.exists(plugin.path)
