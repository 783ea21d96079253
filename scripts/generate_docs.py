"""Write the generated parts of docs/ (commands, error codes, settings, protected paths, claims), and requirements.md.

python scripts/generate_docs.py            writes stale pages
python scripts/generate_docs.py --check    names stale pages and exits with 1 if there are any
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

from anyplug.formats import registry
from anyplug.frontends.cli.commands import COMMANDS, GROUPS, aliases_of
from anyplug.frontends.cli.parsing import DESCRIPTION, command_parser, program_parser, usage
from anyplug.frontends.console import console_routes, endpoints, openapi
from anyplug.home import settings
from anyplug.model import protected_paths
from anyplug.model.errors import CODES, DONE
from anyplug.rego.builtins.every import TABLE
from anyplug.runtime.sandbox import profile
from claims import Held, held_claims
from compatibility import COLUMNS, table_of_clients
from python_api import sections
from requirements import requirements_page

DOCS = Path(__file__).parent.parent / "docs"
USUAL = profile.Limits()
DIFFERENTIAL = Path(__file__).parent.parent / "tests" / "rego" / "differential"
NOTE = "<!-- Written by scripts/generate_docs.py: change the program, then `make docs`. -->"

EXITS = {
    0: "done",
    1: "it failed",
    2: "the command or its arguments are wrong",
    3: "it was refused; nothing ran",
    4: "there is no such tool, plugin or job",
}

ABOUT_CLI = (
    "Put options of the program before the command, and options of a command after it. `-h` and `--help` explain the "
    "program or a command. Data goes to stdout; notes, warnings, errors and questions go to stderr. Every command "
    "accepts `--json`; [its output](json.md) and [the exit codes](errors.md) are stable."
)
ABOUT_API = (
    "`anyplug ui` and `anyplug serve --http HOST:PORT` serve this API below `/api/v1`; [how to use "
    "it](../how-to/http-api.md). [openapi.json](openapi.json) describes every request and answer, and "
    '`GET /api/v1/openapi.json` returns it. An error is `{"error": {"code", "message", "hint"}}` with [one of '
    "our codes](errors.md). Lists have `items`, and `next` if there is more: pass it as `cursor`. Under *who must "
    "ask*, `anybody` means a program with the token or a person's browser session; `a person` means only a browser "
    "session that `anyplug ui` opened; `nobody` means that no credentials are needed."
)
ABOUT_EVENTS = (
    "`GET /api/v1/events` sends server-sent events: `hello` first, then `question`, `answered`, `snapshot`, "
    "`plugin_found`, `call_started`, `call_progress`, `call_ended`, `note`, `notes_removed`, `submitted`, `panel`, "
    "`install` and `chain_step`. Each has an id. A client that comes back with `Last-Event-ID` gets what it missed; if "
    "that is no longer kept, it gets `reset`, and should read everything again. A comment every 15 seconds keeps the "
    "connection open."
)
ABOUT_PYTHON = (
    "Everything that `dir(anyplug)` shows is imported from `anyplug` itself, and is typed; "
    "[how to use it](../how-to/python.md). Names of its modules may change; [what stays](stability.md)."
)
ABOUT_ERRORS = (
    "Every failure has a code. It is in `error.code` of a result and in the audit record's `outcome`, and it "
    "determines the exit code of the command line. Codes are stable; messages and hints may improve."
)
ABOUT_PROBLEMS = (
    "A fault in a plugin's folder is not an error of a call: `list`, `show` and `check` report it as a problem, with "
    "a code, a message, a hint and a level. A plugin with an `error` does not load; with a `warning` it does. "
    "`check` exits with 1 if there is any problem."
)
ABOUT_SETTINGS = (
    "Your settings are in `settings.toml` in [the home folder](files.md). The file is optional, and may be a link "
    "to a regular file of at most 16 MiB. Unknown keys are errors, so that typos are noticed. A running daemon "
    "[applies changes](../how-to/resident.md#what-is-shared-and-what-is-not)."
)
ABOUT_CALLS = (
    "What exceeds these limits waits for its turn, and what cannot wait ends as `overloaded`. [How to limit "
    "calls](../how-to/limit-calls.md) explains them."
)
ABOUT_ROOTS = (
    "In this order. Of several plugins with one name the first wins, and the others are listed as `shadowed`. "
    "Folders given with `--plugin`, `--ext` or `-e` come before all of these; `--no-discover` leaves all of these "
    "out. Configurations named under `[mcp]` come last."
)
ABOUT_HTTP = (
    "For `anyplug serve --http`. Requests over a limit get the code `overloaded` and the time to wait. [How to offer "
    "your tools over HTTP](../how-to/http.md)."
)
ABOUT_AGENTS = (
    "Only [agents](mcp-server.md) get `overloaded` and `needs_answer`: the first for too many calls, the second when "
    "a call ends with a question and has to come back with the answer."
)
ABOUT_LIMITS = (
    "Resource limits of one plugin. A program that reaches a limit gets an error from the kernel, or is ended with "
    "the reason. [What is enforced, and how](../explanation/confinement.md)."
)

ABOUT_PROTECTED = """\
Some files are run or trusted later by your other programs without asking you: a git hook, `.envrc`, `~/.bashrc`. \
A plugin that may write to a folder could create such a file there, and it would run outside the sandbox. So the \
paths listed here are protected from every plugin, whether they exist or not. No such list can be complete: what is \
not listed is not protected.

- **Hidden** paths can be neither read nor written, not even with `filesystem:read` or `filesystem:write`. The \
sandbox covers what exists when it is created. If such a path appears or is replaced while a plugin runs that \
could read it, the plugin's programs are ended within milliseconds; the call's error says so, and the next start \
has it covered.
- **Read-only** paths can be read where the grants allow it, but not created, changed, renamed, replaced or \
removed. A plugin that tries gets "Read-only file system" (EROFS).

A grant that names the path, or a path below it, opens it: `anyplug grant NAME filesystem:write:.vscode`, \
`filesystem:read:~/.ssh/config`. For paths in a `.git` folder, `filesystem:write:.git` opens all of them; `git \
init` and `git clone` in a granted folder need that for the folder that they create. A grant of a surrounding \
folder, such as `filesystem:write:.`, does not open it. `anyplug show NAME` shows how many patterns are protected \
from a plugin, and with `--json` which ones.

Names are compared without regard to case. In a pattern, `*` at either end of a name matches anything.

Many programs save a file by writing another one next to it and renaming that: `git config` writes \
`.git/config.lock`. A plugin that has that file open would then have the protected one open. So the names of such \
drafts are protected like the file itself, and opened by the same grant: the file's name followed by `.`, `~`, \
`-`, `_` or `#` and anything, also with `.`, `#` or `.#` before it. It counts as a file if it is one, or if \
nothing exists there and its name contains a dot. Names that end in `.example`, `.sample`, `.template`, `.dist`, \
`.development`, `.production` or `.test` are not protected.

In a granted folder, `git commit`, `merge`, `fetch` and `stash` work without a grant of `.git`. Commands that \
change git's settings or continue later do not: `git remote add`, `push -u`, `branch -m`, `rebase`, `am`, \
`cherry-pick` of several commits, `bisect`, `worktree`, `submodule add`. Nor can git fetch a branch with the name \
`config`, `hooks`, `objects`, `modules`, `worktrees`, `commondir` or `gitdir`."""
ABOUT_WHERE = {
    "anywhere": "In every folder that a plugin may write to, at any depth",
    "project": "In the folder in which anyplug runs",
    "user": "In your home folder",
}
ALSO_PROTECTED = """\
Also protected: anyplug's own home (hidden), the folder of every other plugin that contains a `config.json` \
(hidden), every folder that is searched for plugins, the folders in your `PATH` outside the system's, \
`$XDG_CONFIG_HOME`, `$ZDOTDIR`, `$PYTHONSTARTUP` and `$BASH_ENV`, and the target of every link at one of these \
paths, with every link on the way there. A folder that contains such a link with a relative target cannot be \
renamed or replaced, so that the link keeps its target. The targets of links in `~/.ssh` and in the keyrings and \
password stores are hidden like these (for 5,000 entries, four folders deep, if the target is in your folders and \
contains neither the project nor the plugin). A plugin's own folders stay as writable as its format promises, even \
below a plugin root.

Such links are searched when the plugin's sandbox is created, in the folders that it may write to and directly in \
your home folder, in `~/.config` and in the other paths above: at most 30,000 files and folders (2,000 in one \
folder), 12 folders deep, for one second, outer folders first, and 2,000 targets. Folders with the names \
`node_modules`, `objects`, `__pycache__`, `site-packages`, `.cache`, `.venv`, `venv` and `target` are skipped.

The same search finds git repositories. What their configurations and your own name is protected, and whatever these \
include:

- What `core.hooksPath`, `include.path`, `includeIf.*.path`, `init.templateDir` and `core.attributesFile` name, \
whether it exists or not. Relative paths count from the work tree, also one that `core.worktree` moves, and from git's \
own folder.
- Files in commands: filters, diff and merge drivers, aliases, pagers, editors, helpers, hooks, tunnels and the like. \
A command is not parsed. Every word in it that is the path of a file protects that file, whether words end at blanks, \
quotes, shell operators, `=`, `,` or `:`, with quotes removed, and after every `/` in the word. It counts from the \
work tree, and from every folder that another word of the command names, as after `cd`. What a shell would fill in \
(`$X`, `$(…)`, `{…}`, `*`) is taken to be anything. Folders in `PATH=` and similar variables are protected as a whole, \
and so are the files of `-m MODULE`.
- Files in commands that do not exist, if the word contains a `/` or ends like a file name (`.sh`) and nothing in it \
would be filled in, except at its start.
- Existing files that any other setting names by their path.

So a file that a command only reads is protected too, such as `TODO.md` in an alias for `cat TODO.md`. What git itself \
writes in its folder (`HEAD`, `index`, `refs`, …) stays writable. At most 200 configurations are read, 256 KiB of \
each, as text; git is not run. Of a command, 20,000 characters and 1,000 words are read, and 40,000 files are looked \
for in all of them.

What the programs of plugins load from the folders above them is protected there, whether it exists or not: \
`node_modules` above a plugin with code for Node, `package.json` above one that has none, `tsconfig.json` above one \
in TypeScript that has none, `.venv` and `.python-version` above one that starts `uv`, `Gemfile` above one in Ruby \
that has none, `go.mod` and `go.sum` above one in Go that has none. Above a plugin with a manifest of its own, so is \
the root of a workspace that it could become a member of: `package.json` if it starts `npm`, `npx`, `pnpm`, `yarn` \
or `bun`, `deno.json`, `Cargo.toml`, `pyproject.toml` and `uv.toml`, `pom.xml`, `Directory.Build.props` and its \
like, `pubspec.yaml`. The same holds for what Gradle, Nim, Cabal, Stack, Dune, Julia, Zig, Bazel, `just` and `task` \
look for there. Otherwise `uv` and Go are told not to search there (`UV_NO_PROJECT`; `UV_NO_CONFIG`, or \
`UV_CONFIG_FILE` with your own settings, if the plugin may read them; `GOWORK=off`). A plugin that runs \
`npm install` in such a folder needs `filesystem:write:node_modules`."""
NOT_PROTECTED = """\
## What is not claimed

- Files of programs that the table does not list.
- Package managers' caches, such as `~/.cargo/registry`, `~/.cache/uv` and `~/.npm`: a plugin that was granted your \
home folder for writing can change what your builds take from there. Other plugins have caches of their own, unless \
they were granted the same place.
- Files that run only on request: a `Makefile`, the scripts of `package.json`, tests, a virtual environment, the \
program itself; and files that a protected file calls, such as the configuration of `lint-staged`.
- Files that a command of git's settings finds in other ways: by a name that it computes, by a name without `/` and \
ending that does not exist yet, by searching a folder (`make -C tools`, `node tools`), or because a file that it runs \
names them.
- Code and configuration of the project that editor extensions load, such as those of linters and tests.
- Text that agents read, such as `AGENTS.md` or `CLAUDE.md`: it may mislead a model, whose tools are still subject \
to policies.
- The targets of links at protected paths, if the search for them ended before (a plugin can fill a folder to \
achieve that) or if they were created after the sandbox. `anyplug reload` alone does not create a new sandbox.
- The targets of links in the folders of browsers and mail programs.
- A link of yours to the folder or the data of a plugin, or to anyplug's home around it. A plugin cannot create one in \
a granted folder, neither to its own folders nor to those of another plugin, which could create protected names there: \
links whose text contains the name of such a folder anywhere are refused, also links that lead elsewhere. A link that \
a plugin created before another plugin was added at its target stays.
- Drafts of protected files with unrelated names, such as those of `sed -i` (`sedXXXXXX`), if one of your programs \
saves that way while a plugin runs that may write to that folder; and folders that are renamed to protected ones.
- What git brings into your folders when you tell it to: a plugin that may write to a folder may write commits, \
branches and the index of its repository, and `git checkout`, `reset --hard`, `stash` or `merge` write files from \
there. A forged index can even contain a path in `.git`, which git 2.39 writes with `git checkout -- .`.
- What your programs write through a link that a plugin created at a place that is not protected, such as \
`.git/logs/HEAD` or a log file.
- A second path to the same folder, such as a bind mount of your home folder, or a hard link that you created \
yourself.
- The plugin's own folder, where its format lets it write there.

A separate anyplug process, the *broker*, makes the changes in granted folders for the plugin's programs, which \
the kernel only lets read there ([how it works](../explanation/confinement.md)). It needs Linux 5.19 and Landlock \
3 (Linux 6.2). Where `kernel.yama.ptrace_scope` is not 0 it needs user namespaces, or root. Where it cannot run, \
plugins that were granted write access to folders do not run (`not_enforceable`), unless they were approved with \
`--allow-unconfined`. Files without a name (`O_TMPFILE`) are refused in granted folders; programs then use a name. \
If the broker is killed, the plugin's programs are ended, and the call's error says so. Plugins without such \
grants have no broker and no overhead."""

ABOUT_PROFILES = (
    "A selection of tools for `anyplug mcp --profile NAME`: everything else does not exist for the agent. Changes "
    "apply while an agent is connected, and neither start nor stop a plugin. [More](mcp-server.md#profiles)."
)

# What each setting does. One that is missing here stops the generator.
MEANINGS = {
    "Settings.namespaces": "Give plugins their own mount, pid and network namespaces, where the kernel can. With "
    "`false`, only Landlock and seccomp apply, with [some "
    "gaps](../explanation/confinement.md#where-a-layer-is-missing), and calls of one Stavrobot plugin take turns on "
    "the real `/tmp/NAME`.",
    "Settings.confinement": "`off` switches the sandbox off: every plugin can do whatever you can. "
    "`ANYPLUG_CONFINEMENT` in the environment takes precedence.",
    "Settings.catalogues": "Where `anyplug search` looks, by names of your own: a JSON file, a folder or git "
    "repository with one, or `registry:` and the address of an MCP registry. None unless you name one; [what they "
    "contain](../how-to/find-plugins.md).",
    "Settings.formats": "Names of formats that [other packages bring](../how-to/add-a-format.md). Their code runs in "
    "the host, with your permissions and outside the sandbox.",
    "Settings.mcp": "MCP servers from other programs' configurations: the plugin's name, and the path of the "
    "configuration. [More](mcp.md#another-programs-configuration).",
    "Settings.http": "Access and limits for HTTP, `[http]`; see below.",
    "HttpSettings.hosts": "Other names that clients use for the server, like `box.example` or, with another port, "
    "`proxy.example:443`. Requests with any other name are refused.",
    "HttpSettings.origins": "Origins whose pages may use the server from a browser, like "
    "`https://agents.example.org`. They need the token as well.",
    "HttpSettings.access_log": "A file that gets one line of JSON for each request, without its query; none if empty. "
    "[How to rotate it](../how-to/operate.md#logs).",
    "HttpSettings.max_request_bytes": "Maximum size of a request's body in bytes. 4 MiB by default, enough for a file.",
    "HttpSettings.requests_per_s": "Requests per second of one client: a session, or a connection without one. After "
    "a pause, two seconds' worth may come at once. All clients together may send four times as many.",
    "HttpSettings.calls": "Calls at once, of all clients.",
    "HttpSettings.calls_per_client": "Calls at once of one client, so that no client uses up all calls.",
    "HttpSettings.streams": "Open streams for change notifications. They do not count as calls.",
    "HttpSettings.sessions": "Open sessions of the older protocol, for each profile.",
    "HttpSettings.session_idle_s": "Seconds after which an unused session ends; its client starts a new one.",
    "HttpSettings.receive_s": "Seconds that a request may take to arrive, head and body.",
    "HttpSettings.grace_s": "Seconds that running calls get when the server stops.",
    "Settings.policy": "How [policies](policies.md) are applied, `[policy]`; see below.",
    "Settings.warm": "Which interpreters are [started ahead of calls](../explanation/warm-interpreters.md), `[warm]`; "
    "see below.",
    "Settings.audit": "What the [audit](../how-to/audit.md) records and keeps, `[audit]`; see below.",
    "Settings.chat": "The model of `ask` and the chat, `[chat]`; see below.",
    "Settings.fleet": "The [fleet](../explanation/fleet.md) that this machine belongs to, `[fleet]`; see below.",
    "FleetSettings.nats": "Addresses of NATS servers of one cluster, such as `tls://nats.example.org:4222`.",
    "FleetSettings.credentials": "The file with this member's key and certificate, from `anyplug fleet config`.",
    "FleetSettings.ca": "A file with the certificate authority of the servers, if it is not a public one.",
    "FleetSettings.prefix": "What all subjects and stores of the fleet begin with, if several fleets share the "
    "servers.",
    "FleetSettings.join": "Offer the fleet's tools in every host of this home: commands, the daemon, agents. Without "
    "it, `anyplug --fleet` does so for one command.",
    "ChatSettings.model": "The [model](../how-to/models.md), as `--model` takes it.",
    "ChatSettings.base_url": "An OpenAI-compatible server, as `--base-url` takes it.",
    "ChatSettings.keep": "Stored conversations; the oldest are removed.",
    "AuditSettings.second_head": "A file outside the home folder for a second copy of the sealed head of the [audit "
    "chain](../explanation/audit-chain.md#the-sealed-head), for example on another disk. The usual home folder has "
    "one in `$XDG_STATE_HOME/anyplug` by default.",
    "AuditSettings.keep_days": "Remove records older than this many days, when a host starts and every day after. `0` "
    "keeps all. [The rest can still be verified](../how-to/audit.md#remove-old-records).",
    "AuditSettings.keep_mb": "Remove the oldest records beyond this many megabytes, at the same times. `0` keeps all.",
    "AuditSettings.agent_calls": "Also record the calls of agents' own tools that policies simply allow. Refusals, "
    "questions and changes are recorded in any case.",
    "WarmSettings.enabled": "Start the interpreters of Python and Node scripts ahead of calls, for plugins in use.",
    "CallSettings.at_once": "Running calls of one-shot plugins. Those of long-running ones start no process, so eight "
    "times as many run.",
    "CallSettings.per_plugin": "Running calls of each plugin; also times eight for long-running ones.",
    "CallSettings.waiting": "Calls that wait for their turn; one caller can fill half of it.",
    "CallSettings.wait_s": "How long a call waits for its turn at most.",
    "Settings.results": "How much of a result a model gets, `[results]`; see below.",
    "ResultSettings.model_chars": "Characters of a result that a model gets; it reads the rest by range.",
    "ResultSettings.keep_mb": "Megabytes of all kept results; the oldest are removed.",
    "ResultSettings.keep_days": "Days for which a result is kept.",
    "Settings.telemetry": "Spans and metrics for a collector, `[telemetry]`; see below.",
    "TelemetrySettings.enabled": "Send them. Needs `pip install 'anyplug[otel]'`.",
    "TelemetrySettings.endpoint": "The address of an OTLP/HTTP collector. Empty: as "
    "`OTEL_EXPORTER_OTLP_ENDPOINT` says, else `http://localhost:4318`.",
    "TelemetrySettings.interval_s": "Seconds between metrics.",
    "WarmSettings.budget_mb": "Memory for all interpreters that wait, in MB. `0` starts none.",
    "PolicySettings.fail_mode": "What happens if policies cannot decide about a call: they are broken, one of them "
    "fails, or a signal or the program does not answer. `closed` refuses the call, `open` lets it pass and records "
    "that in the audit trail.",
    "PolicySettings.program": "A `cupcake` program that decides about calls instead of the built-in engine. It is "
    "called as OpenCode's plugin calls it.",
    "PolicySettings.timeout_s": "Seconds that this program may take for a decision.",
    "PolicySettings.self_protection": "Refuse tools and commands of agents that would change a `.cupcake` folder, or "
    "files in the home folder other than those that plugins write.",
    "PolicySettings.signals": "Run the commands that policies require as signals. With `false`, policies that "
    "require any refuse.",
    "PolicySettings.record_days": "Days for which calls that policies decided about are kept for `anyplug policy "
    "replay`, without values that look like secrets. `0` keeps none.",
    "Settings.plugins": "A table for each plugin, `[plugins.NAME]`; see below.",
    "Settings.profiles": "A table for each profile, `[profiles.NAME]`; see below.",
    "Profile.plugins": "Plugins whose tools and commands are visible; all, if it is not set, and none with "
    "`[]`. `builtin` is the host itself.",
    "Profile.tools": "Shell patterns of visible names: full names, `PLUGIN/TOOL`, names for agents, and commands "
    "with their slash; all, if it is not set, and none with `[]`. A tool must match `plugins` too.",
    "Profile.surface": "`all` lists every tool, `search` lists three that find, describe and call the others, `auto` "
    "chooses by size. [More](mcp-server.md#surfaces).",
    "PluginSettings.arguments": "What a violation of a tool's schema does: `strict` refuses the call, `warn` lets "
    "the plugin decide and adds a warning to the metadata, `off` does not check. By default Cyclop One, zot and "
    "Workbench warn, Stavrobot is strict, and MCP servers check their arguments themselves.",
    "PluginSettings.timeout_s": "Seconds that a call of this plugin's tools may take. By default 30; 300 for "
    "Stavrobot's asynchronous tools, 60 for zot extensions and MCP servers. zot's interactive tools have no limit "
    "where panels can be shown.",
    "PluginSettings.max_output_bytes": "Bytes that a tool may write to stdout before it is ended. By default 1 MiB "
    "for Cyclop One and 16 MiB for Stavrobot; for MCP servers, bytes of one message, 16 MiB. zot extensions have a "
    "limit for each line instead, 4 MiB.",
    "PluginSettings.max_output_chars": "Characters of text, as JavaScript counts them, in a result of a Workbench "
    "plugin; the rest is cut off. By default 500,000.",
    "PluginSettings.hello_s": "Seconds from the start of a zot extension to its `hello`, by default 10; for a "
    "Workbench plugin, to load and register its tools, by default 10; for an MCP server, to its list of tools, by "
    "default 30. Extensions and servers that are built or downloaded first (`go run`, `npx`, `uv run`, `docker`) have "
    "120.",
    "PluginSettings.guard": "`required` refuses every call while this extension cannot be asked: it is down, given "
    "up, not approved, switched off or not installed. `optional` lets calls pass then.",
    "PluginSettings.calls": "Calls of this plugin at once; others wait for their turn. By default as under `[calls]`.",
    "Settings.calls": "How many calls run at once and wait, `[calls]`; see below.",
    "PluginSettings.limits": "Its resource limits, `[plugins.NAME.limits]`; see below.",
    "Limits.memory": "Bytes of each process's own memory, and of all its processes together. 4 GiB by default.",
    "Limits.processes": "Processes and threads together. If Node cannot start any, it waits forever.",
    "Limits.open_files": "Open files of each process.",
    "Limits.cpu_s": "CPU seconds of each process of a call. Long-running plugins have no such limit.",
    "Limits.file_size": "Bytes of each file that it writes. 2 GiB by default.",
    "Limits.disk": "Bytes in each of its own folders. 8 GiB by default.",
    "Limits.tmp": "Bytes in its `/tmp`, which is memory. 512 MiB by default.",
    "PluginSettings.on_silence": "What happens if this extension, asked about a call, gives no usable answer: none "
    "within 5 seconds, or an invalid one. `open` lets the call pass, as zot does, and records that in the audit "
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
    """Return the text of every page that is generated, fully or in part."""
    return {
        "reference/cli.md": cli(),
        "reference/errors.md": errors(),
        "reference/http-api.md": http_api(),
        "reference/openapi.json": openapi_json(),
        "reference/policies.md": with_section("reference/policies.md", "Rego builtins", rego_table()),
        "reference/protected-paths.md": protected(),
        "reference/python.md": python_page(),
        "reference/compatibility.md": with_section("reference/compatibility.md", "compatibility", tried()),
        "reference/settings.md": settings_page(),
        "explanation/security.md": with_section("explanation/security.md", "claims", claims_table()),
        "../tests/requirements.md": f"{NOTE}\n\n{requirements_page()}",
    }


def tried() -> str:
    """Write the table of clients and packages, and what its columns mean."""
    headings, rows = table_of_clients()
    meanings = "\n".join(f"- *{name}*: {COLUMNS[name]}" for name in headings[2:])
    return f"{table(headings, rows)}\n\n{meanings}"


def python_page() -> str:
    """Write the reference of the library."""
    return page([NOTE, "# The Python library", ABOUT_PYTHON, *sections()])


def openapi_json() -> str:
    """Write the OpenAPI document."""
    whole = openapi.document(console_routes.table())
    whole["info"]["version"] = "1"  # that of the API, so that a release alone does not change the file
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def http_api() -> str:
    """Write the table of the API's endpoints."""
    parts = [NOTE, "# HTTP API", ABOUT_API]
    for module in console_routes.MODULES:
        summary = (module.__doc__ or "").partition("\n")[0]
        rows = [
            (
                f"`{one.method} {endpoints.ROOT}{one.path}`",
                "nobody" if one.is_open else "a person" if one.is_for_people else "anybody",
                one.about + _queries(one),
            )
            for one in module.ENDPOINTS
        ]
        parts += [f"## {summary}", table(("method and path", "who must ask", "what it does"), rows)]
    parts += ["## Events", ABOUT_EVENTS]
    return page(parts)


def _queries(endpoint: endpoints.Endpoint) -> str:
    named = [query.name for query in endpoint.queries]
    return f" (parameters: {', '.join(f'`{name}`' for name in named)})" if named else ""


def with_section(name: str, section: str, text: str) -> str:
    """Replace the section between two marks in a page that is otherwise written by hand."""
    begin, end = f"<!-- {section}: written by scripts/generate_docs.py -->", f"<!-- end of {section} -->"
    before, _, rest = (DOCS / name).read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    if not rest or not after:
        sys.exit(f"docs/{name} lacks the marks {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def claims_table() -> str:
    """List the security claims by area, each with its tests."""
    areas: dict[str, list[Held]] = {}
    for held in held_claims():
        areas.setdefault(held.claim.area, []).append(held)
    return "\n\n".join(
        f"### {area}\n\n" + table(("claim", "what it does not cover", "tests"), [_claim_row(held) for held in helds])
        for area, helds in areas.items()
    )


def _claim_row(held: Held) -> tuple[str, str, str]:
    """Name a claim's tests by file: test names are long, and the id can be searched."""
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
        builtin = TABLE[name]  # every builtin of OPA must be offered or refused by name
        if builtin.refused:
            rows.append((f"`{name}`", "refused", builtin.refused))
        else:
            rows.append((f"`{name}`", "offered", differences.get(name, "")))
    offered = sum(row[1] == "offered" for row in rows)
    about = (
        f"OPA {known['version']} has {len(rows)} builtins: {offered} are offered and {len(rows) - offered} are refused "
        "by name when a policy is loaded. An error, below, ends the evaluation, which refuses the action."
    )
    return about + "\n\n" + table(("builtin", "", "why, or where it differs from OPA"), rows)


def is_current(path: Path, text: str) -> bool:
    """Whether a page is up to date."""
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
    ]
    for title, group in GROUPS.items():
        rows = [
            (", ".join(filter(None, [f"[`{name}`](#anyplug-{name})", _also(name)])), about[1])
            for name, about in group.items()
        ]
        parts += [f"### {title}", table(("command", "what it does"), rows)]
    for name, (_, purpose, _) in COMMANDS.items():
        parser, _run = command_parser(name)
        parts += [
            f"## anyplug {name}",
            f"{purpose}." + (f" Also: {_also(name)}." if _also(name) else ""),
            f"```text\n{usage(parser)}\n```",
            options_table(parser),
            f"```text\n{parser.epilog}\n```",
        ]
    return page(parts)


def _also(name: str) -> str:
    return ", ".join(f"`{alias}`" for alias in aliases_of(name))


def errors() -> str:
    """List the stable error codes and the exit codes."""
    parts = [
        "# Error codes",
        NOTE,
        ABOUT_ERRORS,
        "## Exit codes",
        table(("exit", "meaning"), [(str(code), meaning) for code, meaning in EXITS.items()]),
        "A command killed by a signal exits with 128 plus the signal's number, as in a shell: 130 after Ctrl-C.",
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
                ("`bad_manifest`", "The manifest, or the folder, violates a rule of its format."),
                ("`not_executable`", "A program cannot be started: mode, shebang line, interpreter."),
                ("`maybe_no_plugin`", "A folder that `list --all` shows may be a plugin; it is one if you approve it."),
                ("`name_taken`", "A tool's name belongs to another plugin or is reserved; the tool is left out."),
                ("`short_name_taken`", "A tool's name was short for a tool of a plugin that was approved earlier."),
                ("`bad_schema`", "A tool's input schema is not valid JSON Schema, so arguments are not checked."),
                ("`nothing_to_run`", "A zot extension contains a theme or skills but no program."),
                (
                    "`bad_registration`",
                    "An extension registered something unusable, or twice, or under a different name.",
                ),
                ("`bad_code`", "`check` only: an extension's program is not valid Python, or lacks its SDK."),
                ("`bad_server`", "An MCP server's entry cannot be used; the other servers load."),
                ("`not_pinned`", "An MCP server downloads code when it starts, without naming the version."),
                ("`not_covered`", "An extension or an MCP server runs code outside the plugin's folder."),
                ("`not_running`", "An extension should be running but is not; the message says why."),
                ("`not_granted`", "An extension wants to act on other plugins without the permission for it."),
                (
                    "`tools_changed`",
                    "Tools are new or changed since the approval, and are held back; the message is a diff.",
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
    """List the settings, the searched folders and the environment variables."""
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
            "## For the number of calls, under `[calls]`",
            ABOUT_CALLS,
            struct_table(settings.CallSettings),
            "## For long results, under `[results]`",
            "[Long results](../how-to/long-results.md) explains them.",
            struct_table(settings.ResultSettings),
            "## For OpenTelemetry, under `[telemetry]`",
            "[Traces and metrics](../how-to/telemetry.md) explains them. Changes apply to hosts that start later.",
            struct_table(settings.TelemetrySettings),
            "## For interpreters started ahead, under `[warm]`",
            "[Warm interpreters](../explanation/warm-interpreters.md) explains them.",
            struct_table(settings.WarmSettings),
            "## For the audit, under `[audit]`",
            struct_table(settings.AuditSettings),
            "## For the chat, under `[chat]`",
            struct_table(settings.ChatSettings),
            "## For a fleet, under `[fleet]`",
            struct_table(settings.FleetSettings),
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
                    ("`ANYPLUG_HOME`", "The home folder, unless `--home` is given."),
                    ("`XDG_DATA_HOME`", "Where the home folder is by default, on Linux."),
                    ("`ZOT_HOME`, `XDG_STATE_HOME`", "Where zot extensions are searched."),
                    (
                        "`ANYPLUG_WATCHDOG_MS`",
                        "The daemon names in its log what keeps its event loop busy for longer. For finding faults.",
                    ),
                    ("`ANYPLUG_CONFINEMENT`", "`off` or `on`; overrides `confinement` in the settings."),
                    (
                        "`ANYPLUG_RESIDENT`",
                        "`off`: commands do not use [the daemon](../how-to/resident.md).",
                    ),
                    ("`NO_COLOR`", "Switches colours off."),
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
            sys.exit(f"{key} has no description: add it to MEANINGS in scripts/generate_docs.py")
        default = f"`{toml(field.default)}`"
        if field.default is None:
            default = f"`{getattr(USUAL, field.name)}`" if struct is settings.Limits else "depends on the format"
        elif field.default in (msgspec.NODEFAULT, ()) or isinstance(field.default, msgspec.Struct):
            default = "none"
        rows.append((f"`{field.name}`", kind(field.type), default, MEANINGS[key]))
    return table(("key", "value", "default", "what it does"), rows)


def roots() -> list[str]:
    """Return the standard roots, independent of this machine."""
    kept = dict(os.environ)
    os.environ.update(HOME="/~", ZOT_HOME="/$ZOT_HOME")
    try:
        found = registry.standard_roots(settings.Home("/<home>"), "/.")
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return [path.removeprefix("/") for path in found]


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
    return [action for action in parser._actions if action.dest != "help" and action.help != argparse.SUPPRESS]  # noqa: SLF001 - there is no other way


def kind(annotation: object) -> str:
    """Describe the type of a setting."""
    choices = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        return kind(choices[0])
    if typing.get_origin(annotation) is tuple:
        return "a list of strings"
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return " or ".join(kind(choice) for choice in choices if choice is not types.NoneType)
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f'`"{choice}"`' for choice in choices)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return "a table"
    names: dict[object, str] = {bool: "`true` or `false`", float: "a number", int: "a whole number", str: "a string"}
    names[tuple[str, ...]] = "a list of strings"
    return names.get(annotation, "tables" if typing.get_origin(annotation) is dict else str(annotation))


def toml(value: object) -> str:
    """Write a default value in TOML."""
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
