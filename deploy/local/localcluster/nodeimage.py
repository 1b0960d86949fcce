"""The kind node image and the base image, made from packages where they cannot be pulled."""

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster import rootfs, versions
from localcluster.binaries import kind_module, make_node_programs
from localcluster.facts import node_archive
from localcluster.making import aside
from localcluster.report import step
from localcluster.settings import Settings
from localcluster.shell import pipe, run, wait_until

K8S_REGISTRY = "registry.k8s.io"
PATH = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NODE_ENTRYPOINT = 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]'
PROVISIONER = "docker.io/kindest/local-path-provisioner:local"
HELPER = "docker.io/kindest/local-path-helper:local"
NO_CNI_MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: kind-cni, namespace: kube-system}
data: {cni: "rendered by containerd from its conf_template"}
"""


def make_base_image(settings: Settings) -> None:
    """The slim Debian image under its ordinary name, so that the Dockerfile stays the ordinary one."""
    archive = rootfs.make_base(settings)
    with step("base", f"import {versions.BASE_IMAGE}"):
        run(["docker", "import", "--change", PATH, "--change", 'CMD ["bash"]', archive, versions.BASE_IMAGE])


def make_node_image(settings: Settings) -> None:
    """kindest/node: from the saved archive if there is one, else made and saved."""
    archive = node_archive(settings)
    if not archive.exists():
        _build(settings)
        with step("node", "save the node image"), aside(archive) as partial:
            pipe(["docker", "save", versions.MADE_NODE_IMAGE], ["zstd", "-T0", "-3", "-q", "-o", partial])
        return
    with step("node", "load the saved node image"):
        pipe(["zstd", "-dc", archive], ["docker", "load", "-q"])


def _build(settings: Settings) -> None:
    # Compiling and unpacking Debian packages share the time: one wants the processor, the other the network.
    failures: list[BaseException] = []

    def unpack() -> None:
        try:
            rootfs.make_node_rootfs(settings)
        except BaseException as error:
            failures.append(error)

    unpacking = threading.Thread(target=unpack)
    unpacking.start()
    try:
        programs = make_node_programs(settings)
    finally:
        unpacking.join()
    if failures:
        raise failures[0]
    root = rootfs.make_node_rootfs(settings)
    with (
        step("node", f"assemble {versions.MADE_NODE_IMAGE}"),
        tempfile.TemporaryDirectory(dir=settings.cache, prefix=".partial-image-") as scratch,
    ):
        tags = _pod_images(Path(scratch), programs, root)
        changes = ["ENV container=docker", PATH, NODE_ENTRYPOINT]
        _import(root, "kindest/base:local", changes, xattrs=True)
        _assemble(settings, Path(scratch), programs, tags)
        run(["docker", "image", "rm", *tags, "kindest/base:local"])


def _import(directory: Path, tag: str, changes: list[str], *, xattrs: bool = False) -> None:
    owner = ["--xattrs"] if xattrs else ["--owner=0", "--group=0"]
    flags = [word for change in changes for word in ("--change", change)]
    pipe(
        ["tar", "-C", directory, "--numeric-owner", *owner, "-c", "."], ["docker", "import", *flags, "-", tag]
    )


def _pod_images(scratch: Path, programs: dict[str, Path], root: Path) -> list[str]:
    """The images kubeadm and kind ask for by name, one layer each."""
    tags = []

    def image(name: str, files: dict[str, Path], tag: str, *changes: str) -> None:
        for inside, source in files.items():
            target = scratch / name / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        (scratch / name / "tmp").mkdir(exist_ok=True)
        _import(scratch / name, tag, [PATH, *changes])
        tags.append(tag)

    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        image(
            name, {f"usr/local/bin/{name}": programs[name]}, f"{K8S_REGISTRY}/{name}:v{versions.KUBERNETES}"
        )
    etcd = {f"usr/local/bin/{name}": programs[name] for name in ("etcd", "etcdctl")}
    image("etcd", etcd, f"{K8S_REGISTRY}/etcd:{versions.ETCD_TAG}")
    coredns = f"{K8S_REGISTRY}/coredns/coredns:{versions.COREDNS_TAG}"
    image("coredns", {"coredns": programs["coredns"]}, coredns, 'ENTRYPOINT ["/coredns"]', "WORKDIR /")
    pause = f"{K8S_REGISTRY}/pause:{versions.PAUSE_TAG}"
    image("pause", {"pause": programs["pause"]}, pause, 'ENTRYPOINT ["/pause"]', "USER 65535:65535")
    _proxy_files(scratch / "kube-proxy", root)
    image(
        "kube-proxy",
        {"usr/local/bin/kube-proxy": programs["kube-proxy"]},
        f"{K8S_REGISTRY}/kube-proxy:v{versions.KUBERNETES}",
    )
    provisioner = "usr/local/bin/local-path-provisioner"
    image(
        "provisioner",
        {provisioner: programs["local-path-provisioner"]},
        PROVISIONER,
        f'ENTRYPOINT ["/{provisioner}"]',
    )
    (scratch / "helper/bin").mkdir(parents=True)
    for applet in ("sh", "mkdir", "rm", "ls", "cat"):
        (scratch / "helper/bin" / applet).symlink_to("busybox")
    image("helper", {"bin/busybox": root / "bin/busybox"}, HELPER, 'CMD ["/bin/sh"]')
    return tags


def _proxy_files(target: Path, root: Path) -> None:
    """kube-proxy's tools from the node's file system, with the libraries they and their extensions need."""
    for directory in (
        "usr/local/bin",
        "usr/sbin",
        "usr/bin",
        "usr/lib/modules",
        "usr/lib64",
        "etc",
        "run",
        "var",
        "tmp",
    ):
        (target / directory).mkdir(parents=True, exist_ok=True)
    for name in ("lib", "lib64", "bin", "sbin"):
        (target / name).symlink_to(f"usr/{name}")
    tools = [
        "usr/sbin/xtables-nft-multi",
        "usr/sbin/xtables-legacy-multi",
        "usr/sbin/nft",
        "usr/sbin/conntrack",
        "usr/bin/kmod",
    ]
    extensions = sorted(str(p.relative_to(root)) for p in (root / "usr/lib").glob("*/xtables/*.so"))
    files = set(tools + extensions)
    # ldd of the extensions too: without libm a Service with two endpoints fails.
    for line in run(
        ["chroot", root, "ldd", *(f"/{name}" for name in sorted(files))], check=False
    ).stdout.splitlines():
        for library in re.findall(r"(/\S+\.so\S*)", line.split(":")[0] if line.endswith(":") else line):
            real = run(["chroot", root, "readlink", "-f", library]).stdout.strip()
            files.add(real.lstrip("/"))
            alias = target / os.path.dirname(real).lstrip("/") / os.path.basename(library)
            if alias.name != os.path.basename(real):
                alias.parent.mkdir(parents=True, exist_ok=True)
                alias.unlink(missing_ok=True)
                alias.symlink_to(os.path.basename(real))
    for name in sorted(files):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target / name)
    loader = Path("usr/lib64/ld-linux-x86-64.so.2")
    if (root / loader).is_symlink() and not (target / loader).exists():
        (target / loader).unlink(missing_ok=True)
        (target / loader).symlink_to(os.readlink(root / loader))
    for name in (
        "iptables",
        "iptables-save",
        "iptables-restore",
        "ip6tables",
        "ip6tables-save",
        "ip6tables-restore",
    ):
        (target / "usr/sbin" / name).symlink_to("xtables-nft-multi")
    (target / "usr/sbin/modprobe").symlink_to("../bin/kmod")
    for name in ("protocols", "services"):
        if (root / "etc" / name).exists():
            shutil.copy2(root / "etc" / name, target / "etc" / name)


@contextmanager
def _container(name: str) -> Iterator[str]:
    run(["docker", "rm", "-f", "-v", name], check=False)
    run(
        [
            "docker",
            "run",
            "-d",
            "--name",
            name,
            "--entrypoint",
            "sleep",
            "--security-opt",
            "seccomp=unconfined",
            "--network",
            "none",
            "kindest/base:local",
            "infinity",
        ]
    )
    try:
        yield name
    finally:
        run(["docker", "rm", "-f", "-v", name], check=False)


def _assemble(settings: Settings, scratch: Path, programs: dict[str, Path], tags: list[str]) -> None:
    """Base, programs, manifests and pod images, committed: what `kind build node-image` does."""
    with _container("topicbinding-node-build") as name:
        for program in ("kubeadm", "kubelet", "kubectl"):
            run(["docker", "cp", programs[program], f"{name}:/usr/bin/{program}"])
        run(["docker", "cp", programs["crictl"], f"{name}:/usr/local/bin/crictl"])
        for path, text in {
            "/kind/version": f"v{versions.KUBERNETES}",
            "/kind/manifests/default-cni.yaml": NO_CNI_MANIFEST,
            "/kind/manifests/default-storage.yaml": storage_manifest(kind_module(settings)),
        }.items():
            (scratch / "file").write_text(text)
            run(["docker", "cp", scratch / "file", f"{name}:{path}"])
        programs_inside = "/usr/bin/kube* /usr/local/bin/crictl"
        tidy = f"chown root:root {programs_inside} && chmod 755 {programs_inside} && chmod 644 /kind/version"
        run(["docker", "exec", name, "sh", "-c", f"{tidy} /kind/manifests/*"])
        run(["docker", "exec", "-d", name, "containerd"])
        answers = ["docker", "exec", name, "ctr", "version"]
        wait_until(
            "containerd answers", lambda: run(answers, check=False).returncode == 0, seconds=30, every=0.3
        )
        into = [
            "ctr",
            "--namespace=k8s.io",
            "images",
            "import",
            "--label=io.cri-containerd.pinned=pinned",
            "--all-platforms",
            "--no-unpack",
            "--digests",
            "-",
        ]
        pipe(["docker", "save", *tags], ["docker", "exec", "-i", name, *into])
        run(["docker", "exec", name, "pkill", "-x", "containerd"])
        gone = ["docker", "exec", name, "pgrep", "-x", "containerd"]
        wait_until("containerd ends", lambda: run(gone, check=False).returncode != 0, seconds=20, every=0.3)
        run(["docker", "exec", name, "rm", "-rf", "/run/containerd"])
        run(["docker", "commit", "--change", NODE_ENTRYPOINT, name, versions.MADE_NODE_IMAGE])


def storage_manifest(kind: Path) -> str:
    """kind's own storage manifest, with the names of our images."""
    source = (kind / "pkg/build/nodeimage/const_storage.go").read_text()
    match = re.search(r"const defaultStorageManifest = `\n(.*)`\s*$", source, re.DOTALL)
    if match is None:
        raise ValueError("kind's storage manifest is not where it was")
    text = match[1]
    for constant, image in (("storageProvisionerImage", PROVISIONER), ("storageHelperImage", HELPER)):
        text = text.replace(f"` + {constant} + `", image)
    return text
