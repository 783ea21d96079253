"""A mark grows with each decision: one look at it says whether there was one, whoever made it and however it ended."""

import os
import sqlite3
import subprocess
import sys

import pytest

from anyplug.catalog.catalog import Catalog
from anyplug.home.change_counter import ChangeCounter
from anyplug.home.settings import find_home
from anyplug.model.errors import StoreError

DENY = """
import os, signal, sys
from anyplug.catalog.catalog import Catalog
from anyplug.home.settings import find_home
catalog = Catalog(find_home(), roots=[sys.argv[1]])
approvals, plugin = catalog.approvals, catalog.load().plugin("hello").plugin
with approvals._deciding("", plugin) as transaction:
    transaction.execute("DELETE FROM approvals WHERE path = ?", (plugin.path,))
    if sys.argv[2] == "killed":
        approvals.mark.grow()
        os.kill(os.getpid(), signal.SIGKILL)
catalog.close()
"""


@pytest.fixture
def catalog(root, cyclop):
    cyclop()
    catalog = Catalog(find_home(), roots=[root])
    approve(catalog)
    yield catalog
    catalog.close()


def plugin_of(catalog):
    return catalog.load().plugin("hello").plugin


def approve(catalog):
    plugin = plugin_of(catalog)
    catalog.approvals.approve(plugin, catalog.digest(plugin), (), always=False, follow=False, unconfined=False)


def revoke_elsewhere(root, how):
    return subprocess.run([sys.executable, "-c", DENY, root, how], timeout=60, check=False).returncode


def test_nothing_is_read_while_nobody_decides_anything(catalog, home):
    plugin = plugin_of(catalog)
    assert catalog.standing(plugin).state == "approved"
    connection = sqlite3.connect(home / "anyplug.db", isolation_level=None)
    connection.execute("DELETE FROM approvals")  # behind everybody's back
    assert catalog.standing(plugin).state == "approved"
    ChangeCounter(str(home / "decisions")).grow()
    assert catalog.standing(plugin).state == "new"
    connection.close()


def test_a_decision_of_another_process_is_seen_at_the_next_look(catalog, root):
    plugin = plugin_of(catalog)
    assert catalog.standing(plugin).state == "approved"
    assert revoke_elsewhere(root, "done") == 0
    assert catalog.standing(plugin).state == "new"


def test_a_decision_whose_process_was_killed_over_it_hides_no_later_one(catalog, root):
    plugin = plugin_of(catalog)
    assert revoke_elsewhere(root, "killed") != 0
    assert catalog.standing(plugin).state == "approved"
    assert revoke_elsewhere(root, "done") == 0
    assert catalog.standing(plugin).state == "new"


def test_who_looks_while_somebody_decides_looks_again(catalog, home):
    plugin = plugin_of(catalog)
    other = Catalog(find_home(), roots=[])
    with other.approvals._deciding("", plugin) as transaction:
        transaction.execute("DELETE FROM approvals")
        other.approvals.mark.grow()
        assert catalog.standing(plugin).state == "approved"
    assert catalog.standing(plugin).state == "new"
    other.close()


def test_a_mark_that_somebody_deleted_only_costs_time(catalog, home, root):
    plugin = plugin_of(catalog)
    os.unlink(home / "decisions")
    assert catalog.standing(plugin).state == "approved"
    assert revoke_elsewhere(root, "done") == 0
    assert catalog.standing(plugin).state == "new"


def test_what_cannot_be_marked_is_not_decided(catalog, home):
    plugin = plugin_of(catalog)
    os.unlink(home / "decisions")
    os.mkdir(home / "decisions")
    with pytest.raises(StoreError, match="decisions"):
        catalog.approvals.revoke(plugin)
    assert catalog.standing(plugin).state == "approved"
