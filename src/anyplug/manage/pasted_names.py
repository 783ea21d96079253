"""Parse a pasted source of a plugin: short names, addresses of web pages, folders, archives.

    owner/repo    github:owner/repo[/folder][@ref]    https://HOST/owner/repo/tree/REF/folder    git+https://...@ref

Pure, except that a word which exists as a file or folder here is that file or folder.
"""

import os
import re
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from anyplug.manage.plugin_sources import SCHEMES, Source
from anyplug.manage.zip_sources import is_archive_name

DEFAULT_HOST: Final = "github"
HOSTS: Final = {
    "github": "https://github.com/",
    "gh": "https://github.com/",
    "gitlab": "https://gitlab.com/",
    "bitbucket": "https://bitbucket.org/",
    "codeberg": "https://codeberg.org/",
}
FORMS: Final = (
    "pass a folder, an archive, owner/repo, a repository's address, or a command such as `npx -y @scope/server`"
)

_BARE_HOST = re.compile(r"(?:www\.)?(?=(?:github|gitlab|bitbucket|codeberg)\.(?:com|org)/)")
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?"
_SHORT = re.compile(rf"(?:(?P<host>[a-z]+):)?(?P<repo>{_NAME}/{_NAME})(?P<folder>(?:/[^@#]*)?)(?:[@#](?P<ref>[^@]+))?")
# Where hosts show a folder or a file: GitHub, GitLab, Gitea and Forgejo, Bitbucket.
_PAGE = re.compile(
    r"/(?P<repo>[^/]+/.+?)/(?:-/)?(?:(?:tree|blob)|src(?:/(?:branch|tag|commit))?)/(?P<rest>.+)", re.DOTALL
)
_GITHUB_REPO = re.compile(r"/(?P<repo>[^/]+/[^/]+?)(?:\.git)?/?")


class Named(msgspec.Struct, frozen=True):
    """A source, and what follows it in the address of a web page: a ref and a folder, not yet told apart."""

    source: Source
    rest: str = ""


def read(text: str) -> Named:
    """Read what was pasted. A word that is none of the known forms is taken as a folder."""
    text = text.strip()
    if not text or os.path.lexists(os.path.expanduser(text)):
        return Named(Source(location=text))
    if bare := _BARE_HOST.match(text):
        text = f"https://{text[bare.end() :]}"
    if text.startswith("git+"):
        return _with_git_prefix(text.removeprefix("git+"))
    if text.startswith(("https://", "http://")):
        return _address(text)
    short = _SHORT.fullmatch(text) if not text.startswith((*SCHEMES, ".", "/", "~")) else None
    host = HOSTS.get(short["host"] or DEFAULT_HOST) if short is not None else None
    if short is None or host is None or (short["host"] is None and is_archive_name(text)):
        return Named(Source(location=text))
    repository = short["repo"].removesuffix(".git")
    return Named(Source(location=f"{host}{repository}", ref=short["ref"] or "", subdir=short["folder"].strip("/")))


def _address(text: str) -> Named:
    parts = urlsplit(text)
    if is_archive_name(parts.path):
        return Named(Source(location=text))
    path = unquote(parts.path)
    root = f"{parts.scheme}://{parts.netloc}/"
    if page := _PAGE.fullmatch(path.rstrip("/")):
        return Named(Source(location=f"{root}{page['repo']}"), _without_manifest(page["rest"]))
    is_known = root.replace("www.", "") in HOSTS.values()
    if is_known and (repository := _GITHUB_REPO.fullmatch(path)):
        return Named(Source(location=f"{root}{repository['repo']}"))
    return Named(Source(location=text))


def _with_git_prefix(text: str) -> Named:
    """Read pip's and npm's form: an address with @REF, #REF or #subdirectory=FOLDER."""
    address, _, fragment = text.partition("#")
    place, at, ref = address.rpartition("@")
    if not at or "/" not in place.partition("://")[2] or "/" in ref.partition("/")[2]:
        place, ref = address, ""
    options = parse_qs(fragment) if "=" in fragment else {}
    subdir = options.get("subdirectory", [""])[0]
    return Named(Source(location=place, ref=ref or ("" if options else fragment), subdir=subdir))


def _without_manifest(rest: str) -> str:
    """Return the folder of a file that the page shows: people copy the address of a manifest or a README."""
    folder, _, name = rest.rpartition("/")
    return folder if folder and name.endswith((".json", ".md", ".js")) else rest
