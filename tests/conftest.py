"""Gives every test the marker of the layer it lives in, so `pytest -m unit` and the directories never disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

LAYERS = ("unit", "integration", "e2e", "browser", "bench")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        layer = item.path.relative_to(HERE).parts[0]
        if layer in LAYERS:
            item.add_marker(layer)
