"""Write a systemd unit for the daemon: restarted when it fails, ended in order, and with less access than its user.

What would take away what the sandbox of plugins needs (user namespaces, their mounts) is left out, with the reason.
"""

import os
import shlex
import sys
from typing import Final

from anyplug.home.settings import Home
from anyplug.model.errors import UsageError

NAME: Final = "anyplug.service"

UNIT: Final = """\
# Written by `anyplug serve --systemd`. To install it{where}:
#   {install}
[Unit]
Description=anyplug, the host of agents' plugins
Documentation=man:systemd.exec(5)
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
# Running calls may end first: longer than `grace_s` under [http] in settings.toml.
TimeoutStopSec=30
KillMode=mixed
Environment=ANYPLUG_HOME={home}
{user}UMask=0077
LimitNOFILE=65536
TasksMax=8192
NoNewPrivileges=yes
PrivateTmp={private_tmp}
ProtectSystem={protect_system}
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
{more}
# Not used, because each plugin is confined more tightly by a sandbox that needs them: RestrictNamespaces=,
# ProtectProc=, ProtectKernelTunables=, PrivateUsers=, SystemCallFilter=, MemoryDenyWriteExecute= (Node compiles).

[Install]
WantedBy={target}
"""
# A user's own manager has not the rights for these.
SYSTEM_ONLY: Final = """\
ProtectHostname=yes
ProtectClock=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
CapabilityBoundingSet=
AmbientCapabilities=
ReadWritePaths={home}
"""


def unit(home: Home, options: list[str], *, user: str = "") -> str:
    """Return the text of a unit, for the system if `user` is given, else for the user's own manager."""
    command = [*_program(), "--home", home.path, "serve", *options]
    for word in command:
        if "\n" in word or "%" in word:
            raise UsageError(f"systemd cannot start a command with {word!r}", "move it to another path")
    if user:
        place = f"/etc/systemd/system/{NAME}"
        install = f"sudo cp {NAME} {place} && sudo systemctl daemon-reload && sudo systemctl enable --now anyplug"
    else:
        install = (
            f"mkdir -p ~/.config/systemd/user && cp {NAME} ~/.config/systemd/user/ && systemctl --user daemon-reload"
            " && systemctl --user enable --now anyplug"
        )
    return UNIT.format(
        where=f" for the user {user}" if user else "",
        install=install,
        command=shlex.join(command),
        home=_quoted(home.path),
        user=f"User={user}\n" if user else "",
        private_tmp="yes" if user else "no",
        protect_system="strict" if user else "no",
        more=SYSTEM_ONLY.format(home=_quoted(home.path)) if user else "",
        target="multi-user.target" if user else "default.target",
    )


def _program() -> list[str]:
    """Return the words that start this program, independent of PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "anyplug")
    return [beside] if os.access(beside, os.X_OK) else [sys.executable, "-m", "anyplug"]


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text else text
