"""A namespace with the restricted profile, and topics of our own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.e2e.job.pods import Bindings
from tests.integration.job.world import Topics
from tests.support.cluster import Cluster


@pytest.fixture
def topics() -> Iterator[Topics]:
    made = Topics()
    yield made
    made.close()


@pytest.fixture
def bindings(cluster: Cluster) -> Iterator[Bindings]:
    name = f"e2e-job-{uuid.uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))
    yield Bindings(cluster, name)
    cluster.kubectl("-n", name, "delete", "topicbinding", "--all", "--timeout=120s", check=False, seconds=150)
    cluster.kubectl("delete", "namespace", name, "--wait=false", check=False)
