"""The commands: in which module each lives, and what it is for in a few words."""

COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("plugins", "list the plugins that were found, and where they stand"),
    "tools": ("plugins", "list the tools that can be called, or show one"),
    "show": ("plugins", "show everything about a plugin"),
    "call": ("call", "call a tool"),
    "approve": ("trust", "approve a plugin after seeing what it asks for"),
    "deny": ("trust", "deny a plugin"),
    "revoke": ("trust", "take an approval or a denial back"),
    "grant": ("trust", "give an approved plugin more permissions"),
    "ungrant": ("trust", "take permissions away from a plugin"),
    "enable": ("trust", "switch a plugin on"),
    "disable": ("trust", "switch a plugin off"),
    "install": ("packages", "install a plugin from a folder or a git repository"),
    "update": ("packages", "update an installed plugin from where it came"),
    "remove": ("packages", "remove a plugin"),
    "config": ("config", "show and change a plugin's configuration"),
    "logs": ("logs", "show what a plugin wrote to stderr"),
    "jobs": ("jobs", "list the runs of asynchronous tools, or look at one"),
    "check": ("check", "say everything that is wrong with a plugin's folder"),
    "audit": ("audit", "show the record of all calls, or verify it"),
    "demo": ("demo", "run the example plugins and show what happens"),
}
