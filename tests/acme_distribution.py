"""The distribution in tests/distributions, which brings a sixth format, and how it comes to be installed."""

import os

import pytest

from anyplug.formats import registry

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributions")
NAME = "acme"
SETTINGS = f'formats = ["{NAME}"]\n'


def install(monkeypatch: pytest.MonkeyPatch, folder: str = FOLDER) -> None:
    """Put it on the path of this process and of those that it starts, and let no format be known from before."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
    monkeypatch.setattr(registry, "BY_NAME", dict(registry.BY_NAME))
