"""The program behind `make up`, once everything stands."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.support.cluster import ROOT, Cluster


def local(*words: str) -> str:
    command = [sys.executable, str(ROOT / "deploy/local"), *words]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_a_second_up_finds_everything_there(cluster: Cluster) -> None:
    local("up")
    times = []

    # The best of three: what it costs, not what else the machine is doing.
    for _ in range(3):
        begun = time.monotonic()
        printed = local("up")
        times.append(time.monotonic() - begun)
        steps = {line.split("]")[0] for line in printed.splitlines()}
        assert steps == {"[plan", "[up"}, printed

    print(f"\nup, when nothing is to be done: {min(times):.1f} s")
    assert min(times) <= 5


def test_status_names_what_everyone_relies_on(cluster: Cluster) -> None:
    printed = local("status")

    for words in ("topicbinding: 1 node(s), ready", "localhost:5001: answers", "127.0.0.1:9092 PLAINTEXT"):
        assert words in printed


def test_the_evidence_of_a_failure_is_gathered_in_one_folder(cluster: Cluster, tmp_path: Path) -> None:
    local("collect", str(tmp_path / "cluster"))

    assert "Kafka Server started" in (tmp_path / "cluster/kafka/kafka-0.log").read_text()
    assert "kafka-0" in (tmp_path / "cluster/kafka/pods.txt").read_text()
    assert "coredns" in (tmp_path / "cluster/kube-system/objects.txt").read_text()
    assert "topicbinding-control-plane" in (tmp_path / "cluster/nodes.txt").read_text()


def test_the_users_own_kubeconfig_is_left_alone(cluster: Cluster) -> None:
    own = Path.home() / ".kube" / "config"

    assert not own.exists() or "kind-topicbinding" not in own.read_text()
