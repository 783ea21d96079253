"""The host's SQLite database: connection, tables, transactions. Knows no rules about its contents.

Several processes share one database: WAL mode, and every writer takes the write lock first.
"""

import os
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from anyplug.home.location import make_private
from anyplug.model.errors import StoreBusy, StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    Aside = Callable[[Callable[[], None]], object]  # runs something in a thread

VERSION = 8  # of the tables below
TIDY_AFTER = 3_000  # changed rows before a checkpoint; about SQLite's own default
LONGEST_LOG = 10_000  # pages; beyond this a writer waits for the disk, in case rows are large or many processes write
BUSY_S = 5.0  # how long to wait for another process's write, which takes microseconds
BUSY_STEP_S = 0.01  # between attempts where SQLite itself does not wait
LOOP_BUSY_S = 0.05  # how long to wait on an event loop, where everybody else waits too

# What was shown of conversations with a model.
CONVERSATIONS = (
    """CREATE TABLE conversations (id TEXT PRIMARY KEY, project TEXT NOT NULL, title TEXT NOT NULL, model TEXT NOT NULL,
    began REAL NOT NULL, changed REAL NOT NULL, usage BLOB NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE conversation_events (conversation TEXT NOT NULL, number INTEGER NOT NULL, event BLOB NOT NULL,
    PRIMARY KEY (conversation, number)) WITHOUT ROWID""",
)
# Permissions that `learn` or a proxy saw plugins use.
SEEN = ("CREATE TABLE seen (path TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",)
TABLES = (
    "CREATE TABLE approvals (path TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE disabled (path TEXT PRIMARY KEY) WITHOUT ROWID",
    # The number of decisions, the same as the size of the change counter: caches compare the two.
    "CREATE TABLE decisions (count INTEGER NOT NULL)",
    "INSERT INTO decisions VALUES (0)",
    "CREATE TABLE digests (path TEXT PRIMARY KEY, reading BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE registrations (path TEXT PRIMARY KEY, digest TEXT NOT NULL, record BLOB NOT NULL) WITHOUT ROWID",
    # What models read about long-running plugins, as of their first start after approval.
    "CREATE TABLE pins (path TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
    # Copies of policies that a person accepted, to notice when one is missing on disk.
    "CREATE TABLE accepted (key TEXT PRIMARY KEY, project TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE installs (path TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE jobs (id TEXT PRIMARY KEY, tool TEXT NOT NULL, state TEXT NOT NULL, started REAL NOT NULL,
    ended REAL, result BLOB, host TEXT NOT NULL, cancel INTEGER NOT NULL DEFAULT 0,
    progress TEXT NOT NULL DEFAULT '', plugin TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE audit (number INTEGER PRIMARY KEY AUTOINCREMENT, call TEXT NOT NULL, record BLOB NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    "CREATE INDEX audit_calls ON audit (call)",
    *CONVERSATIONS,
    *SEEN,
)
FROM_1 = (
    *(f"DROP TRIGGER {table}_{event}" for table in ("approvals", "disabled") for event in ("INSERT", "DELETE")),
    "UPDATE decisions SET count = 0",
    "DROP TRIGGER call_ended",
    "DROP TABLE pending",
    "CREATE INDEX audit_calls ON audit (call)",
)
FROM_2 = ("CREATE TABLE pins (path TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",)
FROM_3 = ("CREATE TABLE accepted (key TEXT PRIMARY KEY, project TEXT NOT NULL) WITHOUT ROWID",)
FROM_4 = CONVERSATIONS
FROM_5 = SEEN
FROM_6 = ("ALTER TABLE jobs ADD COLUMN progress TEXT NOT NULL DEFAULT ''",)
# Earlier jobs do not name their plugin, so only the command line shows them.
FROM_7 = ("ALTER TABLE jobs ADD COLUMN plugin TEXT NOT NULL DEFAULT ''",)
CHANGES = (TABLES, FROM_1, FROM_2, FROM_3, FROM_4, FROM_5, FROM_6, FROM_7)  # by the version that they begin with


# Ours has none of these; they run within statements of ours, and can undo them.
FOREIGN = "SELECT type || ' ' || name FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY name"


class Store:
    """A database in the home folder. Nothing is created before something is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.journals = os.path.join(os.path.dirname(path), "journal")  # what is not in the database yet
        self._lock = threading.RLock()  # a reload in a thread and a call on the event loop share the connection
        self._connection: sqlite3.Connection | None = None
        self._failures: tuple[type[Exception], ...] = ()  # SQLite's errors, once it is imported
        self._aside: Aside | None = None
        self._tidied = 0  # changes of this connection at the last checkpoint

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Read rows; none if there is no database yet. Raises StoreError."""
        if self._connection is None and not os.path.exists(self.path):
            return []
        with self._lock:
            connection = self._connection or self._open()
            try:
                return connection.execute(query, values).fetchall()
            except self._failures as error:
                raise self._failed(error) from error

    def each(self, query: str, *values: Any) -> "Iterator[Any]":
        """Read rows one by one, for callers that may not need all; otherwise like `rows`."""
        if self._connection is None and not os.path.exists(self.path):
            return
        with self._lock:
            cursor = (self._connection or self._open()).cursor()
            try:
                yield from cursor.execute(query, values)
            except self._failures as error:
                raise self._failed(error) from error
            finally:
                cursor.close()

    def run(self, statement: str, *values: Any) -> int:
        """Run one writing statement in its own transaction; return the number of rows changed. Raises StoreError."""
        with self.writing() as connection:
            return connection.execute(statement, values).rowcount

    @contextmanager
    def writing(self, wait_s: float | None = None) -> "Iterator[sqlite3.Connection]":
        """Write in one exclusive transaction, including its reads. Raises StoreError; StoreBusy after a wait.

        By default it waits for another process's write for some seconds, or a moment on an event loop.
        """
        connection = self._begin(_patience_s() if wait_s is None else wait_s)
        try:
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has already ended it
                    connection.execute("ROLLBACK")
                raise
            self._tidy_in_time(connection)
        except self._failures as error:
            raise self._failed(error) from error
        finally:
            self._lock.release()

    def _begin(self, wait_s: float) -> "sqlite3.Connection":
        """Take the lock and begin a transaction; between attempts other threads of ours can read."""
        until = time.monotonic() + wait_s
        while True:
            self._lock.acquire()
            try:
                connection = self._connection or self._open()
                connection.execute("BEGIN IMMEDIATE")
            except self._failures as error:
                self._lock.release()
                if not _is_busy(error) or time.monotonic() >= until:
                    raise self._failed(error) from error
            except BaseException:
                self._lock.release()
                raise
            else:
                return connection
            time.sleep(BUSY_STEP_S)

    def tidy_aside(self, aside: "Aside") -> None:
        """From now on run checkpoints in a thread, so that no writer waits for the disk.

        Call before the store is opened.
        """
        self._aside = aside

    def tidy(self) -> None:
        """Checkpoint: move changes from the write-ahead log into the database, and begin a new log.

        The first write to a new log waits for the disk: it is made here. What is not moved now is moved later. Uses
        its own connection, and keeps writers away only for what was written meanwhile: they try again soon.
        """
        import sqlite3  # as in `_open`, which came first

        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_autocheckpoint = 0")
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                connection.execute("PRAGMA wal_checkpoint(RESTART)")
                connection.execute("BEGIN IMMEDIATE")
                (version,) = connection.execute("PRAGMA user_version").fetchone()  # a newer program's, perhaps
                connection.execute(f"PRAGMA user_version = {version}")
                connection.execute("COMMIT")
        except sqlite3.Error:
            pass

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _tidy_in_time(self, connection: "sqlite3.Connection") -> None:
        if self._aside is not None and connection.total_changes - self._tidied >= TIDY_AFTER:
            self._tidied = connection.total_changes
            self._aside(self.tidy)

    def _open(self) -> "sqlite3.Connection":
        import sqlite3  # takes 6 ms to import, and not every command finds a database

        self._failures = (sqlite3.Error,)
        try:
            make_private(os.path.dirname(self.path))
            _make_private(self.path)
        except OSError as error:
            raise StoreError(
                f"cannot open {self.path}: {error.strerror}", "check the folder's permissions, or pass --home"
            ) from error
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        try:
            self._set_up(connection)
        except sqlite3.Error as error:
            connection.close()
            raise self._failed(error) from error
        except StoreError:
            connection.close()
            raise
        connection.execute("PRAGMA busy_timeout = 0")  # from now on `_begin` waits
        self._connection, self._tidied = connection, connection.total_changes
        return connection

    def _set_up(self, connection: "sqlite3.Connection") -> None:
        connection.execute("PRAGMA synchronous = NORMAL")
        if self._aside is not None:
            connection.execute(f"PRAGMA wal_autocheckpoint = {LONGEST_LOG}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        if version > VERSION:
            raise StoreError(
                f"{self.path} was written by a newer version of anyplug (table version {version})", "update anyplug"
            )
        self._use_log(connection)
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()  # another process may have been faster
        if version == 1:
            self._keep_pending(connection)
        for change in CHANGES[version : version + 1] if version == 0 else CHANGES[version:]:
            for statement in change:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(version, VERSION)}")
        connection.execute("COMMIT")

    def _use_log(self, connection: "sqlite3.Connection") -> None:
        """Switch a new database to a write-ahead log. SQLite does not wait if another process does the same."""
        end = time.monotonic() + BUSY_S
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except self._failures as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(BUSY_STEP_S)
            else:
                return

    def _keep_pending(self, connection: "sqlite3.Connection") -> None:
        """Move the running calls that version 1 stored to journals, on behalf of the hosts that run them."""
        from anyplug.home import journal  # listing plugins does not need it, and few databases are that old

        noted: dict[str, list[bytes]] = {}
        for host, record in connection.execute("SELECT host, record FROM pending"):
            noted.setdefault(host, []).append(record)
        try:
            for host, records in noted.items():
                journal.write_for(host, self.journals, records)
        except OSError as error:
            raise StoreError(
                f"cannot write to {self.journals}: {error.strerror}", ("check the folder's permissions")
            ) from error

    def _failed(self, error: Exception) -> StoreError:
        if _is_busy(error):
            return StoreBusy(self.path)
        return StoreError(
            f"the database {self.path} failed: {error}",
            "check the disk's free space and the file's permissions; if the file is damaged, move it away",
        )


def _is_busy(error: Exception) -> bool:
    """Return whether another process is writing."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _patience_s() -> float:
    """Return how long to wait for another process: on an event loop, everybody else waits too."""
    loop = sys.modules.get("asyncio.events")  # where it is not imported, no loop runs
    return BUSY_S if loop is None or loop._get_running_loop() is None else LOOP_BUSY_S  # noqa: SLF001


def _make_private(path: str) -> None:
    """Create a file that only we can read, if there is none; raises OSError.

    An existing file is not opened: closing any descriptor of a file releases all locks that the process has on it,
    including those of another SQLite connection.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    os.close(fd)
