"""Says in plain words if this Python is too old, before anything is installed. Runs on any Python 3."""

import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    found = ".".join(str(part) for part in sys.version_info[:3])
    sys.exit("anyplug needs Python 3.11 or newer, and this is %s; try: make PYTHON=python3.12 ..." % found)  # noqa: UP031
