"""The image registry beside the cluster: a changed image costs one small layer, not a copy of gigabytes."""

import http.client
import os
import tempfile
from pathlib import Path

from localcluster import versions
from localcluster.binaries import make_registry
from localcluster.report import step
from localcluster.settings import Settings
from localcluster.shell import pipe, run, wait_until

MANIFEST_TYPES = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in ("docker.distribution.manifest.v2", "oci.image.manifest.v1", "oci.image.index.v1")
)
CONFIG = """\
version: 0.1
storage: {filesystem: {rootdirectory: /var/lib/registry}, delete: {enabled: true}}
http: {addr: ":5000"}
log: {level: warn}
"""


def make_image(settings: Settings) -> None:
    """The registry's image from its Go module."""
    program = make_registry(settings)
    with step("registry", f"import {versions.MADE_REGISTRY_IMAGE}"), tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for directory in ("tmp", "var/lib/registry", "etc"):
            (root / directory).mkdir(parents=True)
        run(["cp", program, root / "registry"])
        (root / "etc/registry.yml").write_text(CONFIG)
        changes = ["--change", 'ENTRYPOINT ["/registry","serve","/etc/registry.yml"]']
        pipe(
            ["tar", "-C", root, "--numeric-owner", "--owner=0", "--group=0", "-c", "."],
            ["docker", "import", *changes, "-", versions.MADE_REGISTRY_IMAGE],
        )


def answers(settings: Settings) -> bool:
    """Whether it serves."""
    return _status(settings, "/v2/") == 200


def has(settings: Settings, repository: str, tag: str) -> bool:
    """Whether the registry holds that image."""
    return _status(settings, f"/v2/{repository}/manifests/{tag}") == 200


def _status(settings: Settings, path: str) -> int | None:
    """The answer to a HEAD request, past any proxy; None when nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", settings.registry_port, timeout=5)
    try:
        connection.request("HEAD", path, headers={"Accept": MANIFEST_TYPES})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def start(settings: Settings) -> None:
    """Run it on kind's network, published on loopback alone; a stopped or misplaced one is put right."""
    name = settings.registry_container
    if answers(settings) and _on_kind_network(name):
        return
    with step("registry", f"start the image registry at 127.0.0.1:{settings.registry_port}"):
        if run(["docker", "start", name], check=False).returncode != 0 or not _publishes(
            name, settings.registry_port
        ):
            run(["docker", "rm", "-f", "-v", name], check=False)
            place = [
                "-p",
                f"127.0.0.1:{settings.registry_port}:5000",
                "-v",
                f"{_store(settings)}:/var/lib/registry",
            ]
            run(["docker", "run", "-d", "--name", name, "--restart", "unless-stopped", *place, _image()])
        if not _on_kind_network(name):
            run(["docker", "network", "connect", "kind", name])
        wait_until(
            "the registry answers", lambda: answers(settings), seconds=30, do=f"look at `docker logs {name}`"
        )


def stop(settings: Settings) -> None:
    """Remove the container, and the volume if there is one."""
    run(["docker", "rm", "-f", "-v", settings.registry_container], check=False)
    run(["docker", "volume", "rm", settings.registry_container], check=False)


def _store(settings: Settings) -> str:
    """Where the layers are: in our cache, so that they outlive `down` and need not be pushed again.

    What the registry writes belongs to root. Whoever is not root could not remove it, and gets a volume.
    """
    return str(settings.cache / "registry") if os.geteuid() == 0 else settings.registry_container


def _image() -> str:
    pulled = run(["docker", "image", "inspect", versions.PULLED_REGISTRY_IMAGE], check=False).returncode == 0
    return versions.PULLED_REGISTRY_IMAGE if pulled else versions.MADE_REGISTRY_IMAGE


def _on_kind_network(name: str) -> bool:
    return (
        "kind"
        in run(
            [
                "docker",
                "container",
                "inspect",
                "-f",
                "{{range $n, $_ := .NetworkSettings.Networks}}{{$n}} {{end}}",
                name,
            ],
            check=False,
        ).stdout.split()
    )


def _publishes(name: str, port: int) -> bool:
    return f":{port}" in run(["docker", "port", name, "5000"], check=False).stdout
