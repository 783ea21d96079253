"""The gate: Python imports this while it starts, and waits here for the call, before it opens the script.

The host starts the script as usual, with this folder first in PYTHONPATH. The interpreter writes to stdout that it is
waiting, and how much memory it uses. Then it reads one message from stdin, byte for byte, so that what follows is the
script's own. An end of file means that nobody will call, and it exits. What was changed is undone before the script
runs.

Any interpreter may load this, even an old one, and nothing may reach the script without a call: an error ends the
process. Imports only what every interpreter has already loaded.
"""


def _wait():
    """Return whether the environment has a `sitecustomize` of its own, once there is a call."""
    import marshal
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    word, path, prefix, script = marshal.loads(bytes.fromhex(os.environ.pop("_ANYPLUG_WARM")))
    for name, value in (("PYTHONPATH", path), ("PYTHONPYCACHEPREFIX", prefix)):
        if value is not None:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    del sys.modules["sitecustomize"]
    has_real = True
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        has_real = False
    before = frozenset(sys.modules), frozenset(sys.path_importer_cache)
    if script:
        _import_ahead(sys, os, script)
    if prefix and sys.pycache_prefix is None:  # bytecode that the plugin can write counts from here on
        sys.pycache_prefix = prefix
        place = sys.modules["_frozen_importlib_external"].cache_from_source
        for module in list(sys.modules.values()):
            if isinstance(getattr(module, "__cached__", None), str):
                module.__spec__.cached = module.__cached__ = place(module.__spec__.origin)
    with open("/proc/self/statm", "rb") as file:
        pages = file.read().split()[1]
    os.write(1, word + b" " + pages + b"\n")
    message = b""
    while len(message) < len(word):
        part = os.read(0, len(word) - len(message))
        if not part:
            os._exit(0)
        message += part
    if message != word:
        os._exit(70)
    os.write(1, b"!")  # from here on, the script counts as begun
    logging = sys.modules.get("logging")
    if logging is not None:  # it keeps the time of its import
        import time

        logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
    if len(sys.modules) > len(before[0]):
        _put_in_order(sys, script, before)
    return has_real


def _put_in_order(sys, script, before):
    """Let what was imported ahead follow what the interpreter itself still adds, as if imported by the script.

    The interpreter shows the script's path to all hooks before it opens it: the last one puts things in order.
    """
    tables = sys.modules, sys.path_importer_cache
    added = [[name for name in table if name not in known] for table, known in zip(tables, before)]

    def hook(path):
        if path == script:
            sys.path_hooks.remove(hook)
            for table, names in zip(tables, added):
                for name in names:
                    if name in table:
                        table[name] = table.pop(name)
        raise ImportError

    sys.path_hooks.append(hook)


def _import_ahead(sys, os, script):
    """Import what the script imports first, in its order: up to the first line that could notice, or is not plain.

    Only modules of the standard library, which do nothing else when imported, and only if the script's folder has no
    file with the name of one.
    """
    known = getattr(sys, "stdlib_module_names", ())
    flags = sys.flags
    if not known or sys.warnoptions or flags.dev_mode or flags.verbose or getattr(flags, "safe_path", False):
        return
    folder = os.path.dirname(script)
    if os.environ.get("PYTHONPATH") or os.path.islink(script):
        return
    if any(name.partition(".")[0] in known for name in os.listdir(folder)):
        return
    with open(script, "rb") as file:
        head = file.read(1 << 16)
    if any(b"coding" in line for line in head.split(b"\n", 2)[:2]):
        return
    sys.path.insert(0, folder)  # as it will be: what is looked up is the same, and what is remembered of it
    try:
        for module, names in _first_imports(head.decode("utf-8", "replace")):
            if module.partition(".")[0] not in _PLAIN:
                break
            __import__(module, None, None, names)
    except ImportError:
        pass  # the script will meet it, too
    finally:
        sys.path.remove(folder)


def _first_imports(text):
    """Yield the imports at the top of a script, each with the names that it takes from the module."""
    lines = iter(text.split("\n")[:-1])
    is_first = True
    for line in lines:
        line = line.rstrip()
        if not line or line.startswith("#"):
            continue
        if is_first and line[:3] in ('"""', "'''"):
            is_first = False
            quote, line = line[:3], line[3:]
            while quote not in line:
                line = next(lines, quote + "!")
            if line.partition(quote)[2].strip():
                return
            continue
        is_first = False
        line = line.partition("#")[0].rstrip()
        if "(" in line:
            while ")" not in line:
                line += " " + next(lines, ")!").partition("#")[0]
            if line.rstrip()[-1:] != ")" or line.count("(") != 1:
                return
            line = line.replace("(", " ").replace(")", " ")
        if ";" in line or "\\" in line or "\0" in line or '"' in line or "'" in line:
            return
        words = line.replace(",", " , ").split()
        if line.startswith("import ") and "from" not in words:
            for part in " ".join(words[1:]).split(","):
                name = part.split()
                if not name or not _is_name(name[0]) or name[1:2] not in ([], ["as"]):
                    return
                yield name[0], ()
        elif line.startswith("from ") and words[2:3] == ["import"] and _is_name(words[1]):
            names = [part.split()[0] for part in " ".join(words[3:]).split(",") if part.split()]
            if not all(name.isidentifier() for name in names):
                return
            yield words[1], names
        else:
            return


def _is_name(text):
    return all(part.isidentifier() for part in text.split("."))


# Importing these does nothing that depends on the moment, and gives no warning.
_PLAIN = frozenset(
    """
    __future__ abc argparse array ast asyncio atexit base64 binascii bisect builtins bz2 calendar cmath codecs
    collections colorsys concurrent configparser contextlib contextvars copy copyreg csv ctypes dataclasses datetime
    decimal difflib dis email enum errno fcntl filecmp fileinput fnmatch fractions functools gc getopt getpass glob
    graphlib grp gzip hashlib heapq hmac html http importlib inspect io ipaddress itertools json keyword linecache
    locale logging lzma marshal math mimetypes mmap multiprocessing numbers opcode operator os pathlib pickle pkgutil
    platform plistlib posixpath pprint pwd queue quopri random re reprlib resource sched secrets select selectors shlex
    shutil signal smtplib socket socketserver sqlite3 ssl stat statistics string struct subprocess sys sysconfig
    tarfile tempfile termios textwrap threading time timeit token tokenize tomllib traceback types typing unicodedata
    unittest urllib uuid warnings weakref xml zipfile zlib zoneinfo
    """.split()  # noqa: SIM905 - a list of words is read as words
)
try:
    _has_own = _wait()
except BaseException as failure:  # in particular SystemExit, and what the environment's own may raise
    import os as _os

    try:
        _os.write(2, ("the gate failed: %r\n" % (failure,)).encode())
    finally:
        _os._exit(70)
if not _has_own:
    raise ImportError(name="sitecustomize")  # `site` ignores exactly this, and no module stays behind
