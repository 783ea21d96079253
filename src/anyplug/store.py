"""The host's SQLite database: connection, tables, transactions. Knows no rules about what is in it.

Several processes use one database: WAL, and whoever writes takes the write lock first.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anyplug.errors import StoreError

if TYPE_CHECKING:
    import sqlite3

VERSION = 1  # of the tables below
BUSY_S = 5.0  # how long to wait for another process's write, which takes microseconds

TABLES = (
    "CREATE TABLE approvals (path TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE disabled (path TEXT PRIMARY KEY) WITHOUT ROWID",
    # Counts decisions, so that whoever keeps them in memory need not read them again after every call's record.
    "CREATE TABLE decisions (count INTEGER NOT NULL)",
    "INSERT INTO decisions VALUES (0)",
    *(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN UPDATE decisions SET count = count + 1; END"
        for table in ("approvals", "disabled")
        for event in ("INSERT", "DELETE")
    ),
    "CREATE TABLE digests (path TEXT PRIMARY KEY, reading BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE registrations (path TEXT PRIMARY KEY, digest TEXT NOT NULL, record BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE installs (path TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE jobs (id TEXT PRIMARY KEY, tool TEXT NOT NULL, state TEXT NOT NULL, started REAL NOT NULL,
    ended REAL, result BLOB, host TEXT NOT NULL, cancel INTEGER NOT NULL DEFAULT 0)""",
    "CREATE TABLE pending (call TEXT PRIMARY KEY, host TEXT NOT NULL, record BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE audit (number INTEGER PRIMARY KEY AUTOINCREMENT, call TEXT NOT NULL, record BLOB NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    "CREATE TRIGGER call_ended AFTER INSERT ON audit BEGIN DELETE FROM pending WHERE call = NEW.call; END",
)


class Store:
    """A database in the home folder. Nothing is created before something is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.RLock()  # a reload in a thread and a call on the loop share the connection
        self._connection: sqlite3.Connection | None = None
        self._failures: tuple[type[Exception], ...] = ()  # SQLite's, once it is imported
        self._functions: dict[str, Callable[..., Any]] = {}

    def define(self, name: str, function: Callable[[str, bytes], str]) -> None:
        """Let statements use a function of two arguments."""
        self._functions[name] = function
        if self._connection is not None:
            self._connection.create_function(name, 2, function, deterministic=True)

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

    def run(self, statement: str, *values: Any) -> int:
        """Run one statement that writes, in a transaction of its own; give the rows touched. Raises StoreError."""
        with self._lock:
            connection = self._connection or self._open()
            try:
                return connection.execute(statement, values).rowcount
            except self._failures as error:
                raise self._failed(error) from error

    def version(self) -> int:
        """Give a number that is another one as soon as another connection has written."""
        rows = self.rows("PRAGMA data_version")
        return int(rows[0][0]) if rows else 0

    @contextmanager
    def writing(self) -> "Iterator[sqlite3.Connection]":
        """Write in one transaction, alone from its first look to its end. Raises StoreError."""
        with self._lock:
            connection = self._connection or self._open()
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except self._failures as error:
                raise self._failed(error) from error

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> "sqlite3.Connection":
        import sqlite3  # 6 ms, and not every command finds a database

        self._failures = (sqlite3.Error,)
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StoreError(
                f"cannot open {self.path}: {error.strerror}", "check the folder, or give --home"
            ) from error
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._set_up(connection)
        except sqlite3.Error as error:
            connection.close()
            raise self._failed(error) from error
        except StoreError:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _set_up(self, connection: "sqlite3.Connection") -> None:
        connection.execute("PRAGMA synchronous = NORMAL")
        for name, function in self._functions.items():
            connection.create_function(name, 2, function, deterministic=True)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        if version > VERSION:
            raise StoreError(
                f"{self.path} was written by a newer anyplug (tables of version {version})", "update anyplug"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone() == (0,):  # nobody was faster
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(
            f"the database {self.path} failed: {error}",
            "check the disk's space and the file's permissions; a damaged file can be moved away",
        )
