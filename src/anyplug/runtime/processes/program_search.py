"""Find a program in a PATH as `shutil.which` does, whose import takes longer than all that a call looks up."""

import os
import sys


def which(name: str, path: str | None = None) -> str | None:
    """Return the path of a program; None if there is none. `path` is a PATH other than this process's own."""
    if sys.platform == "win32":
        import shutil  # where a program has many names

        return shutil.which(name, path=path)
    if os.path.dirname(name):
        return name if _is_program(name) else None
    searched = os.environ.get("PATH", os.defpath) if path is None else path
    folders = dict.fromkeys(searched.split(os.pathsep)) if searched else ()
    return next((found for folder in folders if _is_program(found := os.path.join(folder, name))), None)


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)
