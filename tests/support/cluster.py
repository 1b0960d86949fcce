"""The kind cluster of `make up`, as tests see it: kubectl with the project's own kubeconfig."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "topicbinding"


@dataclass(frozen=True)
class Cluster:
    """Runs kubectl against the local cluster and nothing else."""

    kubeconfig: Path = CACHE / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        path = f"{CACHE / 'bin'}:{os.environ['PATH']}"
        return os.environ | {"KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        answer = subprocess.run(
            ["kubectl", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=seconds,
            check=False,
        )
        if check and answer.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}\n{answer.stdout}{answer.stderr}")
        return answer

    def kubectl_json(self, *arguments: str, stdin: str | None = None) -> Any:
        return json.loads(self.kubectl(*arguments, stdin=stdin).stdout)

    def apply_crds(self) -> None:
        # Server-side: the schemas are larger than the annotation of a client-side apply may be.
        self.kubectl(
            "apply", "--server-side", "--force-conflicts", "--field-manager=topicbinding-install",
            "-f", str(ROOT / "crds"),
        )  # fmt: skip
        self.kubectl("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=60s")

    def images(self) -> dict[str, str]:
        """Names with tags of the images built by `make up`."""
        loaded: dict[str, str] = json.loads((CACHE / "images.json").read_text())
        return loaded
