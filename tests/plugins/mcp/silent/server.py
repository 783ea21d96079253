"""Never answers `initialize`."""
import sys

sys.stderr.write("waiting for the moon\n")
for _ in sys.stdin:
    pass
