"""Whether a request with a cookie comes from our own page: browsers send cookies for other pages, too.

Pages on other ports of this machine count as the same site, so `SameSite` alone does not keep them out.
"""

from anyplug.frontends.http.refusals import Refusal

READING = frozenset({"GET", "HEAD"})
BODIES = (b"application/json", b"application/zip")  # types that no form can send

NOT_FROM_US = Refusal(
    403,
    "denied",
    "the request does not come from this server's own page",
    "programs send `Authorization: Bearer TOKEN` instead of the cookie",
)
NOT_JSON = Refusal(
    415,
    "usage",
    "the request's content type is not one that this server takes",
    "send `content-type: application/json`",
)


def refusal(method: str, headers: dict[bytes, bytes], own: bytes) -> Refusal | None:
    """Return why a request with a cookie is refused; None if it is not. `own` is the origin of its session."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if method in READING:
        return NOT_FROM_US if site not in {None, b"same-origin", b"none"} or origin not in {None, own} else None
    if site not in {None, b"same-origin"} or origin not in {None, own}:
        return NOT_FROM_US
    if site is None and origin is None:  # no browser of the last years sends neither
        return NOT_FROM_US
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return None if kind in BODIES else NOT_JSON
