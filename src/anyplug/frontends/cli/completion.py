"""`completion`: scripts that let a shell complete commands, options and names.

On every Tab a script runs this command again, with the words so far, and it prints the candidates. Nothing is started.
Names are untrusted and end up on a person's command line, so only those are offered that a shell treats as plain text.
"""

import argparse
import re

from anyplug.frontends.cli import commands, render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.commands import ALIASES
from anyplug.frontends.cli.parsing import (
    KEY_VALUE,
    TAKES_A_VALUE,
    Command,
    Parser,
    command_at,
    command_parser,
    program_parser,
)

PLAIN = re.compile(r"[A-Za-z0-9_./@][A-Za-z0-9_./@%+,:=-]*")  # plain text for every shell

BASH = """\
_anyplug() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(anyplug completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${COMPREPLY[0]-} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o bashdefault -o default -F _anyplug anyplug
"""
ZSH = """\
#compdef anyplug
_anyplug() {
    local line
    local -a found suffix
    while IFS= read -r line; do
        found+=("$line")
    done < <(anyplug completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ! $#found )); then
        _files
        return
    fi
    [[ $found[1] == *= ]] && suffix=(-S '')
    _describe anyplug found $suffix
}
if [[ $funcstack[1] == _anyplug ]]; then
    _anyplug "$@"
else
    compdef _anyplug anyplug
fi
"""
FISH = """\
function __anyplug_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -e words[1]
    set -l found (anyplug completion fish -- $words "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c anyplug -f -a '(__anyplug_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
EPILOG = """\
bash  add this to ~/.bashrc: eval "$(anyplug completion bash)"
zsh   add this to ~/.zshrc, after compinit: eval "$(anyplug completion zsh)"
fish  run this once: anyplug completion fish > ~/.config/fish/completions/anyplug.fish"""

Candidates = dict[str, str]  # with a description, for shells that show it


def _completion(parser: Parser) -> Command:
    parser.epilog = EPILOG
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help=", ".join(SCRIPTS))
    parser.add_argument("words", nargs="*", default=[], help=argparse.SUPPRESS)  # the words that the scripts pass
    return completion


COMMANDS = {"completion": _completion}


def completion(session: Session) -> int:
    """Print the script, or the candidates for words that a script passed."""
    options = session.options
    if "--" not in options.typed:
        script = SCRIPTS[options.shell]
        if options.json:
            session.print_json({"shell": options.shell, "script": script})
        else:
            render.trusted(script)
        return 0
    found = candidates(options.typed[options.typed.index("--") + 1 :] or [""])  # argparse removes a second `--`
    if options.json:
        session.print_json(list(found))
    else:
        for name, purpose in found.items():
            render.trusted(_line(options.shell, name, purpose))
    return 0


def candidates(words: list[str]) -> Candidates:
    """Return the completions of the last word; none where files are expected. Raises AnyplugError."""
    *before, current = _joined(words)
    if "=" in current:  # a value
        return {}
    at = command_at(before)
    if at < len(before):
        options = program_parser().parse_args(before[:at])
        found = _of_command(options, before[at], before[at + 1 :], current)
    elif before and before[-1] in TAKES_A_VALUE:
        return {}
    else:
        found = _options(program_parser()) if current.startswith("-") else _commands()
    return {name: purpose for name, purpose in found.items() if name.startswith(current)}


def _of_command(options: argparse.Namespace, name: str, before: list[str], current: str) -> Candidates:
    if name == "help":
        return _commands()
    name = ALIASES.get(name, name)
    if name not in commands.COMMANDS:
        return {}
    parser, _ = command_parser(name)
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001 - as in parsing
    valued = {word: action for action in actions for word in action.option_strings if action.nargs != 0}
    if before and before[-1] in valued:
        return _values(options, valued[before[-1]], [])
    if current.startswith("-") and "--" not in before:
        return _options(parser)
    given = [
        word
        for number, word in enumerate(before)
        if not word.startswith("-") and (not number or before[number - 1] not in valued)
    ]
    positionals = [action for action in actions if not action.option_strings]
    if not positionals or (len(given) >= len(positionals) and positionals[-1].nargs not in {"*", "+"}):
        return {}
    return _values(options, positionals[min(len(given), len(positionals) - 1)], given)


def _values(options: argparse.Namespace, action: argparse.Action, given: list[str]) -> Candidates:
    """Return the values of an argument or option, by its choices or by the kind that its metavar names."""
    if action.choices is not None:
        return dict.fromkeys(map(str, action.choices), "")
    kind = str(action.metavar)
    if kind == "CLIENT":
        from anyplug.manage.connect.clients import CLIENTS  # only needed for `connect`

        return {name: client.title for name, client in CLIENTS.items()}
    if kind == "COMMAND" and given:
        kind = KEY_VALUE  # of a tool passed to `run`
    with Session(options) as session:
        return _names(session, kind, given)


def _names(session: Session, kind: str, given: list[str]) -> Candidates:
    found: list[str] = []
    if kind in {"PLUGIN", "TOOL|PLUGIN"}:
        found += [entry.name for entry in session.snapshot.entries]
    if kind in {"TOOL", "TOOL|PLUGIN", "COMMAND"}:
        found += [tool.name for tool in session.snapshot.callable_tools]
    if kind == "COMMAND":
        found += [f"/{name}" for name, (_, entry) in session.snapshot.commands.items() if entry.state == "approved"]
    if kind == KEY_VALUE and session.snapshot.knows(given[0]) and not given[0].startswith("/"):
        properties = session.snapshot.tool(given[0])[0].input_schema.get("properties")
        found += [f"{name}=" for name in (properties if isinstance(properties, dict) else ())]
    return dict.fromkeys(filter(PLAIN.fullmatch, sorted(found)), "")


def _commands() -> Candidates:
    return {name: commands.COMMANDS[ALIASES.get(name, name)][1] for name in (*commands.COMMANDS, *ALIASES)}


def _options(parser: Parser) -> Candidates:
    return {word: action.help or "" for action in parser._actions for word in action.option_strings}  # noqa: SLF001 - as above


def _joined(words: list[str]) -> list[str]:
    """Rejoin words that bash splits at each `=`."""
    found: list[str] = []
    for number, word in enumerate(words):
        if found and (word == "=" or words[number - 1] == "="):
            found[-1] += word
        else:
            found.append(word)
    return found


def _line(shell: str, name: str, purpose: str) -> str:
    """Format a candidate as a shell's script expects it."""
    if shell == "zsh":
        name = name.replace(":", r"\:")
    between = {"bash": "", "zsh": ":", "fish": "\t"}[shell]
    return f"{name}{between}{purpose}" if purpose and between else name
