"""Builders of a generation's objects: the Generation, its driver pod, Service and checkpoint; and the
stable Service.

Pure: the applier sends what they return. Compared with golden YAML in the tests.
"""

from __future__ import annotations

from typing import Any, Final

from topicbinding.api import CheckpointType, GenerationSpec, names
from topicbinding.controller.actions import CreateGeneration
from topicbinding.controller.observed import (
    ANNOTATION_SECRET,
    ANNOTATION_WISHED_AT,
    Manifest,
    Meta,
    SeenBinding,
    SeenGeneration,
)
from topicbinding.controller.settings import Settings

RESTRICTED_POD: Final = {
    "runAsNonRoot": True,
    "fsGroup": 10001,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_BYTES: Final = {
    "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12
}  # fmt: skip


def in_bytes(quantity: str) -> int:
    """A whole Kubernetes quantity in bytes.

    >>> in_bytes("1536Mi")
    1610612736
    """
    for suffix, factor in _BYTES.items():
        if quantity.endswith(suffix):
            return int(quantity.removesuffix(suffix)) * factor
    return int(quantity)


def owned_by(kind: str, api_version: str, meta: Meta) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": api_version,
            "kind": kind,
            "name": meta.name,
            "uid": meta.uid,
            "controller": True,
            # A retired generation disappears only after what it owns: its absence is the proof that they
            # are gone.
            "blockOwnerDeletion": True,
        }
    ]


def owned_by_binding(binding: SeenBinding) -> list[dict[str, Any]]:
    return owned_by(names.BINDING_KIND, names.API_VERSION, binding.meta)


def labels(binding: str, number: int | None = None, component: str | None = None) -> dict[str, str]:
    said = {names.LABEL_BINDING: binding, names.LABEL_MANAGED_BY: names.MANAGED_BY}
    if number is not None:
        said[names.LABEL_GENERATION] = str(number)
    if component is not None:
        said[names.LABEL_COMPONENT] = component
    return said


def stable_service(binding: SeenBinding, active: int | None) -> Manifest:
    """What readers find the active generation by. Without a generation in its selector it selects nothing."""
    name = binding.meta.name
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.stable_service(name),
            "namespace": binding.meta.namespace,
            "labels": labels(name),
            "ownerReferences": owned_by_binding(binding),
        },
        "spec": {
            "selector": selector(name, active),
            "ports": [{"name": "http", "port": names.DRIVER_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def selector(binding: str, active: int | None) -> dict[str, str]:
    # Executors carry the same two labels. Before anything is active the selector must match no pod at all.
    return {
        names.LABEL_BINDING: binding,
        names.LABEL_COMPONENT: "driver",
        **({names.LABEL_GENERATION: str(active)} if active else {f"{names.GROUP}/none": "true"}),
    }


def generation(binding: SeenBinding, action: CreateGeneration) -> Manifest:
    spec = GenerationSpec(
        binding=binding.meta.name,
        binding_uid=binding.meta.uid,
        number=action.number,
        source=action.source,
        rehearsal=action.rehearsal,
        spark=action.spark,
    )
    marks = labels(binding.meta.name, action.number)
    if action.choice_hash:
        marks[names.LABEL_CHOICE] = action.choice_hash
    notes = {ANNOTATION_WISHED_AT: action.wished_at.isoformat()}
    if action.secret:
        notes[ANNOTATION_SECRET] = action.secret
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.GENERATION_KIND,
        "metadata": {
            "name": names.generation_name(binding.meta.name, action.number),
            "namespace": binding.meta.namespace,
            "labels": marks,
            "annotations": notes,
            "ownerReferences": owned_by_binding(binding),
        },
        "spec": spec.wire(),
    }


def _of_generation(seen: SeenGeneration, kind: str, name: str, component: str | None = None) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": seen.meta.namespace,
            "labels": labels(seen.spec.binding, seen.number, component),
            "ownerReferences": owned_by(names.GENERATION_KIND, names.API_VERSION, seen.meta),
        },
    }


def headless_service(seen: SeenGeneration) -> Manifest:
    """Reaches this generation whatever is active: executors need it before the driver is ready."""
    return _of_generation(seen, "Service", seen.meta.name) | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {
                names.LABEL_BINDING: seen.spec.binding,
                names.LABEL_GENERATION: str(seen.number),
                names.LABEL_COMPONENT: "driver",
            },
            "ports": [
                {"name": "http", "port": names.DRIVER_PORT, "protocol": "TCP"},
                {"name": "spark-driver", "port": names.SPARK_DRIVER_PORT, "protocol": "TCP"},
                {"name": "spark-blocks", "port": names.SPARK_BLOCK_MANAGER_PORT, "protocol": "TCP"},
            ],
        }
    }


def checkpoint_claim(seen: SeenGeneration) -> Manifest | None:
    checkpoint = seen.spec.spark.checkpoint
    if checkpoint.type is not CheckpointType.PVC:
        return None
    spec: dict[str, Any] = {
        "accessModes": [checkpoint.access_mode],
        "resources": {"requests": {"storage": checkpoint.size}},
    }
    if checkpoint.storage_class_name:
        spec["storageClassName"] = checkpoint.storage_class_name
    claim = _of_generation(seen, "PersistentVolumeClaim", names.checkpoint_claim(seen.meta.name))
    return claim | {"spec": spec}


def driver_pod(seen: SeenGeneration, settings: Settings) -> Manifest:
    pod = _of_generation(seen, "Pod", seen.meta.name, "driver")
    pod["spec"] = {
        "serviceAccountName": names.driver_account(seen.spec.binding),
        "restartPolicy": "Never",  # a driver that ended stays to be looked at; the controller replaces it
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": settings.driver_grace_seconds,
        "securityContext": RESTRICTED_POD,
        "containers": [_driver_container(seen, settings)],
        "volumes": _driver_volumes(seen),
    }
    if settings.driver_scheduler:
        pod["spec"]["schedulerName"] = settings.driver_scheduler
    if settings.image_pull_secrets:
        pod["spec"]["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return pod


def _driver_container(seen: SeenGeneration, settings: Settings) -> dict[str, Any]:
    spark = seen.spec.spark
    mounts: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside the pod, its root file system is read-only
        {"name": "checkpoint", "mountPath": names.CHECKPOINT_DIR},
    ]
    if seen.secret:
        mounts.append({"name": "kafka", "mountPath": names.KAFKA_SECRET_DIR, "readOnly": True})
    return {
        "name": "driver",
        "image": spark.image,
        "imagePullPolicy": settings.image_pull_policy,
        "env": [
            {"name": "TB_NAMESPACE", "value": seen.meta.namespace},
            {"name": "TB_GENERATION", "value": seen.meta.name},
            {"name": "TB_BINDING", "value": seen.spec.binding},
            {"name": "TB_BINDING_UID", "value": seen.spec.binding_uid},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TB_GATEWAY_SUBJECT", "value": settings.gateway_subject},
            {"name": "TB_MEMORY", "value": str(in_bytes(spark.memory))},
            {"name": "TB_CORES", "value": str(spark.cores)},
        ],
        "ports": [
            {"name": "http", "containerPort": names.DRIVER_PORT, "protocol": "TCP"},
            {"name": "spark-driver", "containerPort": names.SPARK_DRIVER_PORT, "protocol": "TCP"},
            {"name": "spark-blocks", "containerPort": names.SPARK_BLOCK_MANAGER_PORT, "protocol": "TCP"},
        ],
        "resources": {
            "requests": {
                "cpu": f"{max(1, spark.cores * 10 * settings.driver_cpu_request_percent)}m",
                "memory": spark.memory,
            },
            "limits": {"cpu": str(spark.cores), "memory": spark.memory},
        },
        "securityContext": RESTRICTED_CONTAINER,
        # A first start may take a while on a busy node: liveness begins when the startup probe has
        # succeeded once.
        "startupProbe": probe("/healthz", period=1, failures=300),
        "readinessProbe": probe("/readyz", period=1, failures=2),
        "livenessProbe": probe("/healthz", period=10, failures=6),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def probe(path: str, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _driver_volumes(seen: SeenGeneration) -> list[dict[str, Any]]:
    claim = seen.spec.spark.checkpoint.type is CheckpointType.PVC
    where: dict[str, Any] = (
        {"persistentVolumeClaim": {"claimName": names.checkpoint_claim(seen.meta.name)}}
        if claim
        else {"emptyDir": {}}
    )
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "checkpoint"} | where,
    ]
    if seen.secret:
        volumes.append({"name": "kafka", "secret": {"secretName": seen.secret, "defaultMode": 0o440}})
    return volumes
