"""The page in a browser: it is quiet, asks for nothing, answers to mouse and slider, and no text covers another."""

from __future__ import annotations

import pytest

from tests.harness.report.browser import Browser, find_browser

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(find_browser() is None, reason="there is no Chromium on the PATH: chromium, google-chrome"),
]

OUTSIDE = """
[...document.querySelectorAll("div.panel > svg, #plot")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.width && (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1);
  }).map(text => [svg.closest("figure, #explorer").id, text.textContent]);
})
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


def told_of(page, *methods):
    """What the page reported of some kinds."""
    return [event["params"] for event in page.events if event["method"] in methods]


def shown_tip(page):
    return page.evaluate("getComputedStyle(tip).display === 'none' ? '' : tip.textContent")


def chosen(page, field, value, event="change"):
    """Set a field, and tell the page."""
    page.evaluate(
        f"(() => {{ const field = document.querySelector('{field}'); field.value = '{value}';"
        f" field.dispatchEvent(new Event('{event}', {{bubbles: true}})); }})()"
    )


def unfolded(page: Browser) -> None:
    """Open all that is folded; figures and tables are drawn then."""
    page.evaluate(
        "new Promise(done => { document.querySelectorAll('details').forEach(one => { one.open = true; });"
        " setTimeout(done, 50); })"
    )
    assert page.evaluate("document.querySelectorAll('script.folded').length") == 0


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_the_page_reports_no_errors_and_asks_for_nothing(browser, report, width, dark):
    page = opened(browser, report, width, dark)
    assert told_of(page, "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled") == []
    requests = [one["request"]["url"] for one in told_of(page, "Network.requestWillBeSent")]
    assert [url for url in requests if not url.startswith("data:")] == [(report / "index.html").as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the window"


@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_leaves_its_panel(browser, report, width):
    page = opened(browser, report, width)
    unfolded(page)
    assert page.evaluate("document.querySelectorAll('div.panel > svg').length") > 20
    assert page.evaluate(OUTSIDE) == []


@pytest.mark.long
def test_a_dark_page_has_other_colours_than_a_light_one(browser, report):
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    light = opened(browser, report).evaluate(colours)
    dark = opened(browser, report, dark=True).evaluate(colours)
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def end_of_front(page):
    return page.evaluate(
        "(() => { const end = document.querySelector('#front').getPointAtLength(0);"
        " const matrix = document.querySelector('#plot').getScreenCTM();"
        " return {x: end.x * matrix.a + matrix.e, y: end.y * matrix.d + matrix.f}; })()"
    )


def test_hovering_over_a_point_says_which_mode_it_is_and_that_it_was_measured(browser, report):
    page = opened(browser, report)
    scrolled_to(page, "#plot")
    page.move_mouse(**end_of_front(page))
    assert "cores at" in shown_tip(page)
    assert "MHz" in shown_tip(page)
    assert "(measured)" in shown_tip(page)
    page.move_mouse(3, 3)
    assert shown_tip(page) == ""


def test_hovering_over_a_bar_says_what_it_is(browser, report):
    page = opened(browser, report)
    mark = "figure .mark-rect path[aria-label]"
    scrolled_to(page, mark)
    place = page.evaluate(
        f"(() => {{ const box = document.querySelector('{mark}').getBoundingClientRect();"
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
            chosen(page, "[name=table]", place)
            chosen(page, "[name=cost]", cost)
            assert label in page.evaluate("document.querySelector('#plot').textContent")
    assert told_of(page, "Runtime.exceptionThrown") == []


def click(page):
    """Click the end of the front."""
    place = end_of_front(page)
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **place)


def test_a_mode_that_was_clicked_tells_its_exact_name_and_the_view_survives_in_the_address(browser, report):
    page = opened(browser, report)
    scrolled_to(page, "#plot")
    click(page)
    text = "document.querySelector('#picked').innerText"
    name = page.evaluate("document.querySelector('#picked code').textContent")
    modes = page.evaluate(
        "JSON.parse(document.getElementById('explorer-data').textContent)[0].mode.map(mode => mode.join('-'))"
    )
    cores, *clocks = name.split("-")
    assert "-".join([cores[:-1], *(f"{float(mhz) * 1000:.0f}" for mhz in clocks)]) in modes, "not rounded"
    assert f"jetwatt nvpmodel-conf --power-mode {name} " in page.evaluate(text)
    assert page.evaluate("document.querySelectorAll('#picked .steps li').length") >= 1, "its neighbours, or the nearest"
    page.evaluate("document.querySelector('#picked h3 button').click()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    page.evaluate("document.querySelector('#plot').focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Enter")
    pinned = "document.querySelectorAll('#pinned tbody tr').length"
    assert page.evaluate(pinned) == 2, "the keyboard walks along the front and pins"
    view = page.evaluate("[location.hash, document.querySelector('#picked').innerText]")
    page.events.clear()
    page.open("about:blank", 1280, 900)
    page.open((report / "index.html").as_uri() + view[0], 1280, 900)
    assert page.evaluate(f"[location.hash, {text}]") == view
    title = "JSON.parse(document.getElementById('explorer-data').textContent)[0].title"
    address = "new URLSearchParams(location.hash.slice(9))"
    assert page.evaluate(f"{address}.get('table') === {title}"), "by its name: another report has others before it"
    assert page.evaluate(f"{address}.getAll('pin').every(pin => pin.endsWith(' ' + {title}))")
    assert page.evaluate(pinned) == 2


def test_a_filter_leaves_its_modes_and_a_drag_zooms_into_them(browser, report):
    page = opened(browser, report)
    page.evaluate(
        "(() => { const field = document.querySelector('[name=cores]'); field.selectedIndex = 1;"
        " field.dispatchEvent(new Event('change')); })()"
    )
    count = "Number(document.querySelector('#note').textContent.split(' ')[0].replace(',', ''))"
    filtered = page.evaluate(count)
    total = page.evaluate("JSON.parse(document.getElementById('explorer-data').textContent)[0].mode.length")
    assert 0 < filtered < total
    scrolled_to(page, "#plot")
    box = page.evaluate("(box => [box.x, box.y, box.width, box.height])(plot.getBoundingClientRect())")
    places = [(box[0] + box[2] * share, box[1] + box[3] * share) for share in (0.3, 0.5, 0.7)]
    for kind, (x, y) in zip(("mousePressed", "mouseMoved", "mouseReleased"), places):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
    assert page.evaluate(count) < filtered
    assert "zoom=" in page.evaluate("location.hash")
    page.evaluate("document.querySelector('#whole').click()")
    assert page.evaluate(count) == filtered


def test_a_table_is_sorted_by_its_headings(browser, report):
    page = opened(browser, report)
    unfolded(page)
    column = (
        "(() => { const table = [...document.querySelectorAll('figure table.data')].find(one => one.rows.length > 3);"
        " table.tHead.rows[0].cells[COLUMN].click();"
        " return [...table.tBodies[0].rows].map(row => row.cells[COLUMN].textContent); })()"
    )
    names = page.evaluate(
        "[...[...document.querySelectorAll('figure table.data')].find(one => one.rows.length > 3).tHead.rows[0].cells]"
        ".map(cell => cell.textContent)"
    )
    place = str(names.index("time_s"))
    up, down = (list(map(float, page.evaluate(column.replace("COLUMN", place)))) for _ in range(2))
    assert up == sorted(up)
    assert down == up[::-1]


def test_the_page_is_short_while_folded_and_has_no_box_that_scrolls(browser, report):
    page = opened(browser, report, 1400)
    assert page.evaluate("document.documentElement.scrollHeight") < 12_000
    boxes = (
        "[...document.querySelectorAll('main *')].filter(one => /auto|scroll/.test(getComputedStyle(one).overflowX))"
    )
    assert page.evaluate(f"{boxes}.length") == 0


def test_take_aways_are_filtered_by_device_and_text(browser, report):
    page = opened(browser, report)
    claims = "[...document.querySelectorAll('#claims tbody tr')]"
    shown = f"{claims}.filter(one => !one.hidden).map(one => one.dataset.device)"
    devices = page.evaluate(shown)
    assert devices
    chosen(page, "#filters [name=device]", "xavier-agx", "input")
    assert page.evaluate(shown) == devices
    chosen(page, "#filters [name=text]", "no claim says this", "input")
    assert page.evaluate(shown) == []


def test_take_aways_are_sorted_and_those_that_are_shown_are_saved_without_formulas(browser, report):
    page = opened(browser, report)
    saved = page.evaluate(
        "(() => { HTMLAnchorElement.prototype.click = function () { window.saved = decodeURIComponent(this.href); };"
        " const body = document.querySelector('#claims').tBodies[0], texts = ['=1+1', '-2', '+a', '@b', ''];"
        " body.replaceChildren(...texts.map(() => body.rows[0].cloneNode(true)));"
        " texts.forEach((text, place) => { body.rows[place].cells[8].textContent = text; });"
        " body.rows[4].hidden = true;"
        " document.querySelector('#claims').nextElementSibling.click(); return window.saved.split('\\n'); })()"
    )
    assert [line.rpartition(",")[2] for line in saved[1:5]] == ["'=1+1", "-2", "'+a", "'@b"]
    assert saved[5:] == [""], "without the hidden one"
    column = "[...document.querySelectorAll('#claims tbody tr')].map(row => row.cells[8].textContent)"
    page.evaluate("document.querySelectorAll('#claims th')[8].click()")
    assert page.evaluate(column) != ["=1+1", "-2", "+a", "@b", ""]
    page.evaluate("document.querySelectorAll('#claims th')[8].click()")
    assert page.evaluate(column)[-1] == ""


def test_paper_shows_every_figure_and_what_stays_folded(browser, report):
    page = opened(browser, report)
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.evaluate(closed)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.call("Emulation.setEmulatedMedia", media="print")
    folded = "[...document.querySelectorAll('details:not([open]) > summary')]"
    assert page.evaluate(
        "[...document.querySelectorAll('figure .panels, #claims')].every(one => one.offsetHeight > 0)"
        " && [...document.querySelectorAll('figure')].every(one => one.querySelector('.panel > svg'))"
    )
    assert page.evaluate(f"{folded}.length > 0 && {folded}.every(one => one.offsetHeight > 0)")
    page.call("Emulation.setEmulatedMedia", media="")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(closed) == before


@pytest.mark.long
def test_a_link_to_a_claim_opens_what_it_is_folded_in(browser, report):
    page = opened(browser, report)
    anchor = page.evaluate("document.querySelector('#claims tbody tr').id")
    assert not page.evaluate("document.getElementById('all-claims').open")
    page.evaluate(f"new Promise(done => {{ location.hash = '{anchor}'; setTimeout(done, 50); }})")
    assert page.evaluate("document.getElementById('all-claims').open")


def test_names_with_markup_are_text(browser, hostile_report):
    page = opened(browser, hostile_report)
    count = page.evaluate("document.querySelectorAll('[name=table] option').length")
    for place in range(count):
        chosen(page, "[name=table]", place)
    unfolded(page)
    scrolled_to(page, "#plot")
    click(page)
    page.evaluate("document.querySelector('#picked h3 button').click()")
    assert "onerror" in page.evaluate("document.querySelector('#picked').textContent")
    page.evaluate("new Promise(done => setTimeout(done, 100))")
    assert page.evaluate("document.querySelectorAll('figure').length") > 10
    assert page.evaluate("window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert page.evaluate("document.body.textContent.includes('onerror')"), "the names are shown"
