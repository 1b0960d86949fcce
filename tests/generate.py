"""`python -m tests.generate write|check`: the committed files that are generated, in one list.

`make generate` writes them, `make lint` checks that nobody changed them by hand or forgot to write them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from topicbinding.api import crd, reference

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "topicbinding"


def definitions() -> dict[Path, str]:
    files: dict[Path, str] = {}
    for definition in (crd.binding_definition(), crd.generation_definition()):
        name = f"{definition['metadata']['name']}.yaml"
        text = crd.render(definition)
        # Helm installs what stands in a chart's crds/ directory; it cannot look outside of the chart.
        files |= {ROOT / "crds" / name: text, CHART / "crds" / name: text}
    return files


def api_reference() -> dict[Path, str]:
    return {ROOT / "docs" / "reference.md": reference.render()}


def install() -> dict[Path, str]:
    rendered = subprocess.run(
        [
            "helm",
            "template",
            "topicbinding",
            str(CHART),
            "--namespace",
            "topicbinding-system",
            "--include-crds",
            "--set",
            "createNamespace=true",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    head = "# Generated from deploy/helm/topicbinding by `make generate`: change the chart, not this file.\n"
    return {ROOT / "deploy" / "install.yaml": head + rendered}


GENERATORS: tuple[Callable[[], dict[Path, str]], ...] = (definitions, api_reference, install)


def main(verb: str) -> int:
    drifted = []
    for generator in GENERATORS:
        for path, text in generator().items():
            if path.exists() and path.read_text() == text:
                continue
            drifted.append(path.relative_to(ROOT))
            if verb == "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for path in drifted:
        print(f"{'wrote' if verb == 'write' else 'differs from what `make generate` writes'}: {path}")
    return 1 if drifted and verb == "check" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
