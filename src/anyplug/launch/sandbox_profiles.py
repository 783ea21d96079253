"""Build sandbox profiles: what a plugin was granted, and what its format, manifest and this machine add.

Enforces nothing itself.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping

import msgspec

import anyplug
from anyplug.catalog.approvals import Standing
from anyplug.formats import registry
from anyplug.home import digest, import_folders
from anyplug.home.location import home_path, known_homes, named_home, state_path, usual_path
from anyplug.home.settings import Home, Settings, binding_places
from anyplug.launch import code_above, git_settings, link_targets
from anyplug.model import permissions, protected_paths
from anyplug.model.types import Plugin
from anyplug.runtime.processes.program import Purpose
from anyplug.runtime.processes.program_search import which
from anyplug.runtime.sandbox import profile as profiles
from anyplug.runtime.sandbox import system_paths
from anyplug.runtime.sandbox.linux.hidden_paths import Links
from anyplug.runtime.sandbox.linux.protected_names import (
    ANY_CASE,
    CLOSED,
    GIT_MARK,
    Protected,
    unlinked,
)
from anyplug.runtime.sandbox.profile import Profile
from anyplug.runtime.warm.gate_folder import GATES

MOST_CODE = 200  # files that are mounted read-only one by one; beyond that, their folders are
MODULE_FOLDERS = frozenset({"node_modules", ".venv", "venv", "vendor"})
MODULES = "/node_modules/"
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
SHARED_TMP = ("/tmp/", "/var/tmp/")
MOST_LED_TO = 2_000  # places that are protected because a link leads there, or a setting of git
SYSTEM_PREFIXES = ("/usr", "/opt")  # not granted through a folder inside them
MOST_COMPARED = 100  # names of a folder, one of which tells whether its file system ignores case


class Allowances:
    """Builds profiles for the plugins of one project."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        project: str,
        variables: Mapping[str, str] = os.environ,
        plugin_folders: Callable[[], frozenset[str]] = frozenset,
        runs: tuple[str, ...] = (),
        write_grants: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        """`variables` are the user's: programs are looked up in that PATH.

        `plugin_folders` are protected. Programs in the folders `runs` may run. `write_grants` are those of all plugins.
        """
        self._write_grants = write_grants
        self._runs = runs
        self._home = home
        self.settings = settings
        self._project = project
        self._variables = variables
        self._plugin_folders = plugin_folders

    def profile(self, plugin: Plugin, standing: Standing, purpose: Purpose = "run") -> Profile:
        """Build the profile of a plugin's programs."""
        others = self._plugin_folders() - {plugin.path, plugin.found_at}
        configured = with_values(others)
        place = self._place(plugin, standing, purpose, others, configured)
        granted = ("network",) if purpose == "resolve" else standing.granted
        if not place.project:
            granted = tuple(grant for grant in granted if not _is_in_project(grant))
        granted, exact, misled = link_targets.followed(granted, place, self._write_grants())
        behind = self._behind_hidden(plugin, place, configured)
        place = msgspec.structs.replace(place, others=(*place.others, *(path for path in behind if path not in exact)))
        search_path = self._search_path()
        found = system_paths.survey(search_path, self._home.bin, place.user)
        if "shell:exec" in granted:
            found = system_paths.for_every_program(found)
        drawn = profiles.draw(granted, place, found, self.program_files, self._limits(plugin, purpose))
        drawn = _without_hidden_roots(drawn, place, exact)
        if standing.unconfined and any(grant.startswith("network:") for grant in drawn.unheld):
            drawn = profiles.widened(drawn)
        return msgspec.structs.replace(
            drawn,
            readable=(*drawn.readable, *self._read_by_format(plugin, purpose, search_path)),
            executable=(*drawn.executable, *self._launched(plugin, search_path), *self._runs),
            binding=tuple(filter(os.path.lexists, binding_places(self._project))),
            exact=exact,
            misled=misled,
        )

    def _place(
        self, plugin: Plugin, standing: Standing, purpose: Purpose, others: frozenset[str], configured: tuple[str, ...]
    ) -> profiles.Locations:
        """Return the folders that a profile is about.

        `others` are the folders of all other plugins, `configured` those among them that contain the user's values.
        """
        format, home = registry.BY_NAME[plugin.format], self._home
        return profiles.Locations(
            plugin=self._own_place(plugin, purpose),
            # Building dependencies needs the network, so it gets none of the plugin's data.
            data=format.data(plugin, home) if purpose != "resolve" else home.cache(plugin),
            cache=home.cache(plugin),
            home=home.path,
            user=os.path.realpath(os.path.expanduser("~")),
            others=(
                *registry.private_places(self._project, self.settings.formats),
                *self._other_homes(),
                *self._linked_from_home(),
                *configured,
            ),
            secret=tuple(os.path.join(folder, digest.CONFIG) for folder in sorted(others - {*configured})),
            project=self._project if self._project != "/" else "",  # services run there: it is not a project
            writes_beside_itself=purpose == "init" or (purpose == "run" and format.WRITES_BESIDE_ITSELF),
            code=() if purpose == "init" else _code(plugin, standing.files),
            protected=self._also_protected(plugin, standing),
        )

    def _behind_hidden(self, plugin: Plugin, place: profiles.Locations, configured: tuple[str, ...]) -> list[str]:
        """Return where links among the user's keys, and other plugins' linked values, lead: hidden like these."""
        values = filter(os.path.islink, (os.path.join(folder, digest.CONFIG) for folder in configured))
        targets = (*link_targets.behind_keys(place), *filter(os.path.exists, map(os.path.realpath, values)))
        own = (place.plugin, plugin.path, place.data, place.cache)
        held = (place.user, self._project, *own, place.home, *_this_program())
        return [path for path in dict.fromkeys(targets) if not link_targets.is_above(path, held)]

    def _read_by_format(self, plugin: Plugin, purpose: Purpose, search_path: str) -> tuple[str, ...]:
        """Return what a plugin's programs may read for its format, and for programs that its manifest names."""
        format, home = registry.BY_NAME[plugin.format], self._home
        variables = format.environment(plugin, home, dict(self._variables), frozenset())
        own = (
            *format.readable(plugin),
            *filter(None, map(self._variables.get, CERTIFICATES)),
            *(system_paths.libraries(variables) if purpose != "resolve" else ()),
        )
        return (
            *((GATES,) if purpose == "run" and not plugin.stays_up else ()),
            *_outside(home.path, _real((*own, *_on_the_way(self._programs(plugin), search_path)))),
            *(_scripts(plugin) if purpose == "resolve" else ()),
        )

    def guarded(self, plugin: Plugin, standing: Standing, folder: str, granted: tuple[str, ...]) -> Protected:
        """Return what is protected in a folder from a plugin, except for what is granted by its path."""
        opened = msgspec.structs.replace(standing, granted=(f"filesystem:write:{folder}",))
        profile = self.profile(plugin, opened)
        scopes = (permissions.scope_of(grant) for grant in granted if grant.startswith("filesystem:"))
        named = [os.path.normpath(os.path.join(self._project, os.path.expanduser(scope))) for scope in scopes if scope]
        return Protected((*profile.protected, *profile.hidden), named)

    def around_plugins(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what is protected, and what is hidden, because of the plugins that there are now.

        Each plugin's own folder is among it.
        """
        folders = sorted(self._plugin_folders())
        protected = (*folders, *code_above.paths(folders), *self._unlinked(folders))
        return protected, tuple(os.path.join(folder, digest.CONFIG) for folder in folders)

    def leads(self, path: str) -> tuple[str, bool]:
        """Return the target of a path, and whether a link on the way is in a folder that a plugin may write to."""
        scopes = [permissions.scope_of(grant) for grant in self._write_grants()]
        folders = [
            os.path.normpath(os.path.join(self._project, os.path.expanduser(scope))) for scope in scopes if scope
        ]
        if "" in scopes:
            user = os.path.expanduser("~")
            folders += [user, *profiles.USERS_FOLDERS, *profiles.SHARED_TMP, self._project or user]
        return link_targets.follow(path, tuple({*folders, *map(os.path.realpath, folders)}))

    def _unlinked(self, folders: Iterable[str]) -> tuple[str, ...]:
        """Return the patterns by which no plugin makes a link to the folder or the data of any plugin.

        In its own folders a plugin may create what is protected elsewhere, so a link in a granted folder, to another
        plugin's, would let the two put it there together.
        """
        links = Links()
        roots = registry.standard_roots(self._home, self._project, self.settings.formats)
        private = (*registry.private_places(self._project, self.settings.formats), *self._linked_from_home())
        kept = (os.path.expanduser("~"), self._project)
        with_data = (
            path for path in private if path not in roots and not link_targets.is_above(os.path.realpath(path), kept)
        )
        named = (*folders, *with_data, *self._other_homes())
        # A link to a folder above it is not on this list: paths through that one name the folder, too.
        return unlinked(
            place for path in named for place in links.on_the_way_to(path) if links.real(place) == links.real(path)
        )

    def _other_homes(self) -> tuple[str, ...]:
        """Return our folders besides this host's home: the default home, its state, and all homes that hosts have used.

        A host must not let its plugins read or change what binds the plugins of another home.
        """
        usual = (
            home_path(),
            home_path(usual_path()),
            os.path.abspath(os.path.expanduser(state_path())),
            *known_homes(),
        )
        return tuple(path for path in dict.fromkeys(usual) if path != self._home.path)

    def _linked_from_home(self) -> tuple[str, ...]:
        """Return where links in our home lead: a person may keep some of its folders on another disk."""
        try:
            with os.scandir(self._home.path) as entries:
                linked = [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]
        except OSError:
            return ()
        kept = (os.path.expanduser("~"), self._project, *_this_program())
        return tuple(path for path in linked if os.path.isdir(path) and not link_targets.is_above(path, kept))

    def _also_protected(self, plugin: Plugin, standing: Standing) -> tuple[str, ...]:
        """Return what is protected in addition to the table, if anything was granted that could contain it.

        Plugin roots, other plugins wherever they lie, code above them that they load, this program itself, places that
        variables name, what the configurations of git name, and what links at protected paths lead to: dotfiles are
        often links.
        """
        if not any(permissions.kind(grant) == "filesystem:write" for grant in standing.granted):
            return ()
        user = os.path.realpath(os.path.expanduser("~"))
        named = [self._variables.get(name, "") for name in ("XDG_CONFIG_HOME", "ZDOTDIR", "PYTHONSTARTUP", "BASH_ENV")]
        paths = [
            *registry.standard_roots(self._home, self._project, self.settings.formats),
            *binding_places(self._project),
            *filter(None, [self._home.second_head(self.settings)]),
            *(self._plugin_folders() - {plugin.path, plugin.found_at}),
            *code_above.paths({*self._plugin_folders(), plugin.path, plugin.found_at}),
            *_this_program(),
            *import_folders.protected(self._variables, self._project),
            *filter(os.path.isabs, named),
        ]
        searched = [path for path in self._search_path().split(":") if path and not path.startswith(SYSTEM_PREFIXES)]
        paths += filter(_is_environment, map(os.path.dirname, searched))  # the interpreter in `bin` loads code from it
        known = protected_paths.places(user, self._project, (*paths, *searched))
        absolute = [path for path in (*known.hidden, *known.read_only) if path.startswith("/")]
        scopes = [permissions.scope_of(grant) for grant in standing.granted if grant.startswith("filesystem:write")]
        opened = [os.path.join(self._project, os.path.expanduser(scope)) for scope in scopes if scope]
        tops = dict.fromkeys((user, *absolute), 1) | {os.path.join(user, ".config"): 2}
        tops |= dict.fromkeys((*opened, *((user, self._project) if "" in scopes else ())), link_targets.MOST_DEPTH)
        protected = Protected((*known.hidden, *known.read_only), ())
        ours = (os.path.expanduser("~"), self._home.named, named_home(), named_home(usual_path()))
        links = Links()
        led_to = [place for path in (*ours, *absolute) for place in links.on_the_way_to(path)]
        linked, repositories = link_targets.behind_protected_links(tops, protected, links)
        repositories += [path for folder in (*opened, self._project) for path in git_settings.above(folder)]
        by_git = git_settings.named(repositories, user, dict(self._variables))
        led_to += [*(place for path in by_git for place in links.on_the_way_to(path)), *linked]
        users = (user, self._project, *profiles.USERS_FOLDERS, *profiles.SHARED_TMP) if "" in scopes else ()
        roots = tuple(os.path.realpath(path).rstrip("/") + "/" for path in (*opened, *users))
        around = tuple(f"{path}/" for path in (user, self._project))  # a link to a parent folder protects nothing in it
        also = (
            path
            for path in dict.fromkeys(led_to)
            if path.startswith(roots)
            and not any(folder.startswith(path.rstrip("/") + "/") for folder in around)
            and (protected.state(*os.path.split(path)) != CLOSED or link_targets.is_relative(path, links))
        )
        marks = (f"{ANY_CASE}{GIT_MARK}",) if any(map(_ignores_case, (self._project, *opened, *users))) else ()
        unlinked = self._unlinked({*self._plugin_folders(), plugin.path, plugin.found_at})
        return (*paths, *marks, *unlinked, *itertools.islice(also, MOST_LED_TO))

    def _search_path(self) -> str:
        return self._variables.get("PATH", os.defpath)

    def program_files(self, program: str) -> tuple[str, ...]:
        """Return the files of a program in the user's PATH."""
        return system_paths.program_files(program, search_path=self._search_path())

    def _launched(self, plugin: Plugin, search_path: str) -> tuple[str, ...]:
        """Return the files of the programs outside its folder that its manifest names, as the user saw them."""
        return tuple(file for program in self._programs(plugin) for file in _files_of(program, plugin, search_path))

    def _programs(self, plugin: Plugin) -> list[str]:
        return registry.BY_NAME[plugin.format].programs(plugin, self._variables, self._project)

    def _limits(self, plugin: Plugin, purpose: Purpose) -> profiles.Limits:
        given = msgspec.structs.asdict(self.settings.of(plugin.name).limits)
        limits = profiles.Limits(**{name: value for name, value in given.items() if value})
        # A process that runs for weeks has used many seconds.
        return msgspec.structs.replace(limits, cpu_s=0) if plugin.stays_up and purpose == "run" else limits

    def _own_place(self, plugin: Plugin, purpose: Purpose) -> str:
        """Return the folder that programs see as the plugin's."""
        if purpose == "resolve":  # with network access it sees the scripts, but not the configuration
            return self._home.bin
        # A client's configuration is not for its servers to read.
        return self._home.data(plugin) if plugin.is_file else plugin.path


def _is_environment(folder: str) -> bool:
    """Return whether it is a virtual environment of Python."""
    return os.path.lexists(os.path.join(folder, "pyvenv.cfg"))


def with_values(folders: frozenset[str]) -> tuple[str, ...]:
    """Return the plugin folders that contain values set by the user, such as keys."""
    return tuple(folder for folder in sorted(folders) if os.path.lexists(os.path.join(folder, digest.CONFIG)))


def _without_hidden_roots(drawn: Profile, place: profiles.Locations, exact: tuple[str, ...]) -> Profile:
    """Remove folders that a grant of all files opens, but that are in a hidden one: the host may run anywhere."""
    links = Links()
    hidden = tuple(f"{links.real(path)}/" for path in drawn.hidden)
    roots = {path: os.path.realpath(path) for path in (place.user, *profiles.USERS_FOLDERS, place.project) if path}
    kept = (*exact, *map(os.path.realpath, drawn.measured))
    closed = {path for path, real in roots.items() if f"{real}/".startswith(hidden) and real not in kept}
    if not closed:
        return drawn
    fields = ("readable", "writable", "brokered")
    opened = {name: tuple(path for path in getattr(drawn, name) if path not in closed) for name in fields}
    return msgspec.structs.replace(drawn, **opened)


def _is_in_project(grant: str) -> bool:
    scope = permissions.scope_of(grant)
    return grant.startswith("filesystem:") and bool(scope) and not scope.startswith(("/", "~"))


def _this_program() -> tuple[str, ...]:
    """Return where this program and its libraries are, unless the system owns them: files put there run in hosts."""
    found = (sys.prefix, os.path.dirname(os.path.abspath(anyplug.__file__)))
    return tuple(path for path in found if not path.startswith(SYSTEM_PREFIXES))


def _scripts(plugin: Plugin) -> tuple[str, ...]:
    """Return the code in a plugin's folder: not what it wrote there, and not its configuration."""
    found = digest.take(plugin.path, every_file=False, before=None).as_digest()
    return _code(plugin, tuple(found.files))


def _code(plugin: Plugin, files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files that make up a plugin's code and must not change; folders of modules as a whole."""
    return tuple(os.path.join(plugin.path, name) for name in code_names(files))


def code_names(files: tuple[str, ...]) -> list[str]:
    """List the same, relative to the plugin's folder."""
    names = set()
    for name in files:
        head = next((at for at, part in enumerate(name.split("/")) if part in MODULE_FOLDERS), None)
        names.add(name if head is None else "/".join(name.split("/")[: head + 1]))
    if len(names) > MOST_CODE:
        names = {name.partition("/")[0] for name in names}
    return sorted(names)


def _on_the_way(commands: list[str], search_path: str) -> list[str]:
    """Return the folders with links to these programs, such as those of virtual environments.

    A plugin's private /tmp hides the shared one, and would hide them.
    """
    found = []
    for command in commands:
        path = which(command, path=search_path) or ""
        while path.startswith(SHARED_TMP) and os.path.islink(path) and os.path.dirname(path) not in found:
            found.append(os.path.dirname(path))
            path = os.path.join(os.path.dirname(path), os.readlink(path))
    return found


def _files_of(command: str, plugin: Plugin, search_path: str) -> tuple[str, ...]:
    found = which(command, path=search_path)
    if found is None or found.startswith(plugin.path + "/"):  # a link in its folder opens nothing outside
        return ()
    prefix = os.path.dirname(os.path.dirname(found))
    settings = os.path.join(prefix, "pyvenv.cfg")
    around = (settings, os.path.join(prefix, "lib")) if os.path.exists(settings) else ()
    return (*system_paths.program_files(found), *_real((*around, *_modules_of(os.path.realpath(found)))))


def _modules_of(program: str) -> tuple[str, ...]:
    """Return the modules next to which npm installed a program: it consists of them."""
    above, inside, _ = program.partition(MODULES)
    return (above + MODULES,) if inside else ()


def _outside(home: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Remove paths that are ours or contain what is ours, whatever a configuration names."""
    inside = f"{os.path.realpath(home)}/"
    return tuple(path for path in paths if not f"{path}/".startswith(inside) and not inside.startswith(f"{path}/"))


def _real(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in paths if os.path.exists(path))


def _ignores_case(folder: str) -> bool:
    """Return whether a folder's file system takes names that differ in case for the same, as far as its names tell."""
    try:
        with os.scandir(folder) as entries:
            for entry in itertools.islice(entries, MOST_COMPARED):
                if (other := entry.name.swapcase()) != entry.name:
                    return os.path.lexists(os.path.join(folder, other)) and os.path.samestat(
                        entry.stat(follow_symlinks=False), os.lstat(os.path.join(folder, other))
                    )
    except OSError:
        pass
    return False
