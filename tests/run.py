"""`python3 -m tests.run LAYER…`: prepares what each layer needs, runs it, and ends with one summary.

Behind every `make test…`, `make lint` and `make bench`. Standard library only: on a bare machine it runs
before anything else is there. A failing layer does not hide the others; the exit code is 0 if all passed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree  # the files read are our own
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARTIFACTS = ROOT / "artifacts"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "topicbinding"
VENV = ROOT / ".venv" / "bin"
LAYERS = ("lint", "unit", "integration", "e2e", "browser", "bench")
NEEDS_CLUSTER = frozenset({"integration", "e2e", "browser", "bench"})
SOURCES = ("operator", "sparkjob", "tests", "deploy/local")


class StepFailedError(Exception):
    """A step ended badly; the message says which and, where known, what to do."""


@dataclass
class Result:
    name: str
    seconds: float
    trouble: str | None = None


@dataclass
class Run:
    results: list[Result] = field(default_factory=list)

    def step(self, name: str, work: Callable[[], None]) -> bool:
        print(f"\n== {name}", flush=True)
        begun = time.monotonic()
        trouble: str | None = None
        try:
            work()
        except StepFailedError as error:
            trouble = str(error)
        seconds = time.monotonic() - begun
        self.results.append(Result(name, seconds, trouble))
        print(f"== {name}: {'FAILED: ' + trouble if trouble else 'ok'} ({seconds:.1f} s)", flush=True)
        return trouble is None

    def not_run(self, name: str, why: str) -> None:
        print(f"\n== {name}: NOT RUN: {why}", flush=True)
        self.results.append(Result(name, 0.0, f"NOT RUN: {why}"))


def environment() -> dict[str, str]:
    path = f"{VENV}:{CACHE / 'bin'}:{os.environ.get('PATH', '')}"
    return os.environ | {"PATH": path, "PYTHONPATH": "operator:sparkjob"}


def call(*command: str) -> None:
    code = subprocess.run(
        command, cwd=ROOT, env=environment(), check=False, stdin=subprocess.DEVNULL
    ).returncode
    if code != 0:
        raise StepFailedError(f"{' '.join(command[:6])} ended with {code}")


def local(*arguments: str) -> None:
    call(sys.executable, "deploy/local", *arguments)


def packages(**wanted: str) -> None:
    """Programs the tests run on this machine, installed from Debian's packages when missing."""
    missing = {package for program, package in wanted.items() if not shutil.which(program)}
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise StepFailedError(f"install these packages, then repeat: {' '.join(sorted(missing))}")
    call("apt-get", "update", "-qq")
    call("apt-get", "install", "-y", "-qq", "--no-install-recommends", *sorted(missing))


def lint() -> None:
    troubles = []
    for command in (
        ("ruff", "format", "--check", "-q", *SOURCES),
        ("ruff", "check", "-q", *SOURCES),
        ("mypy", "operator", "sparkjob", "tests", "deploy/local/localcluster"),
        ("lint-imports", "--no-cache"),
        ("python", "-m", "tests.generate", "check"),
        ("helm", "lint", "--quiet", "deploy/helm/topicbinding"),
    ):
        begun = time.monotonic()
        try:
            call(*command)
        except StepFailedError as error:
            troubles.append(str(error))
        print(f"   {' '.join(command[:3])} ({time.monotonic() - begun:.1f} s)", flush=True)
    if troubles:
        raise StepFailedError("; ".join(troubles))


def pytest(layer: str) -> None:
    report = ARTIFACTS / f"junit-{layer}.xml"
    # Benchmarks print their tables; everything else speaks only when it fails.
    shown = ("-s",) if layer == "bench" else ()
    call("pytest", f"tests/{layer}", "-m", layer, f"--junitxml={report}", "--durations=10", *shown)


def counts() -> tuple[int, int, int]:
    passed = failed = skipped = 0
    for report in ARTIFACTS.glob("junit-*.xml"):
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - our own file
            bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            idle = int(suite.get("skipped", 0))
            failed += bad
            skipped += idle
            passed += int(suite.get("tests", 0)) - bad - idle
    return passed, failed, skipped


def prepare(run: Run) -> str | None:
    """Makes what the layers need; what could not be made comes back as a reason."""
    if not run.step("python environment", lambda: call("deploy/local/python-environment")):
        return "there is no Python environment"
    return None


def cluster_ready(run: Run, layers: list[str]) -> str | None:
    programs = {"java": "openjdk-17-jdk-headless", "mvn": "maven", "javac": "openjdk-17-jdk-headless"}
    if "browser" in layers:
        programs |= {"chromium": "chromium", "npm": "npm"}
    if not run.step("programs of this machine", lambda: packages(**programs)):
        return "programs are missing on this machine (see above)"
    if not run.step("local cluster", lambda: local("up")):
        return "there is no local cluster (see above)"
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.run", description=__doc__)
    parser.add_argument("layers", nargs="+", choices=LAYERS)
    layers: list[str] = parser.parse_args(arguments).layers
    shutil.rmtree(ARTIFACTS, ignore_errors=True)
    ARTIFACTS.mkdir()
    run = Run()
    begun = time.monotonic()

    missing = prepare(run)
    cluster_missing: str | None = None
    cluster_asked = False
    for layer in layers:
        if missing:
            run.not_run(layer, missing)
            continue
        if layer in NEEDS_CLUSTER and not cluster_asked:
            cluster_asked = True
            cluster_missing = cluster_ready(run, layers)
        if layer in NEEDS_CLUSTER and cluster_missing:
            run.not_run(layer, cluster_missing)
        elif layer == "lint":
            if run.step("tools", lambda: local("tools")):
                run.step(layer, lint)
            else:
                run.not_run(layer, "its tools could not be made")
        else:
            run.step(layer, lambda layer=layer: pytest(layer))  # type: ignore[misc]

    good = all(result.trouble is None for result in run.results)
    if not good and cluster_asked and not cluster_missing:
        run.step("collecting the cluster's state", lambda: local("collect", str(ARTIFACTS / "cluster")))
    print(f"\n{'step':32} {'seconds':>8}  outcome")
    for result in run.results:
        print(f"{result.name:32} {result.seconds:8.1f}  {result.trouble or 'ok'}")
    print(f"{'all':32} {time.monotonic() - begun:8.1f}  {'ok' if good else 'FAILED; see artifacts/'}")
    passed, failed, skipped = counts()
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
