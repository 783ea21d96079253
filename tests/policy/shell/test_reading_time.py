"""The processor time that the commands of one event may take."""

import pytest

from anyplug.policy.shell import reading_time


def test_what_an_event_has_used_counts_when_its_reading_goes_on():
    with reading_time.limited():
        reading_time.check()
        used = reading_time.used_s()
    assert 0 <= used < reading_time.MOST_S
    with reading_time.limited(reading_time.MOST_S):
        with pytest.raises(reading_time.TooSlow):
            reading_time.check()
        with reading_time.limited(), pytest.raises(reading_time.TooSlow):  # the outer limit stays
            reading_time.check()
    reading_time.check()
