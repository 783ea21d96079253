"""Which addresses of web pages a person may be asked to open. Pure."""

SCHEMES = frozenset({"http", "https"})  # others run programs or scripts


def is_web_page(url: str) -> bool:
    r"""Return whether an address is of a page on the web, and reads as what a browser opens.

    It has no user, because `https://good.example@evil.example/` is a page of `evil.example`; nothing that browsers drop
    or change, such as blanks and hidden characters; and no `\`, which they read as `/`.
    """
    from urllib.parse import urlsplit  # with `ipaddress`; few calls ask a person to open a page

    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0  # reading the port checks it
    except ValueError:
        return False
    is_plain = url.isprintable() and " " not in url and "\\" not in parts.netloc
    return is_valid and is_plain and parts.scheme in SCHEMES and "@" not in parts.netloc
