"""What is said about a `settings.toml` that cannot be used."""

import os

import pytest

from anyplug.home import settings_mistakes
from anyplug.home.settings import find_home
from anyplug.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            '[plugins.tea]\nguard = "requird"',
            '[plugins.tea] guard is "requird", but must be "optional" or "required"',
            'did you mean "required"?',
        ),
        (
            '[plugins."my tea"]\narguments = 3',
            '[plugins."my tea"] arguments is 3, but must be "strict" or "warn" or "off"',
            settings_mistakes.CURE,
        ),
        (
            '[plugins.tea]\ntimeout_s = "a"',
            '[plugins.tea] timeout_s is "a", but must be a number',
            settings_mistakes.CURE,
        ),
        ("[plugins.tea]\ntimout_s = 1", "[plugins.tea] there is no setting timout_s", "did you mean timeout_s?"),
        (
            "[plugins.tea.limits]\nmemory = 1.5",
            "[plugins.tea.limits] memory is 1.5, but must be a whole number",
            settings_mistakes.CURE,
        ),
        ("[plugins]\ntea = 1", "[plugins] tea is 1, but must be a table", settings_mistakes.CURE),
        ("[http]\ncalls = 0", "[http] calls is 0, but must be a whole number above 0", settings_mistakes.CURE),
        (
            "[profiles.a]\ntools = [1]",
            "[profiles.a] tools is [1], but must be a list, each item a string",
            settings_mistakes.CURE,
        ),
        ("zzz = 1", "there is no setting zzz", "the settings are: namespaces, confinement, formats, mcp"),
        ("namespaces = 'no'", 'namespaces is "no", but must be true or false', settings_mistakes.CURE),
        ("[http\\n", "(at line 1, column 6)", "fix it there"),
    ],
)
def test_a_slip_in_the_settings_is_named_with_its_place_and_what_may_stand_there(text, message, hint, home, settings):
    settings(text)
    with pytest.raises(ConfigError) as caught:
        find_home(home).read_settings()
    assert caught.value.message.startswith(f"{home}/settings.toml: ")
    assert message in caught.value.message
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to a device", "folder", "too large"])
def test_settings_that_are_no_ordinary_file_are_an_error_and_hold_nobody_up(kind, home, tmp_path):
    home.mkdir(exist_ok=True)
    path, pipe = home / "settings.toml", tmp_path / "pipe"
    os.mkfifo(pipe)
    match kind:
        case "pipe":
            pipe.rename(path)
        case "link to a pipe":
            path.symlink_to(pipe)
        case "link to a device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "too large":
            with open(path, "wb") as file:
                file.truncate(1 << 40)
    with pytest.raises(
        ConfigError, match=r"cannot read .*: it (is not a regular file|has [0-9,]+ bytes; the limit is )"
    ):
        find_home(home).read_settings()


def test_settings_may_be_a_link_to_a_file(home, tmp_path):
    (tmp_path / "dotfiles.toml").write_text("[calls]\nat_once = 7\n")
    home.mkdir(exist_ok=True)
    (home / "settings.toml").symlink_to(tmp_path / "dotfiles.toml")
    assert find_home(home).read_settings().calls.at_once == 7
