"""Every reason the controller itself can give has a page that says what to do, and every setting a line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topicbinding.controller.settings import Settings
from topicbinding.controller.situation import Why

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "operator" / "topicbinding" / "controller").glob("*.py"))
PATTERN = re.compile(r'(?:Failure|RefusedError)\(\s*"([A-Z][A-Za-z]+)"')
REASONS = sorted(
    {reason for path in SOURCES for reason in PATTERN.findall(path.read_text())} | {why.value for why in Why}
)


def test_there_are_reasons_to_look_for() -> None:
    assert {"WaitingForLinger", "QuotaExceeded", "DriverLost", "ProgressDeadlineExceeded"} <= set(REASONS)


@pytest.mark.parametrize("reason", REASONS)
def test_reason_has_a_page(reason: str) -> None:
    page = ROOT / "docs" / "runbooks" / f"{reason}.md"
    assert page.exists(), f"write {page.relative_to(ROOT)}"
    assert page.read_text().startswith(f"# {reason}\n")
    assert "**Do**" in page.read_text()


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_setting_is_documented(name: str) -> None:
    assert f"`TB_{name.upper()}`" in (ROOT / "docs" / "controller.md").read_text()
