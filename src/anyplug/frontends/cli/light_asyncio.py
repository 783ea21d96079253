"""Import asyncio and anyio without TLS, sockets and logs, which take an eighth of a call, and which few calls need.

They get stand-ins, which import the real module when something is first taken from it. Everyone else imports the real
modules.
"""

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

_leaving = threading.Lock()


class _Later(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for some
            raise AttributeError(name)
        with _leaving:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class _Logging(_Later):
    DEBUG = 10

    @staticmethod
    def getLogger(name: str) -> Any:  # noqa: N802 - its name there
        return _Logger(name)


class _Logger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if "logging" not in sys.modules and name in {"debug", "info"}:  # nobody has asked for these
            return lambda *_, **__: None
        return getattr(importlib.import_module("logging").getLogger(self._name), name)


class _Sockets(_Later):
    @staticmethod
    def convert_ipv6_sockaddr(address: Any) -> Any:
        return importlib.import_module("anyio._core._sockets").convert_ipv6_sockaddr(address)


def load() -> None:
    """Import both, unless they are imported."""
    stand_ins = (
        _Later("ssl"),
        _Later("asyncio.sslproto"),
        _Logging("logging"),
        _Sockets("anyio._core._sockets"),
    )
    used = [one for one in stand_ins if one.__name__ not in sys.modules]
    sys.modules.update({one.__name__: one for one in used})
    try:
        importlib.import_module("anyio._backends._asyncio")
    finally:
        for one in used:
            if sys.modules.get(one.__name__) is one:
                del sys.modules[one.__name__]
