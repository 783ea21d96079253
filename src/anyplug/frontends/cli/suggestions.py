"""Suggest a command for an unknown word: by meaning, then by spelling."""

from difflib import get_close_matches

from anyplug.frontends.cli.commands import ALIASES, COMMANDS

MEANT = {
    "list": "plugin plugins extensions",
    "tools": "tool functions",
    "show": "info describe inspect view details about permissions",
    "call": "run-tool call-tool exec execute invoke use",
    "run": "command commands slash",
    "chain": "pipe pipeline workflow",
    "jobs": "job tasks background",
    "demo": "example examples tour",
    "install": "add get download pull clone fetch i",
    "search": "find discover browse catalogue registry",
    "try": "once",
    "outdated": "old stale newer",
    "update": "upgrade up-to-date rollback downgrade revert pin",
    "remove": "delete del erase purge",
    "enable": "on activate",
    "disable": "off deactivate pause",
    "config": "settings setting set configure preferences",
    "secret": "secrets env environment password token key",
    "leftovers": "orphans",
    "approve": "allow trust accept confirm",
    "deny": "reject refuse block forbid",
    "revoke": "unapprove untrust forget reset",
    "grant": "permit permission",
    "learn": "record watch trace",
    "connect": "link attach integrate setup claude opencode codex cursor windsurf cline goose",
    "mcp": "stdio",
    "export": "package bundle pack publish",
    "policy": "policies rules rego cupcake",
    "eval": "decide hook evaluate",
    "new": "init create scaffold template generate make",
    "dev": "develop live",
    "check": "validate lint verify",
    "serve": "start up daemon server resident host",
    "status": "top health ping uptime",
    "stop": "kill down shutdown quit exit",
    "reload": "restart refresh",
    "logs": "log tail output stderr",
    "audit": "history records calls journal trail",
    "doctor": "diagnose sandbox troubleshoot",
    "completion": "completions complete autocomplete",
}


def suggestion(word: str) -> str:
    """Return the command that was probably meant, or an empty string."""
    typed = word.lower().replace("_", "-")
    for command, words in MEANT.items():
        if typed in words.split():
            return command
    near = get_close_matches(typed, [*COMMANDS, *ALIASES], n=1)
    return ALIASES.get(near[0], near[0]) if near else ""
