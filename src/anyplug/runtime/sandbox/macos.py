"""The same profile for macOS, as text for `sandbox-exec`. Only the text is tested: we have no Mac.

The last matching rule decides. There are no namespaces and no limits for a process tree: /tmp is the machine's own, so
the host points TMPDIR at the plugin's cache.
"""

from anyplug.runtime.sandbox.profile import Profile

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
SYSTEM_READABLE = (
    "/System", "/Library/Frameworks", "/Library/Apple", "/usr/lib", "/usr/share", "/private/etc/localtime",
    "/private/etc/ssl", "/private/etc/hosts", "/private/etc/passwd", "/private/var/db/timezone", "/private/var/db/dyld",
    "/opt/homebrew/lib", "/opt/homebrew/Cellar", "/opt/homebrew/opt", "/usr/local/lib", "/dev",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
ALWAYS = """\
(version 1)
(deny default)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow ipc-posix-sem)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.logger")
  (global-name "com.apple.SecurityServer"))"""
RESOLVING = """\
(allow mach-lookup
  (global-name "com.apple.dnssd.service")
  (global-name "com.apple.trustd.agent"))
(allow network-outbound (literal "/private/var/run/mDNSResponder"))"""


def text(profile: Profile) -> str:
    """Write the profile in the sandbox's language."""
    own = (*profile.measured, *(path for path in profile.executable if _is_ours(path, profile)))
    rules = [
        ALWAYS,
        _rule("allow file-read*", (*SYSTEM_READABLE, *profile.readable, *profile.writable, *profile.executable)),
        _rule("allow file-map-executable", (*SYSTEM_READABLE, *profile.readable, *profile.executable)),
        _rule("allow process-exec*", profile.executable),
        _rule("allow file-write*", (*DEVICES, *profile.writable)),
        # From here on: our files are closed, the plugin's own places in them are open, its code is read-only.
        _rule("deny file-read* file-write* process-exec*", profile.hidden),
        _rule("allow file-read* file-map-executable", own),
        _rule("allow process-exec*", tuple(path for path in own if path in profile.executable)),
        _rule("allow file-write*", tuple(path for path in profile.writable if _is_ours(path, profile))),
        _rule("deny file-write*", (*profile.code, *profile.binding)),
        *_network(profile),
    ]
    return "\n".join(rule for rule in rules if rule) + "\n"


def command(profile: Profile, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs another one confined to the profile."""
    return (SANDBOX_EXEC, "-p", text(profile), *argv)


def _network(profile: Profile) -> list[str]:
    rules = []
    if profile.network == "all":
        rules += ["(allow network-outbound (remote ip))", "(allow network-inbound (local ip))", RESOLVING]
        rules.append("(allow system-socket)")
    if profile.network == "ports":
        rules += [f'(allow network-outbound (remote tcp "*:{port}"))' for port in profile.ports]
    if profile.unix:
        rules.append("(allow network* (remote unix-socket) (local unix-socket))")
    return rules


def _is_ours(path: str, profile: Profile) -> bool:
    return any(path.startswith(folder + "/") for folder in profile.hidden)


def _rule(deed: str, paths: tuple[str, ...]) -> str:
    """Write a rule; `subpath` matches a file itself, too."""
    if not paths:
        return ""
    filters = "\n".join(f"  (subpath {_quote(path)})" for path in dict.fromkeys(paths))
    return f"({deed}\n{filters})"


def _quote(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
