"""Every version and name the local cluster is made of. A change here makes what depends on it anew."""

import hashlib
from pathlib import Path

KIND = "v0.33.0"
HELM = "v3.22.0"
DISTRIBUTION = "v3.1.2"
# Newest 1.34 whose checksum is in the sum database. From 1.35 on the kubelet refuses cgroup v1.
KUBERNETES = "1.34.10"
# What kubeadm 1.34 asks for by name.
ETCD_TAG = "3.6.5-0"
COREDNS_TAG = "v1.12.1"
PAUSE_TAG = "3.10.1"
# bookworm on purpose: systemd 252 still boots on cgroup v1, trixie's 257 does not.
DEBIAN = "bookworm"
# Older ones on the PATH are not used; ours are compiled instead.
OLDEST_GO = (1, 24)
OLDEST_KIND = (0, 30)
OLDEST_KUBECTL = (1, 33)
OLDEST_HELM = (3, 14)

BASE_IMAGE = f"debian:{DEBIAN}-slim"
MADE_NODE_IMAGE = f"kindest/node:v{KUBERNETES}"
PULLED_REGISTRY_IMAGE = "registry:2"
MADE_REGISTRY_IMAGE = f"topicbinding-registry:{DISTRIBUTION}"

# Raise when the way of making changes without any version changing.
NODE_RECIPE = 1
BASE_RECIPE = 1

GO_SOURCES = Path(__file__).resolve().parent.parent / "go"


def digest_of(*parts: str) -> str:
    """A short key that changes when any part does."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def go_sources_digest(name: str) -> str:
    """A key over the pinned modules and our own Go files of one directory below `go/`."""
    files = sorted(p for p in (GO_SOURCES / name).rglob("*") if p.is_file())
    return digest_of(*(part for p in files for part in (str(p.relative_to(GO_SOURCES)), p.read_text())))


def node_key() -> str:
    """What the made node image is kept under: versions, Go sources and the recipe's number."""
    sources = [go_sources_digest(name) for name in ("kubernetes", "etcd", "coredns", "local-path")]
    return digest_of(KIND, KUBERNETES, ETCD_TAG, COREDNS_TAG, PAUSE_TAG, DEBIAN, str(NODE_RECIPE), *sources)


def base_key() -> str:
    """What the made base image is kept under."""
    return digest_of(DEBIAN, str(BASE_RECIPE))
