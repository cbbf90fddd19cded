"""The page in a real browser: headless Chromium, which has to be installed (`apt-get install chromium`)."""

from __future__ import annotations

import html
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from workflows.cli import main

pytestmark = pytest.mark.slow

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LIGHT, _DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
# Asks the browser what it made of a copy of the page; the page itself allows no script. The copy stands in a
# frame, since headless Chromium makes no window narrower than 500 pixels.
_PROBE = """<script>addEventListener('load', () => {
  const root = parent.document.documentElement, own = document.documentElement;
  const style = getComputedStyle(document.body);
  const wide = [...document.querySelectorAll('body *')].filter(
    e => !e.closest('.scroll, pre, svg, caption, thead') && e.getBoundingClientRect().right > innerWidth + 1);
  root.dataset.width = `${own.scrollWidth} of ${innerWidth}`;
  root.dataset.wide = wide.map(e => e.tagName + '.' + e.className).join(' ');
  root.dataset.paper = style.backgroundColor;
  root.dataset.ink = style.color;
  root.dataset.marks = document.querySelectorAll('svg.chart rect, svg.chart path, svg.chart circle').length;
  root.dataset.drawn = [...document.querySelectorAll('svg.chart')].every(e => e.getBBox().height > 100);
  root.dataset.outside = [...document.querySelectorAll('svg.chart *')].filter(
    e => e.getBoundingClientRect().right > innerWidth || e.getBoundingClientRect().left < 0).length;
})</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    if found is None:
        pytest.fail(
            "this test opens the page in headless Chromium, which is not installed; "
            "install it: apt-get install -y chromium"
        )
    return found


@pytest.fixture(scope="module", params=["corpus", "dataset", "run"])
def page(request: pytest.FixtureRequest, folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("page") / "report.html"
    arguments = ["report", str(folders / request.param), "--output", str(output), "--examples", "60"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return output


def _browse(chromium: str, profile: Path, url: Path, *options: str) -> str:
    done = subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={profile}", *options),
            url.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _probe(chromium: str, folder: Path, page: Path, width: int, *options: str) -> dict[str, str]:
    framed = folder / "framed.html"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    copy = html.escape(text.replace("</body>", f"{_PROBE}</body>"))
    framed.write_text(
        f'<!DOCTYPE html><html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f'<iframe style="width:{width}px;height:800px;border:0" srcdoc="{copy}"></iframe></html>',
        encoding="utf-8",
    )
    dom = _browse(chromium, folder / "profile", framed, "--dump-dom", "--window-size=1400,900", *options)
    opening = re.search(r"<html[^>]*>", dom)
    assert opening is not None
    return dict(re.findall(r'data-([a-z]+)="([^"]*)"', opening.group()))


def test_the_browser_reads_what_was_written(chromium: str, page: Path, tmp_path: Path) -> None:
    dom = _browse(chromium, tmp_path / "profile", page, "--dump-dom")
    text = html.unescape(re.sub(r"<[^>]*>", "", dom))
    assert "How it was made" in text
    assert "Most frequent tokens" in text or "Norm of the gradient" in text
    assert "<script" not in dom
    assert "<img" not in dom
    written = page.read_text(encoding="utf-8")
    for tag in ("section", "table", "svg", "article", "rect", "path", "circle", "mark"):
        assert dom.count(f"<{tag}") == written.count(f"<{tag}"), tag


@pytest.mark.parametrize("width", [360, 1100])
def test_nothing_is_wider_than_the_window(chromium: str, page: Path, tmp_path: Path, width: int) -> None:
    seen = _probe(chromium, tmp_path, page, width)
    assert seen["width"] == f"{width} of {width}"
    assert seen["wide"] == ""
    assert seen["drawn"] == "true"
    assert int(seen["marks"]) > 3
    assert seen["outside"] == "0"


def test_light_and_dark_follow_the_reader(chromium: str, page: Path, tmp_path: Path) -> None:
    light = _probe(chromium, tmp_path, page, 800, _LIGHT)
    dark = _probe(chromium, tmp_path, page, 800, _DARK)
    assert (light["paper"], light["ink"]) == ("rgb(252, 252, 250)", "rgb(28, 32, 36)")
    assert (dark["paper"], dark["ink"]) == ("rgb(21, 24, 27)", "rgb(230, 232, 230)")


def _size_and_first_pixel(png: bytes) -> tuple[int, int, tuple[int, ...]]:
    """Width, height and the pixel at the upper left, which no PNG filter changes."""
    width, height = struct.unpack(">II", png[16:24])
    pixels, position = b"", 8
    while position < len(png):
        (length,) = struct.unpack(">I", png[position : position + 4])
        if png[position + 4 : position + 8] == b"IDAT":
            pixels += png[position + 8 : position + 8 + length]
        position += 12 + length
    return width, height, tuple(zlib.decompress(pixels)[1:4])


@pytest.mark.parametrize(("scheme", "paper"), [(_LIGHT, (252, 252, 250)), (_DARK, (21, 24, 27))])
def test_a_screenshot(
    chromium: str, page: Path, tmp_path: Path, scheme: str, paper: tuple[int, int, int]
) -> None:
    image = tmp_path / "page.png"
    _browse(chromium, tmp_path / "profile", page, "--window-size=360,780", f"--screenshot={image}", scheme)
    png = image.read_bytes()
    assert _size_and_first_pixel(png) == (360, 780, paper)
    # A blank page of this size takes some three kilobytes.
    assert len(png) > 15_000
