"""The page in a browser: it is quiet, asks for nothing, answers to mouse and slider, and no text covers another."""

from __future__ import annotations

import pytest

from tests.harness.report.browser import Browser, find_browser

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="there is no Chromium on the PATH: chromium, google-chrome"
)

COVERED = """
(() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg.panel, #plot")) {
    const texts = [...svg.querySelectorAll("text")].map(text => ({ text, box: text.getBoundingClientRect() }));
    const frame = svg.getBoundingClientRect();
    const where = svg.closest("figure, #explorer").id;
    texts.forEach(({ text, box }, place) => {
      const across = box.left >= frame.left - 1 && box.right <= frame.right + 1;
      const down = box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
      if (!across || !down) found.push([where, text.textContent, "leaves the panel"]);
      const slanted = text.hasAttribute("transform") && text.getAttribute("transform").includes("-40");
      for (const other of texts.slice(place + 1)) {
        if (slanted && other.text.getAttribute("transform")) continue;
        const wide = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const high = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (wide > 1 && high > 3) found.push([where, text.textContent, other.text.textContent]);
      }
    });
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


def opened(browser, report, width=1280, dark=False):
    browser.events.clear()
    browser.open((report / "index.html").as_uri(), width, 900, dark)
    return browser


def scrolled_to(page, selector):
    """Bring an element into the middle, and wait until the page has noticed: it hides tips on scrolling."""
    page.evaluate(
        f"new Promise(done => {{ document.querySelector('{selector}').scrollIntoView({{block: 'center'}});"
        " requestAnimationFrame(() => requestAnimationFrame(done)); })"
    )


def shown_tip(page):
    return page.evaluate("getComputedStyle(tip).display === 'none' ? '' : tip.textContent")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_the_page_reports_no_errors_and_asks_for_nothing(browser, report, width, dark):
    page = opened(browser, report, width, dark)
    complaints = [
        event["params"]
        for event in page.events
        if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
    ]
    requests = [
        event["params"]["request"]["url"] for event in page.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [(report / "index.html").as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the window"


@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_of_a_figure_covers_another_or_leaves_it(browser, report, width):
    page = opened(browser, report, width)
    assert page.evaluate("document.querySelectorAll('svg.panel').length") > 20
    assert page.evaluate(COVERED) == []


def test_a_dark_page_has_other_colours_than_a_light_one(browser, report):
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    light = opened(browser, report).evaluate(colours)
    dark = opened(browser, report, dark=True).evaluate(colours)
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_hovering_over_a_point_says_which_mode_it_is_and_that_it_was_measured(browser, report):
    page = opened(browser, report)
    scrolled_to(page, "#plot")
    place = page.evaluate(
        "(() => { const end = document.querySelector('#front').getPointAtLength(0);"
        " const matrix = document.querySelector('#plot').getScreenCTM();"
        " return {x: end.x * matrix.a + matrix.e, y: end.y * matrix.d + matrix.f}; })()"
    )
    page.move_mouse(place["x"], place["y"])
    assert "cores at" in shown_tip(page)
    assert "MHz" in shown_tip(page)
    assert "(measured)" in shown_tip(page)
    page.move_mouse(3, 3)
    assert shown_tip(page) == ""


def test_hovering_over_a_bar_says_what_it_is(browser, report):
    page = opened(browser, report)
    scrolled_to(page, "figure [data-tip] rect")
    place = page.evaluate(
        "(() => { const box = document.querySelector('figure [data-tip] rect').getBoundingClientRect();"
        " return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
    )
    page.move_mouse(place["x"], place["y"])
    assert "simulated" in shown_tip(page)


def test_the_slider_chooses_the_fastest_mode_within_the_budget(browser, report):
    page = opened(browser, report)
    choose = (
        "(share => { const slider = document.querySelector('[name=budget]');"
        " slider.value = Number(slider.min) + share * (slider.max - slider.min);"
        " slider.dispatchEvent(new Event('input')); const said = document.querySelector('output');"
        " const table = JSON.parse(document.getElementById('explorer-data').textContent)[0];"
        " const within = table.time_ms.filter((_, place) => table.power_w[place] <= Number(slider.value));"
        " const place = table.mode.findIndex(mode => mode.join('-') === said.dataset.mode);"
        " return {mode: said.dataset.mode, text: said.textContent, "
        " time: table.time_ms[place], best: Math.min(...within)}; })"
    )
    little, much = page.evaluate(f"{choose}(0.1)"), page.evaluate(f"{choose}(0.9)")
    assert little["time"] == little["best"]
    assert much["time"] == much["best"]
    assert little["mode"] != much["mode"]
    assert much["text"].startswith("Fastest within")


def test_the_explorer_shows_energy_too_and_every_table(browser, report):
    page = opened(browser, report)
    count = page.evaluate("document.querySelectorAll('[name=table] option').length")
    assert count >= 2
    for place in range(count):
        for cost, label in (("energy", "energy of a minibatch (J)"), ("power", "median power (W)")):
            page.evaluate(
                f"for (const [name, value] of [['table', '{place}'], ['cost', '{cost}']]) {{"
                " const field = document.querySelector(`[name=${name}]`); field.value = value;"
                " field.dispatchEvent(new Event('change')); }"
            )
            assert label in page.evaluate("document.querySelector('#plot').textContent")
    assert [event for event in page.events if event["method"] == "Runtime.exceptionThrown"] == []
