"""Installing the operator into the local cluster: the CRDs, then the chart with the images just built."""

from pathlib import Path

from localcluster.cluster import kubectl, tool_env
from localcluster.images import Image, inputs_digest
from localcluster.report import step
from localcluster.settings import REPOSITORY, Settings
from localcluster.shell import run
from localcluster.versions import digest_of

CHART = REPOSITORY / "deploy" / "helm" / "topicbinding"
RELEASE = "topicbinding"
NAMESPACE = "topicbinding-system"
# On the namespace: what is installed, so that an unchanged installation costs one question.
MARK = "local.topicbinding.dev/installed"
SOURCES = Image("", None, ("crds", "deploy/helm/topicbinding"))


def values(references: dict[str, str]) -> list[str]:
    """What the local installation sets: our images, and a page open to this machine without a token."""
    chosen = {
        "images.control": references["control"],
        "images.spark": references["spark"],
        "gateway.access": "open",
        "gateway.service.type": "NodePort",
        "gateway.service.nodePort": "30080",
    }
    return [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]


def deploy(settings: Settings, references: dict[str, str]) -> None:
    """Install or upgrade, and wait until it runs; nothing when it is there already."""
    wanted = digest_of(inputs_digest(REPOSITORY, SOURCES), *values(references))
    path = "jsonpath={.metadata.annotations.local\\.topicbinding\\.dev/installed}"
    runs = kubectl(settings, "get", "deployments", "-n", NAMESPACE, "-o", "name", check=False)
    if runs and kubectl(settings, "get", "namespace", NAMESPACE, "-o", path, check=False) == wanted:
        return
    with step("install", "the operator: CRDs, controller, gateway"):
        crds = ("--server-side", "--force-conflicts", "--field-manager=topicbinding-install")
        kubectl(settings, "apply", *crds, "-f", REPOSITORY / "crds")
        kubectl(settings, "wait", "--for=condition=Established", "-f", REPOSITORY / "crds", "--timeout=60s")
        place = ["--namespace", NAMESPACE, "--create-namespace", "--kube-context", f"kind-{settings.cluster}"]
        command: list[str | Path] = ["helm", "upgrade", "--install", RELEASE, CHART, *place]
        run([*command, *values(references), "--wait", "--timeout", "180s"], env=tool_env(settings))
        kubectl(settings, "annotate", "namespace", NAMESPACE, f"{MARK}={wanted}", "--overwrite")
