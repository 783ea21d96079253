"""Security headers for everything that the console serves: only the console's own code may run."""

from typing import Final

from anyplug.frontends.http.refusals import Headers

POLICY: Final = (
    b"default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' data:; "
    b"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
NOTHING: Final = b"default-src 'none'; frame-ancestors 'none'; sandbox"  # for answers that are no pages

COMMON: Final[Headers] = [
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
]
PAGE: Final[Headers] = [(b"content-security-policy", POLICY), *COMMON]
DATA: Final[Headers] = [(b"content-security-policy", NOTHING), *COMMON]
