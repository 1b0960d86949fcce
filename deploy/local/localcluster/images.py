"""Our images: built when their inputs changed, pushed to the local registry, named by what is in them.

The tag is a digest over an image's inputs: unchanged code is neither built nor pushed, a changed tag is a
rollout.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localcluster import engine, registry
from localcluster.making import aside
from localcluster.report import Trouble, say, step
from localcluster.settings import REPOSITORY, Settings
from localcluster.shell import run, run_logged

IGNORED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "dist", "target", ".mypy_cache"})
# What the package clients of a build need from this machine. Secrets of the build: no layer ever holds them.
HOST_FILES = {
    "ca": ("$SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"),
    "pip": ("$PIP_CONFIG_FILE", "~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf"),
    "maven": ("~/.m2/settings.xml",),
    "npm": ("~/.npmrc",),
}
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
KEPT_TAGS = 3


@dataclass(frozen=True)
class Image:
    """How one image is built, and from what."""

    dockerfile: str
    target: str | None
    inputs: tuple[str, ...]
    """Files and directories, relative to the repository, that decide what is in it."""


IMAGES: Mapping[str, Image] = {
    "kafka": Image(
        "deploy/kafka/Dockerfile",
        None,
        (
            "deploy/docker/TrustStore.java",
            "deploy/docker/mvn.sh",
            "deploy/kafka/Dockerfile",
            "deploy/kafka/jars.sha256",
            "deploy/kafka/log4j2.properties",
            "deploy/kafka/make-certificates.sh",
            "deploy/kafka/pom.xml",
            "deploy/kafka/start.sh",
        ),
    ),
    "control": Image(
        "Dockerfile",
        "control",
        (".dockerignore", "Dockerfile", "deploy/docker", "requirements/control.txt", "operator/topicbinding"),
    ),
    "spark": Image(
        "Dockerfile",
        "spark",
        (
            ".dockerignore",
            "Dockerfile",
            "deploy/docker",
            "requirements/spark.txt",
            "operator/topicbinding",
            "sparkjob",
        ),
    ),
}


# What decides whether a class archive recorded earlier still fits. The JVM itself drops one that does not.
ARCHIVE = Image(
    "Dockerfile",
    "archive",
    (
        "deploy/docker/pip.sh",
        "requirements/spark.txt",
        "sparkjob/jars.sha256",
        "sparkjob/java",
        "sparkjob/topicbinding_job/archive.py",
    ),
)


def inputs_digest(root: Path, image: Image) -> str:
    """The tag: a digest over names, execute bits and contents of the inputs. Pure but for reading them."""
    digest = hashlib.sha256(f"{image.dockerfile} {image.target}\n".encode())
    for path in _files(root, image.inputs):
        executable = os.access(path, os.X_OK)
        digest.update(f"{path.relative_to(root)} {executable}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(root: Path, inputs: tuple[str, ...]) -> list[Path]:
    found: list[Path] = []
    for name in inputs:
        path = root / name
        if path.is_file():
            found.append(path)
            continue
        for directory, directories, files in os.walk(path):
            directories[:] = [d for d in directories if d not in IGNORED_DIRECTORIES]
            found += [Path(directory) / f for f in files if not f.endswith(".pyc")]
    return sorted(found)


def current(settings: Settings, root: Path = REPOSITORY) -> dict[str, str]:
    """Image name -> full reference for the code as it is now."""
    return {
        name: f"{settings.registry}/topicbinding/{name}:{inputs_digest(root, image)}"
        for name, image in IMAGES.items()
    }


def provide(settings: Settings, names: list[str], index: Path | None = None) -> dict[str, str]:
    """Build and push what changed; write and return the references of the named images."""
    references = current(settings)
    for name in names:
        repository, tag = references[name].removeprefix(f"{settings.registry}/").rsplit(":", 1)
        if not registry.has(settings, repository, tag):
            _build_and_push(settings, name, references[name])
            _prune(references[name])
    index = index or settings.cache / "images.json"
    known = json.loads(index.read_text()) if index.exists() else {}
    known.update({name: references[name] for name in names})
    with aside(index) as partial:
        partial.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    return {name: references[name] for name in names}


def _build_and_push(settings: Settings, name: str, reference: str) -> None:
    image = IMAGES[name]
    log = settings.cache / "logs" / f"image-{name}.log"
    log.unlink(missing_ok=True)
    if run(["docker", "image", "inspect", reference], check=False).returncode != 0:
        with step("images", f"build {reference}"):
            target = ["--target", image.target] if image.target else []
            kept = ["--build-arg", f"ARCHIVE={_archive(log)}"] if name == "spark" else []
            _build(log, image.dockerfile, [*target, *kept], reference)
    with step("images", f"push {reference}"):
        run_logged(["docker", "push", reference], log)


def _build(log: Path, dockerfile: str, options: list[str], reference: str) -> None:
    command = [engine.require_docker_cli(), "build", "--progress=plain", "-f", dockerfile, *options]
    run_logged(
        [*command, *_host_settings(), "-t", reference, "."],
        log,
        cwd=REPOSITORY,
        env={"DOCKER_BUILDKIT": "1"},
        do=f"the whole build log is {log}",
    )


def _archive(log: Path) -> str:
    """The class archive of the spark image, recorded again only when the jars or the recorder change."""
    reference = f"topicbinding-archive:{inputs_digest(REPOSITORY, ARCHIVE)}"
    if run(["docker", "image", "inspect", reference], check=False).returncode != 0:
        _build(log, "Dockerfile", ["--target", "archive"], reference)
    return reference


def _host_settings() -> list[str]:
    """Build options that carry this machine's certificates, package-client settings and proxies."""
    options: list[str] = []
    for name, candidates in HOST_FILES.items():
        for candidate in candidates:
            path = os.path.expanduser(os.path.expandvars(candidate))
            if os.path.isfile(path):
                options += ["--secret", f"id={name},src={os.path.realpath(path)}"]
                break
    return options + [word for p in PROXIES if p in os.environ for word in ("--build-arg", p)]


def _prune(reference: str) -> None:
    """Untag all but the newest few of one image; the registry keeps what the cluster runs."""
    repository = reference.rsplit(":", 1)[0]
    listed = run(["docker", "image", "ls", repository, "--format", "{{.Repository}}:{{.Tag}}"]).stdout.split()
    for old in [tag for tag in listed if tag != reference][KEPT_TAGS - 1 :]:
        run(["docker", "image", "rm", old], check=False)


def remove_all(settings: Settings) -> None:
    """Remove our images from an engine that is not ours; what other people pulled or built stays."""
    listed = run(["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"]).stdout.split()
    ours = [
        tag
        for tag in listed
        if tag.startswith(
            (f"{settings.registry}/topicbinding/", "topicbinding-registry:", "topicbinding-archive:")
        )
    ]
    if ours:
        run(["docker", "image", "rm", *ours], check=False)


def require(settings: Settings, name: str) -> str:
    """The reference of an image already provided."""
    index = settings.cache / "images.json"
    known = json.loads(index.read_text()) if index.exists() else {}
    if name not in known:
        raise Trouble(
            f"the image {name} has not been built yet", "run `make up` or `python3 deploy/local images`"
        )
    return str(known[name])


def show(references: Mapping[str, str], start: float) -> None:
    """Name the images for people and scripts."""
    for reference in references.values():
        say(f"[images] {reference}")
    say(f"[images] ready in {time.monotonic() - start:.1f} s")
