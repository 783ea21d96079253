"""Find the plugin that a resource's URI belongs to: listed, by template, or by scheme. Pure."""

from collections.abc import Sequence

from anyplug.model.types import ServedResource, Tool

Offered = Sequence[tuple[ServedResource, Tool]]
OURS = "anyplug:"  # the scheme of URIs that name the plugin


def is_free(one: ServedResource, earlier: Sequence[ServedResource]) -> bool:
    """Return whether a resource's URI is nobody else's: neither ours nor that of an earlier plugin.

    A template is free if its scheme is fixed, and no earlier plugin uses it: that plugin's results may name more URIs.
    """
    if one.own_uri.startswith(OURS):
        return False
    if not one.is_template:
        return not any(other.is_template and fits(one.own_uri, other.uri) for other in earlier)
    scheme, colon, _ = one.own_uri.partition("{")[0].partition(":")
    return bool(colon) and not any(other.own_uri.startswith(scheme + colon) for other in earlier)


def find(uri: str, offered: Offered) -> tuple[str, Tool] | None:
    """Return the URI as its plugin knows it, and the tool that reads it; None if it is unclear whose it is."""
    for one, reader in offered:
        if one.uri == uri and not one.is_template:
            return one.own_uri, reader
    for one, reader in offered:
        if one.is_template and fits(uri, one.uri):
            return uri if one.uri == one.own_uri else uri[len(one.uri) - len(one.own_uri) :], reader
    # A result may link to a resource that no list has: it belongs to the plugin that uses its scheme, or to the only
    # one that has any. Another plugin must not learn of it.
    scheme = uri.partition(":")[0] + ":"
    if scheme == OURS:
        return None
    readers = {reader.name: reader for one, reader in offered if one.own_uri.startswith(scheme)}
    readers = readers or {reader.name: reader for _, reader in offered}
    return (uri, next(iter(readers.values()))) if len(readers) == 1 else None


def named(uri: str, asked: str, own: str, reader: Tool, offered: Offered) -> str:
    """Return the URI under which a client gets a content that a plugin sent for `asked`, which it knows as `own`.

    A URI that is ours or another plugin's gets the form that names plugin and server: clients remember contents by URI.
    """
    if uri == own:
        return asked
    found = find(uri, offered) if not uri.startswith(OURS) else None
    is_its_own = found is not None and found[1].name == reader.name
    return uri if is_its_own else f"{OURS}{reader.plugin}/{reader.process}/{uri}"


def fits(uri: str, template: str) -> bool:
    """Return whether a URI may come from a template: its fixed parts are there, in their order."""
    fixed = [part.rpartition("}")[2] for part in template.split("{")]
    if len(fixed) == 1:
        return uri == template
    first, *middle, last = fixed
    if not uri.startswith(first) or not uri.endswith(last) or len(uri) < len(first) + len(last):
        return False
    at, end = len(first), len(uri) - len(last)
    for part in middle:
        at = uri.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return at <= end
