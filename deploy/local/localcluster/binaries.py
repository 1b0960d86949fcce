"""Programs made from Go modules, pinned by a go.sum of ours or the sum database, kept by version."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localcluster import versions
from localcluster.making import aside, link
from localcluster.report import Trouble, step
from localcluster.settings import Settings
from localcluster.shell import run, run_logged

KUBERNETES_PROGRAMS = (
    "kubeadm",
    "kubectl",
    "kubelet",
    "kube-proxy",
    "kube-scheduler",
    "kube-controller-manager",
    "kube-apiserver",
)
BUILD_ENV = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath"}
INSTALL_ENV = {**BUILD_ENV, "GOFLAGS": "-buildvcs=false -trimpath"}


def make_kind(settings: Settings) -> None:
    """kind itself, on the tools' path."""
    directory = _installed(settings, "kind", versions.KIND, "sigs.k8s.io/kind")
    link(directory / "kind", settings.bin / "kind")


def make_helm(settings: Settings) -> None:
    """helm, for the chart's lint and the installation."""
    directory = _installed(
        settings,
        "helm",
        versions.HELM,
        "helm.sh/helm/v3/cmd/helm",
        ldflags=f"-s -w -X helm.sh/helm/v3/internal/version.version={versions.HELM}",
    )
    link(directory / "helm", settings.bin / "helm")


def make_registry(settings: Settings) -> Path:
    """The image registry's program, where its image cannot be pulled."""
    directory = _installed(
        settings, "registry", versions.DISTRIBUTION, "github.com/distribution/distribution/v3/cmd/registry"
    )
    return directory / "registry"


def make_kubectl(settings: Settings) -> None:
    """kubectl alone, where the node image is pulled and nothing else of Kubernetes must be made."""
    target = settings.made / f"kubectl-{versions.KUBERNETES}-{versions.go_sources_digest('kubernetes')}"
    if (settings.made / _kubernetes_name()).exists():
        target = settings.made / _kubernetes_name()
    elif not target.exists():
        with step("tools", f"compile kubectl {versions.KUBERNETES}"), aside(target) as partial:
            _compile_kubernetes(settings, partial, ("kubectl",))
    link(target / "kubectl", settings.bin / "kubectl")


def make_node_programs(settings: Settings) -> dict[str, Path]:
    """Everything that runs inside a made node. Program name -> path."""
    # Side by side: while one waits for its modules or links, the other compiles.
    with ThreadPoolExecutor() as pool:
        large = pool.submit(_make_kubernetes, settings)
        small = pool.submit(_make_small_programs, settings)
        return {**large.result(), **small.result()}


def _make_kubernetes(settings: Settings) -> dict[str, Path]:
    target = settings.made / _kubernetes_name()
    if not target.exists():
        doing = f"compile Kubernetes {versions.KUBERNETES} (minutes, once)"
        with step("node", doing), aside(target) as partial:
            _compile_kubernetes(settings, partial, KUBERNETES_PROGRAMS)
            _compile(settings, "kubernetes", partial / "crictl", "./crictl")
            _compile_pause(settings, partial / "pause")
    link(target / "kubectl", settings.bin / "kubectl")
    return {name: target / name for name in (*KUBERNETES_PROGRAMS, "crictl", "pause")}


def _make_small_programs(settings: Settings) -> dict[str, Path]:
    provisioner = "local-path-provisioner"
    return {
        "coredns": _made(settings, "coredns", "coredns", "."),
        provisioner: _made(settings, "local-path", provisioner, f"github.com/rancher/{provisioner}"),
        "etcd": _made(settings, "etcd", "etcd", "go.etcd.io/etcd/server/v3"),
        "etcdctl": _made(settings, "etcd", "etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    }


def make_runc_caps(settings: Settings) -> Path:
    """The front for runc that asks only for capabilities the machine has."""
    return _made(settings, "runc-caps", "runc-caps", ".")


def kind_module(settings: Settings) -> Path:
    """kind's source, whose node files and storage manifest the made node uses."""
    answer = run(
        ["go", "mod", "download", "-json", f"sigs.k8s.io/kind@{versions.KIND}"],
        cwd=Path("/"),
        env={**INSTALL_ENV, "GOFLAGS": "-mod=mod"},
    )
    return Path(json.loads(answer.stdout)["Dir"])


def _kubernetes_name() -> str:
    return f"kubernetes-{versions.KUBERNETES}-{versions.go_sources_digest('kubernetes')}"


def _log(settings: Settings) -> Path:
    return settings.cache / "logs" / "compile.log"


def _made(settings: Settings, sources: str, name: str, package: str) -> Path:
    target = settings.made / f"{name}-{versions.go_sources_digest(sources)}"
    if not target.exists():
        with step("node", f"compile {name}"), aside(target) as partial:
            _compile(settings, sources, partial, package)
    return target


def _compile(settings: Settings, sources: str, output: Path, package: str) -> None:
    run_logged(
        ["go", "build", "-ldflags", "-s -w", "-o", output, package],
        _log(settings),
        cwd=versions.GO_SOURCES / sources,
        env=BUILD_ENV,
    )


def _compile_kubernetes(settings: Settings, output: Path, names: tuple[str, ...]) -> None:
    # With gitVersion unset kubeadm and kubelet believe they are v0.0.0.
    major, minor, _ = versions.KUBERNETES.split(".")
    values = {
        "gitVersion": f"v{versions.KUBERNETES}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "0" * 40,
        "buildDate": "2026-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = " ".join(
        ["-s -w", *(f"-X {package}.{key}={value}" for package in packages for key, value in values.items())]
    )
    output.mkdir()
    run_logged(
        [
            "go",
            "build",
            "-ldflags",
            flags,
            "-o",
            f"{output}/",
            *(f"k8s.io/kubernetes/cmd/{name}" for name in names),
        ],
        _log(settings),
        cwd=versions.GO_SOURCES / "kubernetes",
        env=BUILD_ENV,
    )


def _compile_pause(settings: Settings, output: Path) -> None:
    source = run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"],
        cwd=versions.GO_SOURCES / "kubernetes",
        env=BUILD_ENV,
    ).stdout.strip()
    run_logged(
        [
            "gcc",
            "-Os",
            "-s",
            "-static",
            f"-DVERSION=v{versions.PAUSE_TAG}",
            "-o",
            output,
            f"{source}/build/pause/linux/pause.c",
        ],
        _log(settings),
    )


def _installed(settings: Settings, name: str, version: str, package: str, ldflags: str = "-s -w") -> Path:
    target = settings.made / f"{name}-{version}"
    if not target.exists():
        if shutil.which("go") is None:
            raise Trouble(
                f"{name} {version} is not here and cannot be compiled without Go",
                f"install {name} {version}, or Go {versions.OLDEST_GO[0]}.{versions.OLDEST_GO[1]} or newer",
            )
        with step("tools", f"compile {name} {version}"), aside(target) as partial:
            partial.mkdir()
            run_logged(
                ["go", "install", "-ldflags", ldflags, f"{package}@{version}"],
                _log(settings),
                cwd=Path("/"),
                env={**INSTALL_ENV, "GOBIN": str(partial)},
            )
    return target
