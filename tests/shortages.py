"""Takes things away from the process that runs the tests, for a moment."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def files() -> Iterator[None]:
    """Let this process open nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
