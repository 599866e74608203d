"""Takes the pictures of the README: `python -m tests.e2e.browser.pictures`, from the top folder."""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.e2e.browser.world import SOON, Visitor, launch, running_world

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
COLOURS = 256
"""A palette keeps each picture below 200 KB."""
SCREEN = {"viewport": {"width": 1080, "height": 700}, "device_scale_factor": 1.25}
HEADLINES = (
    "The tram company extends the night line",
    "The observatory opens its garden, ahead of plan",
    "The harbour repairs its oldest pier",
)
WORDS = (
    ("alice", "Did you see the news about the pier?"),
    ("bob", "Just now. It came through the fabric, like this line."),
    ("alice", "And nobody in between knows who we are."),
)
STACK = """<style>body {{ margin: 0; background: #fff; display: grid; gap: 24px; }}
img {{ width: 1080px; border: 1px solid #d5d6cf; border-radius: 12px; box-sizing: border-box }}
</style>{images}"""


def feeds(visitor):
    visitor.arrive()
    visitor.subscribe()
    visitor.page.get_by_role("button", name="Clear").click()
    for text in HEADLINES:
        visitor.publish(text)
        visitor.sees(text)
    visitor.page.locator("#publish-text").blur()
    return shot(visitor, ".read")


def chat(visitor):
    visitor.view("Chat")
    for who, text in WORDS:
        box = visitor.page.get_by_label(f"Message from {who}@")
        box.fill(text)
        box.press("Enter")
        lines = visitor.page.locator(".messages li.sent", has_text=text)
        lines.nth(1).wait_for()
    for name in ("alice is here", "bob is here"):
        visitor.page.get_by_text(name).wait_for()
    box.blur()
    return shot(visitor, ".window")


def network(visitor):
    visitor.view("Network")
    in_tree = visitor.page.locator("#links li.in-tree").filter(has_not_text="psph")
    in_tree.first.get_by_role("button").click()
    visitor.page.locator("#network-log .repaired").wait_for(**SOON)
    return shot(visitor, ".map-card")


def shot(visitor, last):
    """From the top of the page to a little below what is to be seen last."""
    page = visitor.page
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(1, 300)
    page.wait_for_timeout(700)  # what moves has arrived
    box = page.locator(last).first.bounding_box()
    height = round(box["y"] + box["height"]) + 12
    return page.screenshot(clip={"x": 0, "y": 0, "width": 1080, "height": height}, full_page=True)


def keep(name, png):
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(COLOURS, kmeans=2, dither=Image.Dither.NONE).save(
        PICTURES / name, optimize=True
    )


def main():
    PICTURES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        running_world(Path(directory)) as address,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        visitor = Visitor(browser, address, **SCREEN)
        pair = [feeds(visitor), chat(visitor)]
        keep("network.png", network(visitor))
        page = browser.new_page(viewport={"width": 1080, "height": 700}, device_scale_factor=1.25)
        page.set_content(
            STACK.format(
                images="".join(
                    f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}">'
                    for png in pair
                )
            )
        )
        keep("feeds-and-chat.png", page.screenshot(full_page=True))
        browser.close()


if __name__ == "__main__":
    main()
