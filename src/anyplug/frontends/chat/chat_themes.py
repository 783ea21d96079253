"""The chat's colours: Textual themes, and styles of rows in the transcript, from the token table."""

from textual.theme import BUILTIN_THEMES, Theme

from anyplug.frontends.design_tokens import DARK, LIGHT, Token

# The terminal's own sixteen colours, for those who prefer them: a name that both rich and Textual can be given.
ANSI_DARK: dict[Token, str] = {
    "bg": "default",
    "raised": "default",
    "text": "default",
    "muted": "white",
    "accent": "bright_blue",
    "ok": "bright_green",
    "warn": "bright_yellow",
    "risk": "bright_red",
    "ask": "bright_magenta",
    "border": "bright_black",
}
ANSI_LIGHT: dict[Token, str] = {
    **ANSI_DARK,
    "muted": "bright_black",
    "accent": "blue",
    "ok": "green",
    "warn": "yellow",
    "risk": "red",
    "ask": "magenta",
}
PALETTES: dict[str, dict[Token, str]] = {
    "dark": DARK,
    "light": LIGHT,
    "ansi-dark": ANSI_DARK,
    "ansi-light": ANSI_LIGHT,
}
PREFIX = "anyplug-"  # Textual has themes of its own with such names


def textual_themes() -> list[Theme]:
    """Return one Textual theme for each palette."""
    return [_theme(name, colours) for name, colours in PALETTES.items()]


def _theme(name: str, colours: dict[Token, str]) -> Theme:
    is_ansi = name.startswith("ansi")
    given = {token: f"ansi_{colour}" if is_ansi else colour for token, colour in colours.items()}
    return Theme(
        name=PREFIX + name,
        dark=name.endswith("dark"),
        ansi=is_ansi,
        primary=given["accent"],
        accent=given["accent"],
        foreground=given["text"],
        background=given["bg"],
        surface=given["bg"],
        panel=given["raised"],
        warning=given["warn"],
        error=given["risk"],
        success=given["ok"],
        variables={
            **{f"t-{token}": colour for token, colour in given.items()},
            **(BUILTIN_THEMES[name].variables if is_ansi else {}),  # its style sheets name some
            "scrollbar": given["border"],
            "scrollbar-hover": given["muted"],
            "scrollbar-active": given["accent"],
            "scrollbar-background": given["bg"],
            "scrollbar-background-hover": given["bg"],
            "scrollbar-background-active": given["bg"],
            "scrollbar-corner-color": given["bg"],
            "input-selection-background": f"{given['accent']} 35%" if not is_ansi else given["accent"],
        },
    )
