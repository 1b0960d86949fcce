"""What every layer shares: the marker of the layer a test lives in, and the local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster

LAYERS = ("unit", "integration", "e2e", "browser", "bench")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        layer = item.path.relative_to(HERE).parts[0]
        if layer in LAYERS:
            item.add_marker(layer)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster made by `make up`; a test that asks for it without one fails with what to do."""
    found = Cluster()
    answer = found.kubectl("get", "--raw", "/readyz", check=False)
    if answer.returncode != 0:
        pytest.fail(f"no local cluster: run `make up` first\n{answer.stderr}", pytrace=False)
    return found
