"""Debian root file systems made from packages, for the base image and for the node."""

import json
from pathlib import Path

from localcluster import versions
from localcluster.binaries import kind_module
from localcluster.making import aside
from localcluster.report import step
from localcluster.settings import Settings
from localcluster.shell import run, run_logged

NODE_PACKAGES = (
    "bash,busybox-static,ca-certificates,conntrack,containerd,containernetworking-plugins,curl,e2fsprogs,ebtables,ethtool,"
    "iproute2,iptables,iputils-ping,jq,kmod,libseccomp2,mount,nftables,pigz,procps,runc,socat,systemd,systemd-sysv,util-linux"
)
NO_DOCS = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale", "info")]

# Stands in for kindnetd, which is not a Go module: containerd renders this from the node's pod addresses.
CNI_TEMPLATE = """\
{"cniVersion":"0.4.0","name":"kindnet","plugins":[
 {"type":"ptp","ipMasq":true,"mtu":1400,
  "ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state",
          "ranges":[{{range $i,$r := .PodCIDRRanges}}{{if $i}},{{end}}[{"subnet":"{{$r}}"}]{{end}}],
          "routes":[{{range $i,$r := .Routes}}{{if $i}},{{end}}{"dst":"{{$r}}"}{{end}}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
"""
CONTAINERD_CNI = """
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/etc/cni/net.d"
  conf_template = "/etc/containerd/cni.template"
"""


def _bootstrap(settings: Settings, target: Path, *options: str) -> None:
    # The host's own Debian sources where it has some of the right release, else mmdebstrap's default.
    sources = [
        p
        for p in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
        if _for_release(p)
    ]
    run_logged(
        [
            "mmdebstrap",
            "-q",
            "--variant=minbase",
            '--aptopt=APT::Install-Recommends "false"',
            *NO_DOCS,
            *options,
            versions.DEBIAN,
            target,
            *sources[:1],
        ],
        settings.cache / "logs" / "rootfs.log",
    )


def _for_release(path: Path) -> bool:
    try:
        return versions.DEBIAN in path.read_text()
    except OSError:
        return False


def make_base(settings: Settings) -> Path:
    """The tar of a root file system that plays the part of the slim Debian image."""
    target = settings.made / f"base-{versions.DEBIAN}-{versions.base_key()}.tar"
    if not target.exists():
        with step("base", f"make the file system of {versions.BASE_IMAGE}"), aside(target) as partial:
            doomed = ("var/lib/apt/lists/*", "var/cache/apt/*", "usr/share/doc", "usr/share/locale")
            clean = "--customize-hook=rm -rf " + " ".join(f'"$1"/{path}' for path in doomed)
            _bootstrap(settings, partial, "--format=tar", clean)
    return target


def make_node_rootfs(settings: Settings) -> Path:
    """The directory of a node's root file system, with kind's own files in it."""
    target = settings.made / f"rootfs-{versions.node_key()}"
    if not target.exists():
        with step("node", "make the node's file system"), aside(target) as partial:
            _bootstrap(settings, partial, f"--include={NODE_PACKAGES}")
            _clean_units(partial)
            _install_kind_files(partial, kind_module(settings))
            _configure_containerd(partial, kind_module(settings))
    return target


def _clean_units(root: Path) -> None:
    """The units that make no sense in a container, as kind's own base image removes them."""
    units = root / "lib/systemd/system"
    doomed = [units / "sysinit.target.wants/systemd-tmpfiles-setup.service"]
    for pattern in (
        "multi-user.target.wants/*",
        "local-fs.target.wants/*",
        "sockets.target.wants/*udev*",
        "sockets.target.wants/*initctl*",
        "basic.target.wants/*",
    ):
        doomed += units.glob(pattern)
    doomed += (root / "etc/systemd/system").glob("*.wants/*")
    for path in doomed:
        path.unlink(missing_ok=True)
    with (root / "etc/systemd/journald.conf").open("a") as journald:
        journald.write("ReadKMsg=no\n")


def _install_kind_files(root: Path, kind: Path) -> None:
    files = kind / "images/base/files"
    for directory in (
        "kind/bin",
        "kind/manifests",
        "etc/containerd",
        "etc/kubernetes/manifests",
        "etc/systemd/system/kubelet.service.d",
        "opt/cni",
    ):
        (root / directory).mkdir(parents=True, exist_ok=True)
    wanted = {
        "usr/local/bin": ("755", sorted((files / "usr/local/bin").iterdir())),
        "kind/bin": ("755", sorted((files / "kind/bin").iterdir())),
        "etc": ("644", [files / "etc/crictl.yaml"]),
        "etc/default": ("644", [files / "etc/default/kubelet"]),
        "etc/sysctl.d": ("644", sorted((files / "etc/sysctl.d").iterdir())),
        "etc/systemd/system": (
            "644",
            [
                p
                for p in sorted((files / "etc/systemd/system").iterdir())
                if p.name
                in ("kubelet.service", "kubelet.slice", "containerd.service", "undo-mount-hacks.service")
            ],
        ),
        "etc/systemd/system/kubelet.service.d": (
            "644",
            sorted((files / "etc/systemd/system/kubelet.service.d").iterdir()),
        ),
    }
    for directory, (mode, sources) in wanted.items():
        run(["install", f"-m{mode}", "-t", root / directory, *sources])
    # kind's unit wants /usr/local/bin and /opt/cni/bin, Debian's package puts them elsewhere.
    (root / "usr/local/bin/containerd").symlink_to("/usr/bin/containerd")
    (root / "lib/systemd/system/containerd.service").unlink(missing_ok=True)
    (root / "opt/cni/bin").symlink_to("/usr/lib/cni")


def _configure_containerd(root: Path, kind: Path) -> None:
    config = (kind / "images/base/files/etc/containerd/config.toml").read_text()
    # Lowering oom_score_adj needs CAP_SYS_RESOURCE, which not every machine gives.
    config = config.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    kept = []
    skipping = False
    for line in config.splitlines():
        if line.startswith("[proxy_plugins"):
            skipping = True  # fuse-overlayfs is for rootless engines and not installed here
        elif line.startswith("["):
            skipping = False
        if "sandbox_image" in line:
            line = f'  sandbox_image = "registry.k8s.io/pause:{versions.PAUSE_TAG}"'
        if not skipping:
            kept.append(line)
    (root / "etc/containerd/config.toml").write_text("\n".join(kept) + "\n" + CONTAINERD_CNI)
    (root / "etc/containerd/cni.template").write_text(CNI_TEMPLATE)
    spec = json.loads(run(["chroot", root, "ctr", "oci", "spec"]).stdout)
    spec.setdefault("hooks", {}).setdefault("createContainer", []).append(
        {"path": "/kind/bin/mount-product-files.sh"}
    )
    del spec["process"]["rlimits"]
    (root / "etc/containerd/cri-base.json").write_text(json.dumps(spec))
    run(
        [
            "chroot",
            root,
            "systemctl",
            "-q",
            "enable",
            "kubelet.service",
            "containerd.service",
            "undo-mount-hacks.service",
        ]
    )
    run(["chroot", root, "systemctl", "-q", "mask", "systemd-binfmt.service"])
    run(["ln", "-sf", "/usr/lib/systemd/systemd", root / "sbin/init"])
