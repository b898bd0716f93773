"""How a page looks: of the whole viewport, or of a part of it, larger."""

import base64
import contextlib
import hashlib

from hands.api import Context, ToolError
from hands.attachments import BYTES_MAX
from hands.browser.act import Act
from hands.browser.chromium import Error
from hands.browser.pages import STEP, bounded

_JPEG = 80
_ZOOM_MAX = 8.0


async def screenshot(act: Act) -> str:
    """The viewport, attached; the line that stands for it."""
    page = act.tab.page
    async with bounded():
        data = await page.screenshot(timeout=STEP * 1000, scale="css")
        if len(data) > BYTES_MAX:
            data = await page.screenshot(
                timeout=STEP * 1000, scale="css", type="jpeg", quality=_JPEG
            )
    return _attached(data, "screenshot", act.context)


async def zoom(act: Act) -> str:
    """A part of it, attached; the line that stands for it."""
    page = act.tab.page
    left, top, right, bottom = act.given["region"]
    wide, high = act.viewport["width"], act.viewport["height"]
    if not (0 <= left < right <= wide and 0 <= top < bottom <= high):
        raise ToolError(f"region is no part [x0, y0, x1, y1] of the viewport, {wide}x{high}")
    scale = min(wide / (right - left), high / (bottom - top), _ZOOM_MAX)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": scale}
    async with bounded():
        scrolled = await page.evaluate("[window.scrollX, window.scrollY]")
        clip["x"] += scrolled[0]
        clip["y"] += scrolled[1]
        session = await page.context.new_cdp_session(page)
        try:
            given = {"format": "png", "clip": clip}
            answer = await session.send("Page.captureScreenshot", given)
        finally:
            with contextlib.suppress(Error):
                await session.detach()
    return _attached(base64.b64decode(answer["data"]), "zoom", act.context)


def _attached(data: bytes, name: str, context: Context) -> str:
    kind = "image/jpeg" if data.startswith(b"\xff\xd8\xff") else "image/png"
    context.attach(data, kind, f"{name}.{kind.rpartition('/')[2]}")
    return f"[{kind}, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}: attached]"
