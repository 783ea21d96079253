"""Where things are, and how the person set them: the home folder, the roots, `settings.toml`.

`settings.toml` lies in the home folder:

    namespaces = true            # a private /tmp for each call, where the kernel can

    [plugins.NAME]
    arguments = "strict"         # strict | warn | off: what a violation of the schema does
    timeout_s = 60               # for each call of this plugin's tools
    max_output_bytes = 1048576
    hello_s = 10                 # how long an extension may take to say hello
    guard = "required"           # optional | required: whether calls that it guards are refused while it is down
    on_silence = "closed"        # open | closed: what it means if it does not answer about a call in time
"""

import os
import sys
from typing import Literal

import msgspec

from anyplug.errors import ConfigError

Arguments = Literal["strict", "warn", "off"]


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the person set for one plugin. Empty means: as its format has it."""

    arguments: Arguments | None = None
    timeout_s: float | None = None
    max_output_bytes: int | None = None
    hello_s: float | None = None
    guard: Literal["optional", "required"] = "optional"
    on_silence: Literal["open", "closed"] = "open"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`settings.toml`."""

    namespaces: bool = True
    plugins: dict[str, PluginSettings] = {}

    def of(self, plugin: str) -> PluginSettings:
        """Give one plugin's settings."""
        return self.plugins.get(plugin, _DEFAULTS)


_DEFAULTS = PluginSettings()


class Home:
    """The folder that holds all that is ours. Nothing is created before it is needed."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self.plugins = os.path.join(self.path, "plugins")
        self.store = os.path.join(self.path, "anyplug.db")
        self.settings = os.path.join(self.path, "settings.toml")
        self.bin = os.path.join(self.path, "bin")

    def data(self, plugin: str) -> str:
        """Give the folder in which a plugin keeps its data."""
        return os.path.join(self.path, "data", plugin)

    def cache(self, plugin: str) -> str:
        """Give the folder for what can be made again."""
        return os.path.join(self.path, "cache", plugin)

    def files(self, plugin: str) -> str:
        """Give the folder for files that a plugin's tools gave back."""
        return os.path.join(self.path, "files", plugin)

    def log(self, plugin: str) -> str:
        """Give the path of a plugin's log."""
        return os.path.join(self.path, "logs", f"{plugin}.log")

    def read_settings(self) -> Settings:
        """Read `settings.toml`; raises ConfigError if it cannot be understood."""
        try:
            with open(self.settings, "rb") as file:
                raw = file.read()
        except FileNotFoundError:
            return Settings()
        except OSError as error:
            raise ConfigError(f"cannot read {self.settings}: {error.strerror}") from error
        import tomllib  # 27 ms, and most people have no such file

        try:
            return msgspec.convert(tomllib.loads(raw.decode()), Settings)
        except (ValueError, msgspec.ValidationError) as error:
            raise ConfigError(
                f"{self.settings}: {error}", "`docs/reference/settings.md` lists what can be set"
            ) from error


def find_home(given: str | os.PathLike[str] | None = None) -> Home:
    """Find the home folder: as given, else $ANYPLUG_HOME, else the platform's data folder."""
    if given:
        return Home(os.fspath(given))
    if from_environment := os.environ.get("ANYPLUG_HOME"):
        return Home(from_environment)
    if sys.platform == "darwin":
        return Home("~/Library/Application Support/anyplug")
    if sys.platform == "win32":
        return Home(os.path.join(os.environ.get("LOCALAPPDATA", "~"), "anyplug"))
    return Home(os.path.join(os.environ.get("XDG_DATA_HOME") or "~/.local/share", "anyplug"))


def standard_roots(home: Home, folder: str) -> list[str]:
    """List the folders that are searched for plugins, first to last, from the project folder outwards."""
    return [
        os.path.join(folder, ".anyplug", "plugins"),
        os.path.join(folder, ".zot", "extensions"),
        os.path.join(folder, "plugins"),
        os.path.join(folder, "data", "tools"),
        home.plugins,
        os.path.join(zot_home(), "extensions"),
        cyclop_plugins(),
    ]


def cyclop_plugins() -> str:
    """Give the folder in which Cyclop One's users keep their plugins."""
    return os.path.join(os.path.expanduser("~"), ".cyclopone", "plugins")


def zot_home() -> str:
    """Give the folder in which zot's users keep their extensions and logs."""
    if given := os.environ.get("ZOT_HOME"):
        return os.path.expanduser(given)
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/zot")
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "zot")
