"""Compiled sets of policies on disk, and rulebooks as they were read, so that a short command need not do it again.

They are found by a digest of their texts, of our own code that read them, and of the Python that is to run them, and
used only if they come from a folder that no plugin can write; see `PrivateCache`.
"""

import marshal
import os
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from anyplug import __version__, rego
from anyplug.home.private_cache import PrivateCache
from anyplug.model.hashes import sha256
from anyplug.policy import rulebook
from anyplug.policy.rulebook import Rulebook
from anyplug.policy.set_facts import Facts, Texts
from anyplug.rego import Fault, Policies
from anyplug.rego.generated.code import unpacked

FOLDER: Final = "compiled"  # in our home
OUR_CODE: Final = ("", "builtins", "compiling", "evaluate", "generated", "parse", "values")  # folders below `rego`


def compiled(texts: Texts, faults: tuple[Fault, ...], cache: PrivateCache | None) -> tuple[Facts, Policies]:
    """Load a compiled set, or compile it and keep it. Raises RegoErrors."""
    key = "" if cache is None or faults else _key(texts)
    if cache is not None and key and (content := cache.read(key)) is not None:
        try:
            facts, code = marshal.loads(content)  # noqa: S302 - nobody else can write there
            known = msgspec.msgpack.decode(facts, type=Facts)
            return known, Policies(known.texts, code=unpacked(code))
        except (ValueError, TypeError, LookupError, EOFError, msgspec.MsgspecError):
            pass  # whatever it is, it is written again
    from anyplug.policy import set_compiler  # imports the parser and the compiler

    found, made = set_compiler.compiled(texts, faults)
    if cache is not None and key:
        cache.write(key, marshal.dumps((msgspec.msgpack.encode(found), made.code.packed())))
    return found, made


def read_rulebook(text: str, cache: PrivateCache | None) -> Rulebook:
    """Load a rulebook, or read it and keep what was read. Raises BadRulebook."""
    key = "" if cache is None else _key(text)
    if cache is not None and (content := cache.read(key)) is not None:
        try:
            return msgspec.msgpack.decode(content, type=Rulebook)
        except msgspec.MsgspecError:
            pass  # it is written again
    book = rulebook.read(text)
    if cache is not None:
        try:
            cache.write(key, msgspec.msgpack.encode(book))
        except (TypeError, ValueError, OverflowError):
            pass  # it has a number of more than 64 bits
    return book


def _key(texts: Texts | str) -> str:
    made = sha256(f"{__version__} {sys.implementation.cache_tag} {sys.hexversion}".encode())
    for line in _our_code():
        made.update(line)
    made.update(msgspec.msgpack.encode(texts))
    return made.hexdigest()


def _our_code() -> Iterator[bytes]:
    """Yield the state of our code: between versions it also changes, where anyplug is developed."""
    root = os.path.dirname(rego.__file__)
    for folder in (os.path.dirname(__file__), *(os.path.join(root, name) for name in OUR_CODE)):
        with os.scandir(folder) as entries:
            for entry in sorted((entry for entry in entries if entry.name.endswith(".py")), key=lambda one: one.name):
                seen = entry.stat()
                yield f"{entry.name} {seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns}\n".encode()
