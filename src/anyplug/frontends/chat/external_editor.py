"""Edit a message in the person's own editor."""

import os
import shlex
import subprocess
import tempfile


def command() -> str:
    """Return the command of the person's editor."""
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"


def edited(text: str) -> str:
    """Let the person change a text. Raises OSError or ValueError if the editor cannot be started."""
    with tempfile.NamedTemporaryFile("w+", prefix="anyplug-", suffix=".md", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        subprocess.run([*shlex.split(command()), file.name], check=False)
        with open(file.name, encoding="utf-8", errors="replace") as changed:
            return changed.read().rstrip("\n")
