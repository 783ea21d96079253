"""Where the gates are: the files that interpreters load before a script, and that sandboxes show for it."""

import os

GATES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "gate-files")
