"""A headless Chromium that is on the machine, and a page in it that notes whatever should not have happened."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.waiting import SECONDS

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}

# For every text that is seen, how much brighter the one of text and ground is, as WCAG 2 counts it.
CONTRASTS = """() => {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    probe.clearRect(0, 0, 1, 1); probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [R, G, B] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * R + 0.7152 * G + 0.0722 * B;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility() || node.closest(".hidden, template")) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.className + " " + texts.currentNode.data.trim().slice(0, 30)]);
  }
  return found;
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The machine's own browser; the test is skipped where there is none."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if not executable:
        pytest.skip("no chromium and no google-chrome on the path: the page cannot be looked at")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def looking(browser: Browser, origin: str, *, size=DESK, scheme: str = "light", faults: bool = False) -> Iterator[Page]:
    """A new page, with nothing remembered. On leaving: nothing was asked of another origin, no dialog opened, no
    script failed, and unless the test makes `faults` the console is empty."""
    context = browser.new_context(viewport=size, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(1000 * SECONDS)
    asked, said, failed, dialogs = [], [], [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    yield page
    context.close()
    assert asked
    assert [url for url in asked if not url.startswith(origin)] == []
    assert failed == []
    assert dialogs == []
    assert faults or said == []
