"""A real Chromium for the page: Debian's, or TB_CHROMIUM's. Screenshots are kept in artifacts/browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Error, Page, Request, async_playwright

from topicbinding.gateway.settings import Settings

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts" / "browser"
CHROMIUM = os.environ.get("TB_CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# Perspective's settings panel carries an inline handler that the policy blocks, as it should; all else is an
# error.
TOLERATED = re.compile(r"Executing inline event handler violates")


@pytest.fixture(scope="session", autouse=True)
def _built_page() -> None:
    """The page as it is in the sources: built here, from the locked packages, as its image does."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    folder = Settings().page_dir.parent
    if not (folder / "node_modules").is_dir():
        _npm(folder, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    _npm(folder, "run", "build")
    assert (folder / "dist" / "index.html").is_file()


def _npm(folder: Path, *arguments: str) -> None:
    program = shutil.which("npm")
    assert program is not None, "npm is needed to build the page"
    done = subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"npm {' '.join(arguments)}\n{done.stdout}{done.stderr}"


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        await running.close()


class Tab:
    """One tab with what it complained about and what it loaded, and ways to look into the grid."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.loaded: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", self._error)
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not TOLERATED.search(message.text):
            self.complaints.append(message.text)

    def _error(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _request(self, request: Request) -> None:
        self.loaded.append(request.url)

    async def open(self, url: str) -> None:
        await self.page.goto(url)

    async def cells(self) -> list[list[str]]:
        """The visible rows of the grid, as text."""
        found: list[list[str]] = await self.page.evaluate(
            """() => {
                const grid = document.querySelector("perspective-viewer-datagrid");
                const table = grid?.regular_table;
                if (!table) return [];
                return [...table.querySelectorAll("tbody tr")].map(
                    (row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent));
            }"""
        )
        return found

    async def column(self, index: int) -> list[str]:
        return [row[index] for row in await self.cells() if len(row) > index]

    async def until_cells(self, condition: str, seconds: float = 30) -> None:
        """Wait until a JavaScript condition on `rows` (visible rows as text) is true."""
        await self.page.wait_for_function(
            """(condition) => {
                const table = document.querySelector("perspective-viewer-datagrid")?.regular_table;
                if (!table) return false;
                const rows = [...table.querySelectorAll("tbody tr")].map(
                    (row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent));
                const test = {
                    any: () => rows.length > 0 && rows[0].length > 0,
                    contains: (text) => rows.some((row) => row.some((cell) => cell.includes(text))),
                    all: (column, text) => rows.length > 0 && rows.every((row) => row[column].includes(text)),
                    first: (text) => rows[0]?.[0] === text,
                    count: (n) => rows.length === Number(n),
                }[condition[0]];
                return test(...condition.slice(1));
            }""",
            arg=condition.split("|") if "|" in condition else [condition],
            timeout=seconds * 1000,
        )

    async def state(self, wanted: str, seconds: float = 30) -> None:
        await self.page.wait_for_selector(f"#badge[data-state={wanted}]", timeout=seconds * 1000)

    async def fact(self, name: str) -> str:
        return await self.page.inner_text(f'[data-fact="{name}"]')

    async def screenshot(self, name: str) -> None:
        await self.page.screenshot(path=ARTIFACTS / f"{name}.png")


@pytest.fixture
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    context = await browser.new_context(viewport={"width": 1600, "height": 950}, color_scheme="dark")
    made = Tab(await context.new_page())
    yield made
    await context.close()


@pytest.fixture
async def phone(browser: Browser) -> AsyncIterator[Tab]:
    context = await browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme="light", has_touch=True, is_mobile=True
    )
    made = Tab(await context.new_page())
    yield made
    await context.close()
