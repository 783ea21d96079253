"""Protected paths as data: what is a protected name, in which spelling, and which grant opens it."""

import pytest

from anyplug.model import protected_paths
from anyplug.runtime.sandbox.linux.protected_names import CLOSED, FREE, INNER, Protected
from rows import each_row

USER, PROJECT = "/home/ada", "/home/ada/work"
PLACES = protected_paths.places(USER, PROJECT, ("/home/ada/tools/bin",))


def state(path, *named):
    folder, _, name = path.rpartition("/")
    return Protected((*PLACES.read_only, *PLACES.hidden), named).state(folder or "/", name)


@each_row(
    "path",
    [
        "/home/ada/work/.git/hooks", "/home/ada/work/.git/hooks/post-commit", "/srv/x/.git/config", "/srv/.GIT/Config",
        "/home/ada/work/deep/er/.envrc", "/home/ada/work/.Envrc", "/home/ada/work/.en\u200bvrc",
        "/mnt/x/.vscode/tasks.json", "/home/ada/work/.cupcake/policies/x.rego", "/home/ada/.bashrc",
        "/home/ada/.bash_profile", "/home/ada/.ssh",
        "/home/ada/.config/autostart/x.desktop", "/home/ada/.local/bin/ls", "/home/ada/work/plugins/x/run",
        "/home/ada/work/data/tools/x", "/home/ada/tools/bin/ls", "/home/ada/repository.git/hooks", "/srv/bare/HEAD",
        "/home/ada/work/.git/logs/commondir", "/home/ada/work/.git/refs/remotes/a/config.worktree/x",
        "/home/ada/work/.git/a/b/Config", "/home/ada/work/.git/rebase-merge/git-rebase-todo",
        "/home/ada/work/opencode.jsonc", "/home/ada/work/x.code-workspace", "/home/ada/.gnupg/x",
        "/home/ada/.lesskey", "/home/ada/.less", "/home/ada/.zcompdump-host-5.9", "/home/ada/.p10k.zsh",
        "/home/ada/.cache/p10k-instant-prompt-ada.zsh", "/home/ada/.rye/env", "/home/ada/.elan/env",
        "/home/ada/.local/share/jupyter/kernels/x/kernel.json", "/home/ada/.cache/pre-commit/x/y",
        "/home/ada/.cache/gitstatus/gitstatusd", "/home/ada/.tclshrc", "/home/ada/.gnomerc", "/home/ada/.virtualenvs/x",
        "/home/ada/.selected_editor", "/home/ada/.sway/config", "/home/ada/.alacritty.toml", "/home/ada/.asoundrc",
        "/home/ada/.local/share/vulkan/implicit_layer.d/x.json", "/home/ada/.local/share/nautilus-python/extensions/x",
        "/home/ada/.local/share/nemo-python/x", "/home/ada/.local/share/JetBrains/x", "/home/ada/.byobu/.tmux.conf",
        "/home/ada/.local/share/gstreamer-1.0/plugins/x.so", "/home/ada/.codeium/windsurf/mcp_config.json",
        "/home/ada/.antigravity/extensions/x", "/home/ada/.doom.d/init.el", "/home/ada/.spacemacs", "/home/ada/.jwmrc",
        "/home/ada/.pulsar/init.js", "/home/ada/.atom/init.js", "/home/ada/.fvwm/config", "/home/ada/.pip/pip.conf",
    ],
)  # fmt: skip
def test_a_protected_path_is_protected_in_every_spelling(path):
    assert state(path) == CLOSED


@each_row(
    "path",
    [
        "/home/ada/work/main.py", "/home/ada/work/.git/index", "/home/ada/work/.git/objects/aa", "/srv/plugins/x",
        "/home/ada/work/hooks", "/home/ada/work/config", "/home/ada/.cache/x", "/home/ada/work/Makefile",
        "/home/ada/work/.git/HEAD", "/home/ada/work/head", "/home/ada/work/AGENTS.md",
        "/home/ada/work/.github/workflows", "/srv/.bashrc", "/home/ada/work/.gitignore",
        "/home/ada/work/.git/refs/heads/fix/config", "/home/ada/work/.git/logs/refs/heads/hooks",
        "/home/ada/work/site.git/src/hooks",
    ],
)  # fmt: skip
def test_what_only_looks_like_one_is_free(path):
    assert state(path) == FREE


@pytest.mark.parametrize(
    "path", ["/srv/x/.git", "/home", "/home/ada", PROJECT, "/home/ada/.local", "/home/ada/work/data"]
)
def test_what_leads_to_one_stays_a_folder_in_its_place(path):
    assert state(path) == INNER


@pytest.mark.parametrize(
    ("named", "path", "expected"),
    [
        ("/home/ada/work", "/home/ada/work/.envrc", CLOSED),
        ("/home/ada/work/.envrc", "/home/ada/work/.envrc", FREE),
        ("/home/ada/work/.envrc", "/home/ada/work/sub/.envrc", CLOSED),
        ("/home/ada/work/.git", "/home/ada/work/.git/hooks/post-commit", FREE),
        ("/home/ada/work/.git", "/home/ada/work/.git", FREE),
        ("/home/ada/work/.git/hooks", "/home/ada/work/.git/hooks/post-commit", FREE),
        ("/home/ada/work/.git/hooks", "/home/ada/work/.git/config", CLOSED),
        ("/home/ada/work/.vscode", "/home/ada/work/.vscode/.envrc", CLOSED),
        ("/home/ada/.config/gh", "/home/ada/.config/gh/hosts.yml", FREE),
        ("/home/ada/.config/gh", "/home/ada/.config/autostart", CLOSED),
        ("/home/ada/work", "/home/ada/work", INNER),
    ],
)  # fmt: skip
def test_only_a_grant_that_names_a_path_opens_it(named, path, expected):
    assert state(path, named) == expected


@pytest.mark.parametrize(
    ("path", "grant"),
    [
        ("/home/ada/work/sub/.git/hooks/", "/home/ada/work/sub/.git"),
        ("/home/ada/work/.vscode/tasks.json", "/home/ada/work/.vscode"),
        ("/home/ada/.config/gh/hosts.yml", "/home/ada/.config/gh"),
        ("/home/ada/.local/bin/x", "/home/ada/.local/bin"),
        ("/home/ada/work/main.py", ""),
        ("/home/ada/work/.npmrc.1234", "/home/ada/work/.npmrc"),
        ("/home/ada/work/.git/config.lock", "/home/ada/work/.git"),
        ("/home/ada/work/plugins.py", ""),
    ],
)  # fmt: skip
def test_it_is_known_which_grant_would_open_a_path(path, grant):
    assert Protected((*PLACES.read_only, *PLACES.hidden), ()).opener(path) == grant


def test_no_pattern_stands_in_the_table_twice():
    seen = [(entry.where, pattern) for entry in protected_paths.TABLE for pattern in entry.patterns]
    assert len(seen) == len(set(seen))


@pytest.mark.claim("protected-paths")
def test_case_and_normalisation_hide_no_protected_name():
    paths = ("/w/node_modules", "/w/package.json", "/w/tsconfig.json", "/w/Äb.json")
    guarded = Protected((*paths, ".vscode", ".git/hooks"), ())
    for name in (
        "Node_Modules",
        "NODE_MODULES",
        "Package.json",
        "pack\u200bage.json",
        "TSCONFIG.JSON",
        "a\u0308B.json",
    ):
        assert guarded.state("/w", name) == CLOSED, name
    assert guarded.state("/w", ".\ufb01t") == FREE
    assert guarded.state("/w/.GIT", "Hooks") == guarded.state("/w", ".VSCode") == CLOSED


@pytest.mark.claim("protected-paths")
def test_the_mark_of_a_repository_is_compared_as_the_file_system_does():
    for pattern, free in (("=HEAD", {"Head", "head"}), ("=~HEAD", set())):
        guarded = Protected((pattern,), ())
        assert {name for name in ("HEAD", "Head", "head") if guarded.state("/w/bare", name) == FREE} == free
        assert guarded.state("/w/.git", "HEAD") == FREE  # git writes it
        assert guarded.state("/w/Head", "x") == (FREE if free else CLOSED)
