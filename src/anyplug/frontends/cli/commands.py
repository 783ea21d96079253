"""The commands by group: the module of each, its purpose and an example; and aliases."""

GROUPS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Use": {
        "list": ("list", "List plugins and their states", "anyplug list --state new"),
        "tools": ("list", "List callable tools, or describe one", "anyplug tools word_count"),
        "show": ("show", "Show everything about a plugin", "anyplug show word-count"),
        "call": ("call", "Call a tool", "anyplug call word_count text='to be or not to be' top=2"),
        "run": ("run", "Run a slash command, or list all of them", "anyplug run /greet Ada"),
        "chain": ("chain", "Call tools in sequence, passing results along", "anyplug chain steps.json"),
        "jobs": ("jobs", "List background jobs, or show or cancel one", "anyplug jobs"),
        "results": ("results", "List long results, or read one that a model got cut", "anyplug results 0123456789ab"),
        "chat": ("chat", "Chat with a model that calls your tools", "anyplug chat"),
        "ui": ("ui", "Open the console in a browser", "anyplug ui"),
        "ask": ("ask", "Ask a model that calls your tools, once", 'anyplug ask "how many words are in README.md?"'),
        "demo": ("demo", "Run the example plugins in a temporary home", "anyplug demo"),
    },
    "Install": {
        "install": (
            "install",
            "Install a plugin by folder, repository, archive or command",
            "anyplug install owner/repo",
        ),
        "update": ("install", "Update an installed plugin from its source", "anyplug update word-count"),
        "outdated": ("install", "List plugins that have a newer version", "anyplug outdated"),
        "try": ("try_source", "Run a plugin's tool once, and keep nothing", "anyplug try owner/repo hello name=Ada"),
        "search": ("search", "Search plugins in the catalogues that you configured", "anyplug search calendar"),
        "remove": ("install", "Remove a plugin", "anyplug remove word-count"),
        "enable": ("approve", "Turn a plugin on", "anyplug enable word-count"),
        "disable": ("approve", "Turn a plugin off without removing it", "anyplug disable word-count"),
        "config": ("config", "Show or change a plugin's configuration", "anyplug config weather units=metric"),
        "secret": ("secret", "Store, list or delete a plugin's secrets", "anyplug secret weather API_KEY"),
        "login": ("login", "Sign in to a plugin's MCP server, in a browser", "anyplug login wiki"),
        "leftovers": (
            "leftovers",
            "List, hand over or delete data of removed plugins",
            "anyplug leftovers word-count --give 1",
        ),
    },
    "Trust": {
        "approve": ("approve", "Review what a plugin asks for, and approve it", "anyplug approve word-count"),
        "deny": ("approve", "Deny a plugin", "anyplug deny word-count"),
        "revoke": ("approve", "Withdraw an approval or a denial", "anyplug revoke word-count"),
        "grant": (
            "approve",
            "Grant permissions to an approved plugin",
            "anyplug grant weather network:api.example.org",
        ),
        "ungrant": ("approve", "Withdraw permissions from a plugin", "anyplug ungrant weather network:api.example.org"),
        "learn": (
            "learn",
            "Call a tool and report which permissions it needs",
            "anyplug learn log_count path=/etc/passwd word=root",
        ),
    },
    "Agents": {
        "connect": ("connect", "Add anyplug to another agent's configuration", "anyplug connect claude"),
        "mcp": ("mcp", "Serve your plugins' tools over MCP on stdin and stdout", "anyplug mcp --profile work"),
        "export": ("export", "Package a plugin for another program", "anyplug export word-count --to mcpb"),
    },
    "Policies": {
        "policy": ("policy", "Write, check, test and explain policies", "anyplug policy init --harness opencode"),
        "eval": (
            "eval",
            "Decide on an agent's event, like `cupcake eval`",
            "anyplug eval --harness claude < event.json",
        ),
    },
    "Authors": {
        "new": ("new", "Create a plugin from a template", "anyplug new my-plugin --format zot --lang python"),
        "dev": ("dev", "Check, reload and call a plugin on each save", "anyplug dev . word_count text='so long'"),
        "check": ("check", "Check a plugin's folder for problems", "anyplug check ./my-plugin"),
        "test": ("plugin_test", "Run the test cases beside a plugin", "anyplug test ./my-plugin --junit report.xml"),
    },
    "Fleet": {
        "fleet": ("fleet_command", "Set up, approve for and watch a fleet of machines", "anyplug fleet demo"),
        "worker": (
            "worker_command",
            "Offer this machine's plugins to a fleet",
            "anyplug worker --nats tls://nats.example.org --credentials gpu1.creds --label gpu=a100",
        ),
    },
    "Operate": {
        "serve": ("serve", "Run the daemon that commands and agents share", "anyplug serve --detach"),
        "status": ("serve", "Show the daemon's status", "anyplug status"),
        "stop": ("serve", "Stop the daemon", "anyplug stop"),
        "reload": ("run", "Restart plugins in the daemon", "anyplug reload word-count"),
        "logs": ("logs", "Show a plugin's log", "anyplug logs word-count --follow"),
        "audit": ("audit", "Show or verify the record of all calls", "anyplug audit --since 2h --outcome denied"),
        "doctor": ("doctor", "Test the sandbox on this machine by trying to escape it", "anyplug doctor"),
        "completion": (
            "completion",
            "Print a completion script for your shell",
            'eval "$(anyplug completion bash)"',
        ),
    },
}
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}
ALIASES = {"ls": "list", "rm": "remove", "uninstall": "remove", "ps": "status"}


def aliases_of(name: str) -> list[str]:
    """Return a command's aliases."""
    return [alias for alias, command in ALIASES.items() if command == name]
