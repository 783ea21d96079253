"""Pictures of the screen, compared with those kept: `pytest --snapshot-update` renews them, then look at them."""

from typing import Any

import pytest

from chat_scenes import answering, still_chat, working

SIZES = {"80x24": (80, 24), "200x50": (200, 50)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_screen_looks_as_it_did(theme: str, size: str, snap_compare: Any):
    scene = answering if size == "80x24" else working
    assert snap_compare(still_chat(theme), terminal_size=SIZES[size], run_before=scene)
