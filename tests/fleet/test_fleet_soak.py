"""A short form of `make fleet-soak`: each kind of trouble two or three times."""

import pytest

import fleet_soak

MINUTES = 2  # of which it takes 20 seconds of processor time: it mostly waits


@pytest.mark.skipif(not fleet_soak.can_run(), reason="takes root, and network namespaces")
def test_calls_end_once_and_nothing_is_lost_while_servers_and_workers_are_cut_and_killed(tmp_path):
    assert fleet_soak.run(MINUTES, str(tmp_path)) == []
