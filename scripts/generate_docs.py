"""Writes the parts of docs/reference that the program itself knows, and the table of requirements in tests/.

python scripts/generate_docs.py            writes what is stale
python scripts/generate_docs.py --check    exits 1 if anything is, and says what
"""

import argparse
import inspect
import json
import os
import sys
import textwrap
import tomllib
import types
import typing
from collections.abc import Sequence
from pathlib import Path

import msgspec

from anyplug.frontends.cli.commands import COMMANDS
from anyplug.frontends.cli.parsing import DESCRIPTION, command_parser, program_parser
from anyplug.home import settings
from anyplug.model import protected_paths
from anyplug.model.errors import CODES, DONE
from anyplug.rego.builtins import TABLE
from anyplug.runtime.sandbox import profile
from claims import Held, held_claims
from requirements import requirements_page

DOCS = Path(__file__).parent.parent / "docs"
USUAL = profile.Limits()
DIFFERENTIAL = Path(__file__).parent.parent / "tests" / "rego" / "differential"
NOTE = "<!-- Written by scripts/generate_docs.py: change the program, then `make docs`. -->"

EXITS = {
    0: "done",
    1: "it was tried and failed",
    2: "the command or the arguments were wrong",
    3: "it was refused; nothing ran",
    4: "there is no such tool, plugin or job",
}

ABOUT_CLI = (
    "Options of the program stand before the command, options of a command after it. `-h` and `--help` explain "
    "the program or a command. Data goes to stdout; notes, warnings, errors and questions go to stderr. Every "
    "command takes `--json`; [the shapes](json.md) and [the exit codes](errors.md) are stable."
)
ABOUT_ERRORS = (
    "Every failure has a code. It stands in `error.code` of a result and in the audit record's `outcome`, and it "
    "decides what the command line exits with. Codes are stable; messages and hints may get better."
)
ABOUT_PROBLEMS = (
    "What is wrong with a plugin's folder is not an error of a call: `list`, `show` and `check` give it as a "
    "problem, with a code, a message, a hint and a level. An `error` keeps the plugin from loading; a `warning` "
    "does not. `check` exits with 1 if there is any."
)
ABOUT_SETTINGS = (
    "The person's own choices lie in `settings.toml` in [the home folder](files.md). There need not be one. A "
    "key that is not listed here is an error, so that a slip of the pen is noticed. A host that is up "
    "[follows what you change](../how-to/resident.md#what-is-shared-and-what-is-not)."
)
ABOUT_ROOTS = (
    "In this order; of several plugins of one name the first wins, and the others are listed as `shadowed`. "
    "Folders given with `--plugin`, `--ext` or `-e` come before all of these; `--no-discover` leaves all of these out. "
    "Configurations named under `[mcp]` come last."
)
ABOUT_HTTP = (
    "For `anyplug serve --http`. Whatever is over a limit gets the code `overloaded` and is told when to come back. "
    "[How to offer your tools over HTTP](../how-to/http.md)."
)
ABOUT_AGENTS = (
    "`overloaded` and `needs_answer` come only to [agents](mcp-server.md): of more calls than anybody needs, and of a "
    "question that ends a call until it comes back with the answer."
)
ABOUT_LIMITS = (
    "What one plugin may use. A program that meets a limit gets an error from the kernel, or is ended with the reason. "
    "[What is held, and how](../explanation/confinement.md)."
)

ABOUT_PROTECTED = """\
Some files are run or trusted later by other programs of yours, without your asking: a git hook, `.envrc`, \
`~/.bashrc`. A plugin that may write to a folder could leave such a file there, and it would run outside the \
sandbox. So these paths are protected from every plugin, whether they exist or not.

- **Hidden** paths can be neither read nor written, not even with `filesystem:read` or `filesystem:write`. The \
sandbox covers what is there when it is made. When such a path appears or is replaced while a plugin runs that could \
read it, the plugin's programs are ended within milliseconds; the call's error says so, and the next start has it \
covered.
- **Read-only** paths can be read where the grants allow it, and not be created, changed, renamed, replaced or \
removed. A plugin that tries gets "Read-only file system" (EROFS).

A grant that names the path, or a path below it, opens it: `anyplug grant NAME filesystem:write:.vscode`, \
`filesystem:read:~/.ssh/config`. For paths in a `.git` folder, `filesystem:write:.git` opens all of them; `git \
init` and `git clone` in a granted folder need that for the folder that they make. A grant of a folder around it, \
such as `filesystem:write:.`, does not. `anyplug show NAME` says how many patterns are protected from a plugin, and \
with `--json` which.

Names are compared without regard to case. In a pattern, `*` at an end of a name stands for anything.

Many programs save a file by writing another beside it and renaming that: `git config` writes `.git/config.lock`. \
Whoever has that file open then has the protected one open. So the names of such drafts are protected as the file \
is, and opened by the same grant: the file's name followed by `.`, `~`, `-`, `_` or `#` and anything, also with `.`, \
`#` or `.#` before it. It counts as a file if it is one, or if nothing is there and its name contains a dot. Names \
that end in `.example`, `.sample`, `.template`, `.dist`, `.development`, `.production` or `.test` are free.

In a granted folder, `git commit`, `merge`, `fetch` and `stash` work without a grant of `.git`. What changes git's \
settings or goes on later does not: `git remote add`, `push -u`, `branch -m`, `rebase`, `am`, `cherry-pick` of several \
commits, `bisect`, `worktree`, `submodule add`. Nor can git fetch a branch that is called `config`, `hooks`, \
`objects`, `modules`, `worktrees`, `commondir` or `gitdir`."""
ABOUT_WHERE = {
    "anywhere": "In every folder that a plugin may write to, at any depth",
    "project": "In the folder in which anyplug runs",
    "user": "In your home folder",
}
ALSO_PROTECTED = """\
Also protected: anyplug's own home (hidden), the folder of every other plugin that holds a `config.json` (hidden), \
every folder in which plugins are looked for, the folders of your \
`PATH` outside the system's, `$XDG_CONFIG_HOME`, `$ZDOTDIR`, `$PYTHONSTARTUP` and `$BASH_ENV`, and whatever a link \
at one of these paths leads to, with every link on the way there. A folder in which there is such a link with a \
relative text is neither renamed nor replaced, so that the link leads where it led. What links in `~/.ssh` and in the \
keyrings and password stores lead to is hidden as they are (of 5,000 entries, four folders inside one another, if it \
lies in your folders and neither the project nor the plugin lies in it). A plugin's own folders stay as writable as \
its format promises, also below a plugin root.

Such links are looked for when the plugin's sandbox is made, in the folders that it may write to and directly in \
your home folder, in `~/.config` and in the other paths above: at most 30,000 files and folders (2,000 of one \
folder), 12 folders inside one another and one second, the outer ones first, and 500 targets. Folders called \
`node_modules`, `objects`, `__pycache__`, `site-packages`, `.cache`, `.venv`, `venv` and `target` are not looked \
into."""
NOT_PROTECTED = """\
## What is not claimed

- What runs only when somebody asks for it: a `Makefile`, the scripts of `package.json`, tests, a virtual \
environment, the program itself; and what a protected file calls, such as the configuration of `lint-staged`.
- Code and configuration of the project that editors' extensions load, such as that of linters and tests.
- Text that agents read, such as `AGENTS.md` or `CLAUDE.md`: it may mislead a model, whose tools policies still \
hold.
- What links at protected paths lead to, where the look for them ended before (a plugin can fill a folder so that it \
does) or where they were made after the sandbox was. `anyplug reload` alone makes no new sandbox.
- What links in the folders of browsers and mail programs lead to.
- A link of yours to a plugin's own folder, or to anyplug's home around it. A plugin cannot lay one in a granted \
folder: links that name such a folder anywhere in their text are refused.
- Drafts of protected files whose names do not say so, such as those of `sed -i` (`sedXXXXXX`), if a program of yours \
saves that way while a plugin runs that may write to that folder; and folders that are renamed to protected ones.
- What git brings into your folders when you tell it to: a plugin that may write to a folder may write commits, \
branches and the index of its repository, and `git checkout`, `reset --hard`, `stash` or `merge` write files from \
there. A forged index can even hold a path in `.git`, which git 2.39 writes with `git checkout -- .`.
- What your programs write through a link that a plugin laid at a place that is not protected, such as \
`.git/logs/HEAD` or a log file.
- A second path to the same folder, such as a bind mount of your home folder, or a hard link that you made \
yourself.
- The plugin's own folder, where its format lets it write there.

A process of anyplug's, the *broker*, makes the changes in granted folders in place of the plugin's programs, which \
the kernel lets read there and not write ([how it works](../explanation/confinement.md)). It needs Linux 5.19 and \
Landlock 3 (Linux 6.2). Where `kernel.yama.ptrace_scope` is not 0 it needs user namespaces, or root. Where it \
cannot run, plugins that were granted folders to write to are not run (`not_enforceable`), unless they were \
approved with `--allow-unconfined`. Files without a name (`O_TMPFILE`) are refused in granted folders; programs \
then take a name. If the broker is killed, the plugin's programs are ended, and the call's error says so. \
Plugins without such grants have no broker, and pay nothing."""

ABOUT_PROFILES = (
    "A view for `anyplug mcp --profile NAME`: what is not in it is not there. A change is noticed while an agent is "
    "connected, and starts or ends no plugin. [More](mcp-server.md#profiles)."
)

# What each setting does. One that is missing here stops the generator.
MEANINGS = {
    "Settings.namespaces": "Give plugins mount, pid and network namespaces of their own, where the kernel can. With "
    "`false`, Landlock and seccomp hold alone, with "
    "[some gaps](../explanation/confinement.md#where-a-layer-is-missing), and calls "
    "of one Stavrobot plugin take turns on the real `/tmp/NAME`.",
    "Settings.confinement": "`off` lets every plugin do whatever you can: nothing holds it to its permissions. "
    "`ANYPLUG_CONFINEMENT` in the environment has the last word.",
    "Settings.mcp": "MCP servers that other programs are set up with: the plugin's name, and the path of the program's "
    "configuration. [More](mcp.md#another-programs-configuration).",
    "Settings.http": "Who may come in over HTTP, and how much at once, `[http]`; see below.",
    "HttpSettings.hosts": "Further names by which clients reach the server, like `box.example` or, with another port, "
    "`proxy.example:443`. A request under any other name is refused.",
    "HttpSettings.origins": "Origins whose pages may use the server from a browser, like `https://agents.example.org`. "
    "Each needs the token as well.",
    "HttpSettings.max_request_bytes": "Bytes of one request's body. 4 MiB by default, which has room for a file.",
    "HttpSettings.requests_per_s": "Requests a second of one client: a session, or a connection where there is none. "
    "After a pause, two seconds' worth may come at once. All clients together may have four times as many.",
    "HttpSettings.calls": "Calls under way at once, of all clients.",
    "HttpSettings.calls_per_client": "Calls under way at once of one client, so that nobody takes every place.",
    "HttpSettings.streams": "Streams that are open to hear of changes. They take no place from calls.",
    "HttpSettings.sessions": "Sessions of the older protocol that are open at once, for each profile.",
    "HttpSettings.session_idle_s": "Seconds after which a session that nobody uses ends; its client begins a new one.",
    "HttpSettings.receive_s": "Seconds that a request may take to arrive, head and body.",
    "HttpSettings.grace_s": "Seconds that calls under way get when the server ends.",
    "Settings.policy": "How [policies](policies.md) hold, `[policy]`; see below.",
    "Settings.audit": "Where the end of the audit chain is kept, `[audit]`; see below.",
    "AuditSettings.second_head": "A file outside the home folder in which the sealed head of the "
    "[audit chain](../explanation/audit-chain.md#the-sealed-head) is kept, too, such as one on another disk. The usual "
    "home folder has one in `$XDG_STATE_HOME/anyplug` by default.",
    "PolicySettings.fail_mode": "What it means if policies cannot decide about a call: they are broken, one of them "
    "fails, a signal or the program gives no answer. `closed` refuses the call, `open` lets it pass and notes it in "
    "the audit.",
    "PolicySettings.program": "A `cupcake` program that decides about calls in place of the built-in engine. It is "
    "asked as OpenCode's plugin asks it.",
    "PolicySettings.timeout_s": "Seconds that this program may take for a decision.",
    "PolicySettings.self_protection": "Refuse tools and commands of agents that would change a `.cupcake` folder, or "
    "what is in the home folder beside what plugins write.",
    "PolicySettings.signals": "Run the commands that policies ask for as signals. With `false`, policies that ask for "
    "any refuse.",
    "PolicySettings.record_days": "Days for which calls that policies decided about are kept for "
    "`anyplug policy replay`, without what looks like a secret. `0` keeps none.",
    "Settings.plugins": "A table for each plugin, `[plugins.NAME]`; see below.",
    "Settings.profiles": "A table for each profile, `[profiles.NAME]`; see below.",
    "Profile.plugins": "Plugins whose tools and commands are in view. `builtin` is the host itself.",
    "Profile.tools": "Patterns, as shells have them, of names that are in view: full names, `PLUGIN/TOOL`, names for "
    "agents, and commands with their slash. A tool has to fit `plugins`, too.",
    "Profile.surface": "`all` lists every tool, `search` three that find, describe and call the others, `auto` "
    "switches by size. [More](mcp-server.md#surfaces).",
    "PluginSettings.arguments": "What a violation of a tool's schema does: `strict` refuses the call, `warn` lets the "
    "plugin decide and puts a warning into the metadata, `off` does not check. By default Cyclop One, zot and "
    "Workbench warn, Stavrobot is strict, and MCP servers check for themselves.",
    "PluginSettings.timeout_s": "Seconds that a call of this plugin's tools may take. By default 30; 300 for "
    "Stavrobot's asynchronous tools, 60 for zot's and for MCP servers'. zot's interactive tools have no limit "
    "where panels can be shown.",
    "PluginSettings.max_output_bytes": "Bytes that a tool may write to stdout before it is ended. By default 1 MiB for "
    "Cyclop One and 16 MiB for Stavrobot; for MCP servers, bytes of one message, 16 MiB. zot's extensions have a limit "
    "for each line in its place, 4 MiB.",
    "PluginSettings.max_output_chars": "Characters of text, as JavaScript counts them, that an answer of a Workbench "
    "plugin may have; the rest is cut off. By default 500,000.",
    "PluginSettings.hello_s": "Seconds that a zot extension may take from its start to its `hello`, by default 10, or "
    "60 if it is built or fetched first (`go run`, `npx`, `uv run`); a Workbench plugin to load and register its "
    "tools, by default 10; an MCP server to its list of tools, by default 30.",
    "PluginSettings.guard": "`required` refuses every call while this extension is not there to be asked: down, given "
    "up, not approved, switched off, not installed. `optional` lets calls pass then.",
    "PluginSettings.limits": "How much it may use, `[plugins.NAME.limits]`; see below.",
    "Limits.memory": "Bytes of each process's own memory, and of what all of its processes use together. 4 GiB by "
    "default.",
    "Limits.processes": "Processes and threads together. Node waits forever if it gets none.",
    "Limits.open_files": "Open files of each process.",
    "Limits.cpu_s": "Seconds of CPU of each process of a call. Plugins that stay up have no such limit.",
    "Limits.file_size": "Bytes of each file that it writes. 2 GiB by default.",
    "Limits.disk": "Bytes in each of its own folders. 8 GiB by default.",
    "Limits.tmp": "Bytes in its `/tmp`, which is memory. 512 MiB by default.",
    "PluginSettings.on_silence": "What it means if this extension, asked about a call, gives no usable answer: none "
    "within 5 seconds, or one that breaks the rules. `open` lets the call pass, as zot does, and notes it in the audit "
    "trail; `closed` refuses it.",
}


def main() -> int:
    """Write or check every generated page."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the docs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    check = parser.parse_args().check
    stale = {name: text for name, text in pages().items() if not is_current(DOCS / name, text)}
    if check:
        for name in stale:
            print(f"{os.path.normpath(f'docs/{name}')} is stale", file=sys.stderr)
        if stale:
            print("hint: `make docs` writes it again", file=sys.stderr)
        return 1 if stale else 0
    for name, text in stale.items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote {os.path.normpath(f'docs/{name}')}")
    return 0


def pages() -> dict[str, str]:
    """Make every page that is generated, whole or in part."""
    return {
        "reference/cli.md": cli(),
        "reference/errors.md": errors(),
        "reference/policies.md": with_section("reference/policies.md", "Rego builtins", rego_table()),
        "reference/protected-paths.md": protected(),
        "reference/settings.md": settings_page(),
        "explanation/security.md": with_section("explanation/security.md", "claims", claims_table()),
        "../tests/requirements.md": f"{NOTE}\n\n{requirements_page()}",
    }


def with_section(name: str, section: str, text: str) -> str:
    """Put a generated section into a page that people write: between its two marks."""
    begin, end = f"<!-- {section}: written by scripts/generate_docs.py -->", f"<!-- end of {section} -->"
    before, _, rest = (DOCS / name).read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    if not rest or not after:
        sys.exit(f"docs/{name} lacks the marks {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def claims_table() -> str:
    """List the security claims by area, each with the tests that hold it."""
    areas: dict[str, list[Held]] = {}
    for held in held_claims():
        areas.setdefault(held.claim.area, []).append(held)
    return "\n\n".join(
        f"### {area}\n\n" + table(("claim", "what it does not cover", "held by"), [_claim_row(held) for held in helds])
        for area, helds in areas.items()
    )


def _claim_row(held: Held) -> tuple[str, str, str]:
    """Name a claim's tests by file: names are long, and one can look for the id."""
    files = dict.fromkeys(test.partition("::")[0] for test in held.tests)
    count = f"{len(held.tests)} tests" if len(held.tests) > 1 else "1 test"
    places = ", ".join(f"[{Path(file).name}](../../{file})" for file in files)
    return f"{held.claim.text} (`{held.claim.id}`)", held.claim.limits, f"{count} in {places}"


def rego_table() -> str:
    """List every builtin of OPA: offered, or refused with the reason, and where it differs. Raises KeyError."""
    known = json.loads((DIFFERENTIAL / "capabilities.json").read_text(encoding="utf-8"))
    differences = tomllib.loads((DIFFERENTIAL / "differences.toml").read_text(encoding="utf-8"))["differences"]
    if unknown := set(differences) - set(known["builtins"]):
        raise KeyError(unknown)
    rows = []
    for name in sorted(known["builtins"]):
        builtin = TABLE[name]  # a builtin of OPA must be offered or refused by name
        if builtin.refused:
            rows.append((f"`{name}`", "refused", builtin.refused))
        else:
            rows.append((f"`{name}`", "offered", differences.get(name, "")))
    offered = sum(row[1] == "offered" for row in rows)
    about = (
        f"OPA {known['version']} has {len(rows)} builtins: {offered} are offered and {len(rows) - offered} are refused "
        "when a policy is loaded, by name. What is called an error here ends the evaluation, which refuses the action."
    )
    return about + "\n\n" + table(("builtin", "", "why, or where it differs from OPA"), rows)


def is_current(path: Path, text: str) -> bool:
    """Whether a page says already what it should."""
    return path.exists() and path.read_text(encoding="utf-8") == text


def cli() -> str:
    """Describe the command line, from its own parsers."""
    parts = [
        "# Command line",
        NOTE,
        DESCRIPTION,
        "```text\nanyplug [OPTIONS] COMMAND ...\n```",
        ABOUT_CLI,
        "## Options of the program",
        options_table(program_parser()),
        "## Commands",
        table(
            ("command", "what it does"),
            [(f"[`{name}`](#anyplug-{name})", summary) for name, (_, summary) in COMMANDS.items()],
        ),
    ]
    for name, (_, summary) in COMMANDS.items():
        parser, _run = command_parser(name)
        parts += [
            f"## anyplug {name}",
            f"{summary[0].upper()}{summary[1:]}.",
            f"```text\n{usage(parser)}\n```",
            options_table(parser),
        ]
    return page(parts)


def errors() -> str:
    """List the stable error codes and what the command line exits with."""
    parts = [
        "# Error codes",
        NOTE,
        ABOUT_ERRORS,
        "## Exit codes",
        table(("exit", "meaning"), [(str(code), meaning) for code, meaning in EXITS.items()]),
        "A command that a signal ended exits with 128 and the signal's number, as in a shell: 130 after Ctrl-C.",
    ]
    for number, meaning in EXITS.items():
        rows = [(f"`{name}`", code.meaning) for name, code in CODES.items() if code.exit == number]
        if number != DONE:
            parts += [f"## Exit {number}: {meaning}", table(("code", "meaning"), rows)]
    parts += [
        ABOUT_AGENTS,
        "## Problems",
        ABOUT_PROBLEMS,
        table(
            ("code", "meaning"),
            [
                ("`bad_manifest`", "The manifest, or the folder, breaks a rule of its format."),
                ("`not_executable`", "A program cannot be started as it is: mode, shebang line, interpreter."),
                ("`name_taken`", "A tool's name belongs to another plugin or is reserved; the tool is left out."),
                ("`bad_schema`", "A tool's input schema is not valid JSON Schema, so arguments are not checked."),
                ("`nothing_to_run`", "An extension of zot's holds a theme or skills and no program."),
                ("`bad_registration`", "An extension registered something unusable, or twice, or has another name."),
                ("`bad_code`", "`check` only: an extension's program is no valid Python, or lacks its SDK."),
                ("`bad_server`", "An MCP server's entry cannot be used; the other servers load."),
                ("`not_pinned`", "An MCP server fetches code when it starts, and does not say which version."),
                ("`not_covered`", "An extension or an MCP server runs code that lies outside of the plugin's folder."),
                ("`not_running`", "An extension should be up and is not; the message says why."),
                ("`not_granted`", "An extension wants to act on other plugins in a way that it was not granted."),
                (
                    "`tools_changed`",
                    "Tools are new or altered since the approval, and are held back; the message is a diff.",
                ),
            ],
        ),
    ]
    return page(parts)


def protected() -> str:
    """List the protected paths."""
    parts = ["# Protected paths", NOTE, ABOUT_PROTECTED]
    for where, heading in ABOUT_WHERE.items():
        rows = [
            (" ".join(f"`{pattern.removeprefix('=')}`" for pattern in entry.patterns), entry.effect, entry.why)
            for entry in protected_paths.TABLE
            if entry.where == where
        ]
        parts += [f"## {heading}", table(("paths", "effect", "why"), rows)]
    return page([*parts, ALSO_PROTECTED, NOT_PROTECTED])


def settings_page() -> str:
    """List what `settings.toml` may hold, and where things are looked for."""
    docstring = inspect.getdoc(settings) or ""
    example = textwrap.dedent(docstring[docstring.index("\n    ") :])
    return page(
        [
            "# Settings",
            NOTE,
            ABOUT_SETTINGS,
            f"```toml\n{example.strip()}\n```",
            "## For the host",
            struct_table(settings.Settings),
            "## For HTTP, under `[http]`",
            ABOUT_HTTP,
            struct_table(settings.HttpSettings),
            "## For policies, under `[policy]`",
            struct_table(settings.PolicySettings),
            "## For the audit, under `[audit]`",
            struct_table(settings.AuditSettings),
            "## For one plugin, under `[plugins.NAME]`",
            struct_table(settings.PluginSettings),
            "## Limits, under `[plugins.NAME.limits]`",
            ABOUT_LIMITS,
            struct_table(settings.Limits),
            "## What an agent sees, under `[profiles.NAME]`",
            ABOUT_PROFILES,
            struct_table(settings.Profile),
            "## Where plugins are looked for",
            ABOUT_ROOTS,
            "\n".join(f"{at}. `{root}`" for at, root in enumerate(roots(), 1)),
            "## Environment variables",
            table(
                ("variable", "what it does"),
                [
                    ("`ANYPLUG_HOME`", "The home folder, unless `--home` names one."),
                    ("`XDG_DATA_HOME`", "Where the home folder is by default, on Linux."),
                    ("`ZOT_HOME`, `XDG_STATE_HOME`", "Where zot's extensions are looked for."),
                    ("`ANYPLUG_CONFINEMENT`", "`off` or `on`, whatever `confinement` in the settings says."),
                    (
                        "`ANYPLUG_RESIDENT`",
                        "`off`: commands work by themselves, also while [a host is up](../how-to/resident.md).",
                    ),
                    ("`NO_COLOR`", "No colours, whatever the terminal can do."),
                ],
            ),
        ]
    )


def struct_table(struct: type[msgspec.Struct]) -> str:
    """Describe the fields of one table of the settings file."""
    rows = []
    for field in msgspec.structs.fields(struct):
        key = f"{struct.__name__}.{field.name}"
        if key not in MEANINGS:
            sys.exit(f"nobody has said what {key} means: add it to MEANINGS in scripts/generate_docs.py")
        default = f"`{toml(field.default)}`"
        if field.default is None:
            default = f"`{getattr(USUAL, field.name)}`" if struct is settings.Limits else "as the format has it"
        elif field.default in (msgspec.NODEFAULT, ()) or isinstance(field.default, msgspec.Struct):
            default = "none"
        rows.append((f"`{field.name}`", kind(field.type), default, MEANINGS[key]))
    return table(("key", "value", "default", "what it does"), rows)


def roots() -> list[str]:
    """Give the standard roots, in words that hold for everybody."""
    kept = dict(os.environ)
    os.environ.update(HOME="/~", ZOT_HOME="/$ZOT_HOME")
    try:
        found = settings.standard_roots(settings.Home("/<home>"), "/.")
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return [path.removeprefix("/") for path in found]


def usage(parser: argparse.ArgumentParser) -> str:
    """Say in one line how a command is written."""
    words = [parser.prog]
    for action in actions(parser):
        metavar = str(action.metavar or action.dest)
        if action.option_strings:
            shown = action.option_strings[0]
            words.append(f"[{shown}]" if action.nargs == 0 else f"[{shown} {metavar}]")
        else:
            forms = {"?": f"[{metavar}]", "*": f"[{metavar} ...]", "+": f"{metavar} [{metavar} ...]"}
            words.append(forms.get(str(action.nargs), metavar))
    return " ".join(words)


def options_table(parser: argparse.ArgumentParser) -> str:
    """Describe each argument and option of a parser."""
    rows = []
    for action in actions(parser):
        metavar = str(action.metavar or action.dest)
        names = [name if action.nargs == 0 else f"{name} {metavar}" for name in action.option_strings] or [metavar]
        rows.append((", ".join(f"`{name}`" for name in names), action.help or ""))
    return table(("argument", "meaning"), rows)


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """List a parser's arguments, without --help."""
    return [action for action in parser._actions if action.dest != "help"]  # noqa: SLF001 - there is no other way


def kind(annotation: object) -> str:
    """Say in words what a setting may be."""
    choices = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        return kind(choices[0])
    if typing.get_origin(annotation) is tuple:
        return "a list of texts"
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return " or ".join(kind(choice) for choice in choices if choice is not types.NoneType)
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f'`"{choice}"`' for choice in choices)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return "a table"
    names: dict[object, str] = {bool: "`true` or `false`", float: "a number", int: "a whole number", str: "text"}
    names[tuple[str, ...]] = "a list of texts"
    return names.get(annotation, "tables" if typing.get_origin(annotation) is dict else str(annotation))


def toml(value: object) -> str:
    """Write a default as the settings file has it."""
    return str(value).lower() if isinstance(value, bool) else "[]" if value == () else str(value)


def table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Write a table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(parts: list[str]) -> str:
    """Join the parts of a page."""
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
