"""Draw the chat's pictures in docs/pictures: scenes on a scripted conversation, so that they are always the same."""

import asyncio
import pathlib
import sys
import warnings

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT / "tests"))  # the scenes are those of the tests

PICTURES = (
    ("chat", "working", "dark", (100, 32)),
    ("chat-light", "working", "light", (100, 32)),
    ("chat-empty", "empty", "dark", (80, 24)),
    ("chat-question", "answering", "dark", (80, 24)),
    ("chat-panel", "panel", "dark", (80, 24)),
    ("chat-commands", "commands", "light", (80, 24)),
    ("chat-long-result", "long-result", "dark", (80, 24)),
    ("chat-wide", "working", "dark", (160, 44)),
)


async def draw() -> None:
    """Draw all pictures."""
    from chat_scenes import SCENES, still_chat  # type: ignore[import-not-found]  # in the folder named above

    FOLDER.mkdir(exist_ok=True)
    for name, scene, theme, size in PICTURES:
        app = still_chat(theme)
        async with app.run_test(size=size) as pilot:
            await SCENES[scene](pilot)
            svg = app.export_screenshot(title="anyplug chat")
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asyncio.run(draw())
