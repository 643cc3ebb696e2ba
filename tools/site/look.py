"""Looks at the site in Chromium, as readers do: look.py FOLDER CHROMIUM.

Every page is looked at wide and light, and narrow and dark. It fails where a page writes an error to the console, asks
for anything from elsewhere, must be scrolled sideways on a phone, or has a link that leads nowhere; and where the
search does not find "resume". Pictures of some pages are left in FOLDER/../looked. What `rowdex info --html` wrote is
looked at in the same way, as the file that it is: look.py FOLDER CHROMIUM [REPORT.html].
"""

from __future__ import annotations

import contextlib
import functools
import html.parser
import http.server
import pathlib
import sys
import threading
import urllib.parse
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, sync_playwright

WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PICTURED = ("index.html", "first-training.html", "concepts/carousel.html", "comparison.html", "reference/python.html")
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CHARTS = "[...document.querySelectorAll('svg')].map(chart => chart.getBoundingClientRect())"
COLOURS = """['backgroundColor', 'color'].map(
    name => getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3).map(Number))"""
SCHEME = "document.body.getAttribute('data-md-color-scheme')"


class Links(html.parser.HTMLParser):
    """Where a page leads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if given.get("id"):
            self.anchors.add(str(given["id"]))
        for name in ("href", "src"):
            if given.get(name):
                self.links.append(str(given[name]))


def broken(site: pathlib.Path) -> list[str]:
    """Links and anchors that lead nowhere. Of what rustdoc has made, only that it is there."""
    paths = [path for path in site.rglob("*.html") if "rustdoc" not in path.parts]
    pages = {path: Links(path.read_text()) for path in paths}
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            # The page for what is not found is served from the root.
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            led = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if led.is_dir():
                led /= "index.html"
            anchor = urllib.parse.unquote(parts.fragment)
            missing = not led.is_file() or (anchor and led in pages and anchor not in pages[led].anchors)
            if missing and not anchor.startswith("__"):
                wrong.append(f"{path.relative_to(site)} links {link}, which leads nowhere")
    return wrong


@contextlib.contextmanager
def served(site: pathlib.Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256  # A page asks for dozens of files at once, and the usual 5 would drop some.

    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()


def watch(page: Page, root: str, wrong: list[str]) -> None:
    """Notes what a page complains of, and what it asks for that is not the site's."""

    def told(what: str) -> None:
        wrong.append(f"{page.url.removeprefix(root)}: {what}")

    page.on("console", lambda said: told(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told(str(error)))
    page.on("response", lambda got: told(f"{got.url} is not there") if got.status >= 400 else None)
    page.on("request", lambda asked: None if asked.url.startswith((root, "data:", "blob:")) else told(asked.url))


def look(browser: Browser, site: pathlib.Path, root: str, phone: bool) -> list[str]:
    wrong: list[str] = []
    kept = site.parent / "looked"
    kept.mkdir(exist_ok=True)
    scheme, size = ("slate", PHONE) if phone else ("default", WIDE)
    context = browser.new_context(viewport=size, color_scheme="dark" if phone else "light")
    page = context.new_page()
    # Each page would build the index of the search anew, which takes longer than everything else.
    page.route("**/workers/search*", lambda route: route.fulfill(body="", content_type="text/javascript"))
    watch(page, root, wrong)
    for path in sorted(site.rglob("*.html")):
        name = str(path.relative_to(site))
        if name.startswith("rustdoc/") or name == "404.html":
            continue
        page.goto(root + name, wait_until="load")
        if page.evaluate(SCHEME) != scheme:
            wrong.append(f"{name}: it is {page.evaluate(SCHEME)}, and not {scheme}")
        if page.evaluate(SIDEWAYS) > 0:
            wrong.append(f"{name}: it must be scrolled sideways at {size['width']} pixels")
        if name in PICTURED:
            page.screenshot(path=kept / f"{name.replace('/', '-')}.{size['width']}.png")
    context.close()
    return wrong


def look_at_report(browser: Browser, report: pathlib.Path, kept: pathlib.Path) -> list[str]:
    """What is wrong with a page that must work without a server, on any screen."""
    wrong: list[str] = []
    url = report.as_uri()
    for size, scheme in ((WIDE, "light"), (PHONE, "dark")):
        context = browser.new_context(viewport=size, color_scheme=scheme)
        page = context.new_page()
        watch(page, url, wrong)
        page.goto(url, wait_until="load")
        if page.evaluate(SIDEWAYS) > 0:
            wrong.append(f"{report.name}: it must be scrolled sideways at {size['width']} pixels")
        if not all(box["width"] > 100 and box["height"] > 50 for box in page.evaluate(CHARTS)):
            wrong.append(f"{report.name}: a chart has no size at {size['width']} pixels")
        paper, ink = page.evaluate(COLOURS)
        if (sum(paper) < sum(ink)) != (scheme == "dark"):
            wrong.append(f"{report.name}: it is not {scheme}: {ink} on {paper}")
        page.screenshot(path=kept / f"report.{size['width']}.png", full_page=True)
        context.close()
    return wrong


def search(browser: Browser, root: str, words: str) -> list[str]:
    """What the search finds."""
    page = browser.new_page(viewport=WIDE)
    page.goto(root + "index.html")
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").fill(words)
    page.locator(".md-search-result__link").first.wait_for(timeout=30_000)
    found = [link.get_attribute("href") or "" for link in page.locator(".md-search-result__link").all()]
    page.close()
    return [link.removeprefix(root) for link in found]


def main(folder: str, chromium: str, *reports: str) -> int:
    site = pathlib.Path(folder).resolve()
    wrong = broken(site)
    with served(site) as root, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for phone in (False, True):
            wrong += look(browser, site, root, phone)
        found = search(browser, root, "resume")
        if not any(link.startswith(("index.html", "first-training.html", "loader.html")) for link in found):
            wrong.append(f'the search for "resume" finds {found}')
        for report in reports:
            wrong += look_at_report(browser, pathlib.Path(report).resolve(), site.parent / "looked")
        browser.close()
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
