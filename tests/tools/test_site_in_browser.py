"""The site in a browser, opened as files: search works, nothing is fetched, nothing is wider than a phone."""

from __future__ import annotations

import sys

import pytest

from tests.harness.report.browser import Browser, find_browser
from tools.docs import build

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.one_python,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="the site is built on Python 3.11 or later"),
    pytest.mark.skipif(find_browser() is None, reason="there is no Chromium on the PATH: chromium, google-chrome"),
]

WIDTHS = {"phone": 390, "desktop": 1280}
SCREEN_PX = 1000
"""Height of a screen: what a window of 1280 x 1000 shows."""
MOST_SCREENS = 3
"""Of a page that people write. The generated reference is looked up in parts."""
HEIGHT = "document.querySelector('article').getBoundingClientRect().height"
REPORTED = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")

OUTSIDE = """
[...document.querySelectorAll("article *")].filter(element => {
  const box = element.getBoundingClientRect();
  if (!box.width || box.right <= innerWidth + 1) return false;
  for (let outer = element.parentElement; outer.tagName !== "ARTICLE"; outer = outer.parentElement)
    if (/auto|scroll/.test(getComputedStyle(outer).overflowX)) return false;
  return true;
}).map(element => `${element.tagName}: ${element.textContent.trim().slice(0, 60)}`)
"""
"""What is cut off at the right: the theme hides what is wider than a phone, so that the page does not scroll there."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built of this tree."""
    pytest.importorskip("sphinx")
    out = tmp_path_factory.mktemp("site")
    build.build(out)
    return out


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


def opened(browser, page, width, dark=False):
    browser.events.clear()
    browser.open(page, width, 900, dark)
    return browser


def reported(browser):
    return [event["params"] for event in browser.events if event["method"] in REPORTED]


def resized(browser, width):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    return browser


@pytest.mark.long
def test_pages_are_quiet_fit_every_window_and_three_screens_and_ask_for_files_of_the_site_only(browser, site):
    pages = sorted(site.glob("*.html"))
    assert len(pages) > 50
    wide, loud, foreign, broken, tall = [], [], [], [], []
    written = {name.partition(".")[0] for name in build.written_pages().values()}
    assert {"security", "changelog", "papers", "measured-tables"} <= written
    for page in pages:
        shown = opened(browser, page.as_uri(), WIDTHS["desktop"])
        requests = [event["params"]["request"]["url"] for event in shown.events
                    if event["method"] == "Network.requestWillBeSent"]  # fmt: skip
        foreign += [url for url in requests if not url.startswith((site.as_uri(), "data:"))]
        if not shown.evaluate("[...document.images].every(one => one.loading === 'lazy' || one.naturalWidth > 0)"):
            broken.append(page.name)
        for width in WIDTHS.values():
            outside = resized(shown, width).evaluate(OUTSIDE)
            if outside or not shown.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                wide.append((page.name, width, outside[:3]))
        screens = resized(shown, WIDTHS["desktop"]).evaluate(HEIGHT) / SCREEN_PX
        if page.stem in written and screens > MOST_SCREENS:
            tall.append((page.name, round(screens, 1)))
        if reported(shown):
            loud.append((page.name, reported(shown)))
    assert (wide, loud, foreign, broken, tall) == ([], [], [], [], [])


@pytest.mark.parametrize(
    ("words", "page", "width"),
    [
        ("fetch stall", "figures.html", WIDTHS["phone"]),
        ("nvpmodel", "command-nvpmodel-conf.html", WIDTHS["desktop"]),
        ("simulate_corpus", "python-api.html", WIDTHS["desktop"]),
    ],
    ids=["phone", "command", "name"],
)
def test_search_finds_a_page_without_a_server(browser, site, words, page, width):
    shown = opened(browser, (site / "search.html").as_uri() + f"?q={words.replace(' ', '+')}", width)
    found = shown.evaluate(
        "new Promise((done, failed) => { const start = Date.now(), look = () => {"
        " const links = [...document.querySelectorAll('#search-results li a')].map(link => link.href);"
        " const status = document.querySelector('#search-results .search-summary');"
        " if (status && /finished|found/i.test(status.textContent) && links.length) done(links);"
        " else if (Date.now() - start > 60000) failed(new Error('no result'));"
        " else setTimeout(look, 50); }; look(); })"
    )
    assert any(link.split("#")[0].split("?")[0].endswith(page) for link in found), found
    assert reported(shown) == []


@pytest.mark.long
def test_a_dark_page_has_other_colours_and_every_kind_of_page_is_in_the_menu(browser, site):
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    page = (site / "index.html").as_uri()
    light = opened(browser, page, WIDTHS["desktop"]).evaluate(colours)
    dark = opened(browser, page, WIDTHS["desktop"], dark=True).evaluate(colours)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    captions = "[...document.querySelectorAll('.sidebar-tree .caption')].map(one => one.textContent)"
    assert tuple(browser.evaluate(captions)) == build.KINDS
