"""The bridge's stage, as its integration tests have it."""

from tests.integration.bridge.conftest import broker, cluster, namespace, stage

__all__ = ["broker", "cluster", "namespace", "stage"]
