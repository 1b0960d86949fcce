"""What the controller asks of Kubernetes, and the errors it can get: the contract of the Kubernetes port.

Implemented by `kube.py` for the real API server and by the simulation for tests. Errors are typed here,
once, and
carry the condition reason that they become.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from topicbinding.api import names
from topicbinding.controller.observed import Manifest


@dataclass(frozen=True, slots=True)
class Kind:
    api_version: str
    kind: str
    plural: str

    @property
    def root(self) -> str:
        return f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"


BINDING: Final = Kind(names.API_VERSION, names.BINDING_KIND, names.BINDINGS)
GENERATION: Final = Kind(names.API_VERSION, names.GENERATION_KIND, names.GENERATIONS)
POD: Final = Kind("v1", "Pod", "pods")
SERVICE: Final = Kind("v1", "Service", "services")
CLAIM: Final = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
ACCOUNT: Final = Kind("v1", "ServiceAccount", "serviceaccounts")
EVENT: Final = Kind("v1", "Event", "events")
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments")
ROLE: Final = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
NETWORK_POLICY: Final = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")

KINDS: Final = {
    each.kind: each
    for each in (
        BINDING, GENERATION, POD, SERVICE, CLAIM, ACCOUNT,
        EVENT, DEPLOYMENT, ROLE, ROLE_BINDING, NETWORK_POLICY,
    )
}  # fmt: skip


class KubeError(Exception):
    """Something the API server said no to."""

    reason = "ApiError"


class StaleError(KubeError):
    """What was decided was decided on an old view: the name is taken, the object changed or is gone. Look
    again."""

    reason = "Stale"


class RefusedError(KubeError):
    """The API server will not take it, and asking again as it is will not help."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnavailableError(KubeError):
    """The API server cannot be reached or is overloaded. Asking again later may help."""

    reason = "ApiServerUnavailable"


class Kube(Protocol):
    """Objects go in and out as they are on the wire; `observed.py` reads them."""

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None: ...

    def find(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str]
    ) -> tuple[list[Manifest], str]:
        """The objects, and the resource version the list speaks of."""
        ...

    def events_about(self, namespace: str, uid: str) -> list[Manifest]:
        """The Events about one object."""
        ...

    def create(self, manifest: Manifest) -> Manifest:
        """StaleError if the name is taken."""
        ...

    def apply(self, manifest: Manifest) -> Manifest:
        """Server-side, whole, by our field manager: repeating it changes nothing."""
        ...

    def apply_status(self, manifest: Manifest) -> Manifest: ...

    def patch(self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any]) -> Manifest:
        """Merge patch. With metadata.resourceVersion in the body: StaleError if the object has changed
        since."""
        ...

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        foreground: bool = False,
    ) -> None:
        """Absent already is fine. StaleError if it is another one, or has changed since."""
        ...
