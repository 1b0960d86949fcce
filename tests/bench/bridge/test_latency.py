"""How long a control message takes to become a patch: from the producer's acknowledgement to a watcher."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from tests.integration.bridge.conftest import Stage
from topicbinding.bridge.apiserver import ApiServer

MESSAGES = 60


def test_message_to_patch(stage: Callable[..., Stage]) -> None:
    on = stage()
    on.running()
    on.send({"usersTopic": "warm-up"})
    on.until_three("warm-up", "a1", "left")
    server = ApiServer.from_kubeconfig(on.cluster.kubeconfig)
    path = f"/apis/topicbinding.dev/v1alpha1/namespaces/{on.namespace}/topicbindings"
    only = {"fieldSelector": f"metadata.name={on.name}"}
    seen = server.watch(path, on.raw()["metadata"]["resourceVersion"], only)
    took: list[float] = []
    with on.broker.producer() as producer:
        for number in range(MESSAGES):
            producer.produce(on.topic, json.dumps({"usersTopic": f"t{number}"}))
            producer.flush(5)
            sent = time.monotonic()
            assert any(binding["spec"]["usersTopic"] == f"t{number}" for _kind, binding in seen)
            took.append((time.monotonic() - sent) * 1000)
            time.sleep(0.02 * (number % 7))  # no lock-step with the bridge's own rhythm
    seen.close()
    took.sort()
    p50, p95 = took[len(took) // 2], took[int(len(took) * 0.95)]
    print("\n| message -> spec patched and seen | p50 ms | p95 ms | max ms | goal |\n|---|---|---|---|---|")
    print(f"| {MESSAGES} messages, 0 to 120 ms apart | {p50:.0f} | {p95:.0f} | {took[-1]:.0f} | p95 <= 200 |")
