"""A short form of `make fleet-soak`: each kind of trouble once."""

import pytest

import fleet_soak


@pytest.mark.skipif(not fleet_soak.can_run(), reason="takes root, and network namespaces")
def test_calls_end_once_and_nothing_is_lost_while_servers_and_workers_are_cut_and_killed(tmp_path):
    assert fleet_soak.run(0.4, str(tmp_path)) == []
