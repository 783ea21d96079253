"""The colours and signs of all faces: the chat's themes and the page's style sheet are made from this one table.

Contrast of every text colour on `bg` and on `raised` is at least 4.5, of `border` at least 3. A sign is a shape and a
word, so that nothing is said by colour alone.
"""

from typing import Final, Literal

Token = Literal["bg", "raised", "text", "muted", "accent", "ok", "warn", "risk", "ask", "border"]

LIGHT: Final[dict[Token, str]] = {
    "bg": "#FBFBFA",
    "raised": "#F0F0EC",
    "text": "#1C1E21",
    "muted": "#5A5F66",
    "accent": "#1F5FBF",
    "ok": "#1E6B3A",
    "warn": "#7A4E00",
    "risk": "#A3232B",
    "ask": "#6B3FA0",
    "border": "#82868C",
}
DARK: Final[dict[Token, str]] = {
    "bg": "#16181B",
    "raised": "#212429",
    "text": "#E7E8EA",
    "muted": "#A3A9B2",
    "accent": "#7FB2FF",
    "ok": "#6FCF8F",
    "warn": "#F0B849",
    "risk": "#FF8A85",
    "ask": "#C9A6FF",
    "border": "#7A818B",
}

# What a call or a plugin may touch, and how a call stands: a shape, a word, and the token of its colour.
Sign = tuple[str, str, Token]
READS: Final[Sign] = ("○", "reads", "muted")
CHANGES: Final[Sign] = ("▲", "changes files", "warn")
NETWORK: Final[Sign] = ("▲", "uses the network", "warn")
PROGRAMS: Final[Sign] = ("▲", "runs programs", "warn")
AGENT: Final[Sign] = ("▲", "acts on the agent", "warn")
UNCONFINED: Final[Sign] = ("■", "not sandboxed", "risk")
RUNNING: Final[Sign] = ("●", "running", "accent")
DONE: Final[Sign] = ("✓", "done", "ok")
DENIED: Final[Sign] = ("✗", "denied", "risk")
FAILED: Final[Sign] = ("!", "failed", "risk")
WAITING: Final[Sign] = ("?", "waiting", "ask")
CANCELLED: Final[Sign] = ("–", "cancelled", "muted")


def risks(permissions: tuple[str, ...]) -> list[Sign]:
    """Return what permissions let a plugin touch, the most important first."""
    found: list[Sign] = []
    rows: tuple[tuple[str, Sign], ...] = (
        ("filesystem:write", CHANGES),
        ("network", NETWORK),
        ("shell:exec", PROGRAMS),
        ("calls:", AGENT),
        ("text:rewrite", AGENT),
        ("tools:call", AGENT),
    )
    for start, sign in rows:
        if sign not in found and any(permission.startswith(start) for permission in permissions):
            found.append(sign)
    if not found:
        found.append(READS)
    return found
