"""Fetch one archive from an address that a person named, with limits on size and time."""

import http.client
import time
import urllib.error
import urllib.request
from typing import Final

from anyplug.manage.zip_sources import LARGEST_ARCHIVE
from anyplug.model.errors import InstallError

CONNECT_S: Final = 30.0  # until the server answers, and between two parts
WHOLE_S: Final = 600.0
STEP: Final = 1 << 16


def fetch(address: str, path: str, shown: str, largest: int = LARGEST_ARCHIVE) -> None:
    """Write what is at an address into a file; `shown` is the address without a password. Raises InstallError."""
    until = time.monotonic() + WHOLE_S
    # Only http and https, also after a redirect: urllib would read `file:` and `ftp:` addresses, too.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    request = urllib.request.Request(address, headers={"User-Agent": "anyplug"})  # noqa: S310 - see above
    try:
        with opener.open(request, timeout=CONNECT_S) as answer, open(path, "xb") as file:
            while part := answer.read(STEP):
                largest -= len(part)
                if largest < 0:
                    raise InstallError(f"what is at {shown} is too large", "download it, and install a smaller part")
                if time.monotonic() > until:
                    raise InstallError(f"{shown} did not arrive within {WHOLE_S:.0f}s", "try again later")
                file.write(part)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        said = f"HTTP {error.code} {reason}" if isinstance(error, urllib.error.HTTPError) else str(reason)
        raise InstallError(
            f"cannot fetch {shown}: {said}", "check the address and the network, then try again"
        ) from error
