"""Copies the SDK for extensions into the examples that use it, when the package is built, also for an editable install.

An extension runs in a Python that may not have anyplug, so the SDK lies beside it; git ignores these copies.
"""

import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXAMPLES = ("careful", "pomodoro")


class CopySdk(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        for name in EXAMPLES:
            shutil.copyfile(root / "src/anyplug/ext/__init__.py", root / "examples" / name / "anyplug_ext.py")
