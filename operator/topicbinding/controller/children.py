"""Builders of what a binding has whatever its generations do: accounts, permissions, network policy, the
bridge.

Pure: the applier sends what they return. Compared with golden YAML in the tests.
"""

from __future__ import annotations

from typing import Any, Final

from topicbinding.api import names
from topicbinding.controller.manifests import (
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    labels,
    owned_by_binding,
    probe,
)
from topicbinding.controller.observed import Manifest, SeenBinding
from topicbinding.controller.ports import ACCOUNT, DEPLOYMENT, ROLE, ROLE_BINDING, SERVICE, Kind
from topicbinding.controller.settings import Settings

# Installed by the chart: the controller may bind exactly these two and so needs no right to write any role
# it likes.
DRIVER_ROLE: Final = "topicbinding-driver"
EXECUTORS_ROLE: Final = "topicbinding-driver-executors"
_RBAC: Final = "rbac.authorization.k8s.io"

# Everything a bridge consists of, for taking it away.
BRIDGE_KINDS: Final[tuple[Kind, ...]] = (DEPLOYMENT, SERVICE, ROLE_BINDING, ROLE, ACCOUNT)


def children(binding: SeenBinding, settings: Settings) -> list[Manifest]:
    """In the order in which they need each other."""
    made = [
        _account(binding, names.driver_account(binding.meta.name), "driver"),
        _driver_permission(binding),
        _network_policy(binding, settings),
    ]
    if binding.spec.control is not None:
        made += _bridge(binding, settings)
    return made


def _child(binding: SeenBinding, api_version: str, kind: str, name: str, component: str | None) -> Manifest:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": binding.meta.namespace,
            "labels": labels(binding.meta.name, component=component),
            "ownerReferences": owned_by_binding(binding),
        },
    }


def _account(binding: SeenBinding, name: str, component: str) -> Manifest:
    return _child(binding, "v1", "ServiceAccount", name, component)


def _bound(binding: SeenBinding, name: str, component: str, role: tuple[str, str]) -> Manifest:
    kind, role_name = role
    return _child(binding, f"{_RBAC}/v1", "RoleBinding", name, component) | {
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role_name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": binding.meta.namespace}],
    }


def _driver_permission(binding: SeenBinding) -> Manifest:
    executors = binding.spec.spark.executors.instances > 0
    role = EXECUTORS_ROLE if executors else DRIVER_ROLE
    permission = _bound(binding, names.driver_account(binding.meta.name), "driver", ("ClusterRole", role))
    if executors:
        # A role reference cannot be changed, so each role has a binding of its own.
        permission["metadata"]["name"] += "-executors"
    return permission


def _network_policy(binding: SeenBinding, settings: Settings) -> Manifest:
    """Only the gateway reads drivers and bridges; a driver and its executors talk to each other."""
    name = binding.meta.name
    ports = [{"protocol": "TCP", "port": port} for port in (names.DRIVER_PORT, names.BRIDGE_PORT)]
    rules: list[dict[str, Any]] = [
        {
            "from": [
                {
                    "namespaceSelector": _namespace(settings.system_namespace),
                    "podSelector": {"matchLabels": {names.LABEL_COMPONENT: "gateway"}},
                }
            ],
            "ports": ports,
        },
        {"from": [{"podSelector": {"matchLabels": {names.LABEL_BINDING: name}}}]},
    ]
    if settings.metrics_namespace:
        scraper = {"namespaceSelector": _namespace(settings.metrics_namespace)}
        rules.append({"from": [scraper], "ports": ports})
    policy = _child(binding, "networking.k8s.io/v1", "NetworkPolicy", names.stable_service(name), None)
    return policy | {
        "spec": {
            "podSelector": {"matchLabels": {names.LABEL_BINDING: name}},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        }
    }


def _namespace(name: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def _bridge(binding: SeenBinding, settings: Settings) -> list[Manifest]:
    name = names.bridge_name(binding.meta.name)
    role = _child(binding, f"{_RBAC}/v1", "Role", name, "bridge") | {
        "rules": [
            # Watching one object by its name is what resourceNames allows; others stay out of sight.
            {
                "apiGroups": [names.GROUP],
                "resources": [names.BINDINGS],
                "resourceNames": [binding.meta.name],
                "verbs": ["get", "watch", "patch"],
            },
            {
                "apiGroups": [names.GROUP],
                "resources": [f"{names.BINDINGS}/status"],
                "resourceNames": [binding.meta.name],
                "verbs": ["get", "patch"],
            },
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        ]
    }
    service = _child(binding, "v1", "Service", name, "bridge") | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_BINDING: binding.meta.name, names.LABEL_COMPONENT: "bridge"},
            "ports": [{"name": "http", "port": names.BRIDGE_PORT, "protocol": "TCP"}],
        }
    }
    return [
        _account(binding, name, "bridge"),
        role,
        _bound(binding, name, "bridge", ("Role", name)),
        service,
        _bridge_deployment(binding, settings, name),
    ]


def _bridge_deployment(binding: SeenBinding, settings: Settings, name: str) -> Manifest:
    control = binding.spec.control
    secrets = {
        names.KAFKA_SECRET_DIR: binding.spec.kafka.security.secret_ref,
        names.CONTROL_KAFKA_SECRET_DIR: (
            control.kafka.security.secret_ref if control and control.kafka else None
        ),
    }
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - inside the pod
    for path, reference in secrets.items():
        if reference is not None:
            volume = path.rsplit("/", 1)[-1]
            volumes.append({"name": volume, "secret": {"secretName": reference.name, "defaultMode": 0o440}})
            mounts.append({"name": volume, "mountPath": path, "readOnly": True})
    pod: dict[str, Any] = {
        "serviceAccountName": name,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": RESTRICTED_POD,
        "containers": [_bridge_container(binding, settings, mounts)],
        "volumes": volumes,
    }
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": each} for each in settings.image_pull_secrets]
    chosen = {names.LABEL_BINDING: binding.meta.name, names.LABEL_COMPONENT: "bridge"}
    return _child(binding, "apps/v1", "Deployment", name, "bridge") | {
        "spec": {
            "replicas": 1,
            # Two bridges at once would only fight for the same patch: the old one goes first.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": chosen},
            "template": {
                "metadata": {"labels": labels(binding.meta.name, component="bridge")},
                "spec": pod,
            },
        }
    }


def _bridge_container(
    binding: SeenBinding, settings: Settings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": "bridge",
        "image": settings.control_image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["bridge"],
        "env": [
            {"name": "TB_NAMESPACE", "value": binding.meta.namespace},
            {"name": "TB_BINDING", "value": binding.meta.name},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "TB_GATEWAY_SUBJECT", "value": settings.gateway_subject},
        ],
        "ports": [{"name": "http", "containerPort": names.BRIDGE_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"cpu": "500m", "memory": "256Mi"},
        },
        "securityContext": RESTRICTED_CONTAINER,
        "readinessProbe": probe("/readyz", period=5, failures=3),
        "livenessProbe": probe("/healthz", period=10, failures=3) | {"initialDelaySeconds": 5},
        "volumeMounts": mounts,
    }
