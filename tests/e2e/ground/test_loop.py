"""The developer's loop: a changed line of code runs in the cluster within the promised time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.support import pods
from tests.support.cluster import ROOT, Cluster

INPUTS = (".dockerignore", "Dockerfile", "deploy", "kind-config.yaml", "operator", "requirements", "sparkjob")
UNWANTED = shutil.ignore_patterns("node_modules", "__pycache__", "dist", "target")


def changed_copy(target: Path, module: str, mark: str) -> None:
    """The repository's sources with one line more in one file, so that nobody's working tree is touched."""
    for name in INPUTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=UNWANTED)
        else:
            shutil.copy2(source, target / name)
    with (target / module).open("a") as file:
        file.write(f'\nMARK = "{mark}"\n')


@pytest.mark.parametrize(
    ("image", "module", "seconds"),
    [
        ("control", "operator/topicbinding/__init__.py", 20),
        ("spark", "sparkjob/topicbinding_job/__init__.py", 40),
    ],
)
def test_a_code_change_runs_soon(
    cluster: Cluster, namespace: str, tmp_path: Path, image: str, module: str, seconds: float
) -> None:
    package = Path(module).parent.name
    mark = uuid.uuid4().hex
    program = ["python", "-c", f"import {package}; print(getattr({package}, 'MARK', 'before'))"]
    # The node has the image of before, as it has when somebody is at work.
    first = pods.pod_spec(cluster.images()[image], program)
    before = pods.run_to_end(cluster, namespace, first, seconds=300)
    assert before == "before\n"
    changed_copy(tmp_path, module, mark)
    index = tmp_path / "images.json"

    begun = time.monotonic()
    command = [sys.executable, str(tmp_path / "deploy/local"), "images", image, "--index", str(index)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    spec = pods.pod_spec(json.loads(index.read_text())[image], program)
    after = pods.run_to_end(cluster, namespace, spec, seconds=120)
    took = time.monotonic() - begun

    assert after == f"{mark}\n"
    print(f"\n{image}: code change -> running in {took:.1f} s (promised: {seconds} s)")
    assert took <= seconds
