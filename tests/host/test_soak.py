"""A minute of the soak; `make soak` runs it for ten, or for as long as you say."""

import os
import subprocess
import sys

MINUTES = "1"
PATIENCE_S = 400.0


def test_a_minute_of_faults_violates_nothing():
    script = os.path.join(os.path.dirname(__file__), "..", "soak", "soak.py")
    done = subprocess.run(
        [sys.executable, script, "--minutes", MINUTES, "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "| nothing | | |" in done.stdout
