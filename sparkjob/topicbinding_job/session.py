"""Starts the JVM and the Spark session with the settings that mattered (docs/spark-job.md says what each one
gains).

Called by `driver`, in a thread of its own so that it overlaps with the questions to Kafka.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from topicbinding.api import CheckpointType, Mode, SparkSpec, names
from topicbinding_job.settings import Settings

logger = logging.getLogger(__name__)

MEBI: Final = 1024 * 1024
# Spark refuses to start with a heap below 450 Mi (INVALID_DRIVER_MEMORY), and says so only after a while.
SPARKS_LEAST: Final = 512 * MEBI

_STATE: Final = "spark.sql.streaming.stateStore"
_FIXED: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    # Real time needs it, and a checkpoint keeps the format it began with.
    f"{_STATE}.checkpointFormatVersion": "2",
    # A query that was stopped in its very first batch begins that batch again; what it left of it does no
    # harm.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    # How often an idle query asks Kafka for news. The default of 10 ms keeps a quarter of a core busy with
    # nothing.
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # The rows of one batch travel to Python in few, large pieces.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # A row must not wait in a network buffer for company: 50 -> 16 ms, the largest single gain in freshness.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    # The driver's own log shows what happened; Spark's cleaner and event log would only cost.
    "spark.eventLog.enabled": "false",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.task.maxFailures": "4",
    "spark.port.maxRetries": "0",
}
# The optimising compiler steps in ten times later than by default. A cold start to the first batch then
# takes 15 s of CPU instead of 24 (11 without that compiler at all), and what a backlog does a million times
# is still optimised early.
_LATE_OPTIMISING: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_LOCAL_FILES: Final = {
    # Avoids about five forked processes for each checkpoint file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
# What people may not change through spark.conf, and why.
_REFUSED: Final = {
    "spark.master": "executors.instances decides it",
    "spark.driver.memory": "memory decides it",
    "spark.executor.memory": "executors.memory decides it",
    "spark.executor.cores": "executors.cores decides it",
    "spark.executor.instances": "executors.instances decides it",
    "spark.jars.packages": "the image holds all code",
    "spark.jars": "the image holds all code",
    "spark.driver.extraJavaOptions": "the driver sets them",
    "spark.app.name": "the generation's name is the name",
}


class ConfRefused(ValueError):  # noqa: N818 - it carries the condition reason that it becomes
    """A setting of spark.conf that would break the job."""

    reason = "SparkConfRefused"


def checked_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """People's own settings, without those that would break us."""
    for name in conf:
        if not name.startswith("spark."):
            raise ConfRefused(f"spark.conf: {name[:80]!r} is no Spark setting")
        for prefix in ("spark.kubernetes.", "spark.driver.host", "spark.driver.bind", "spark.driver.port"):
            if name.startswith(prefix):
                raise ConfRefused(f"spark.conf: {name[:80]!r} is refused: the driver sets it")
        if name in _REFUSED:
            raise ConfRefused(f"spark.conf: {name!r} is refused: {_REFUSED[name]}")
    return dict(conf)


def shuffle_partitions(spark: SparkSpec) -> int:
    """How many parts the keyed state has; fixed for the life of a checkpoint.

    One, unless only micro-batches are asked for: in real time a single part keeps the accounts rows in the
    order of their offsets; micro-batches are sorted anyway.
    """
    if spark.mode is not Mode.MICROBATCH:
        return 1
    return max(2, spark.executors.instances * spark.executors.cores)


def heap_bytes(memory: int) -> int:
    """The JVM's share of the pod: two fifths. The rest is RocksDB, threads, and the tables in Python.

    1536 Mi -> 614 Mi of heap.
    """
    return max(SPARKS_LEAST, memory * 2 // 5)


def table_bytes(memory: int) -> int:
    """The tables' share of the pod: what heap, the JVM's other memory and Python itself leave, less a
    quarter for the batch that is being taken in.

    1536 Mi -> 307 Mi of tables, about 2.5 million rows of the default columns.
    """
    return max(64 * MEBI, (memory - heap_bytes(memory) - 512 * MEBI) * 3 // 4)


def delete_tree(session: SparkSession, place: str) -> None:
    """Remove a directory wherever Spark can reach it."""
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    files = path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    files.delete(path, True)


def conf_of(settings: Settings, spark: SparkSpec, labels: Mapping[str, str]) -> dict[str, str]:
    """All settings of the session, as Spark wants them."""
    conf = dict(_FIXED)
    if spark.checkpoint.type is not CheckpointType.URI:
        conf |= _LOCAL_FILES
    conf["spark.app.name"] = settings.generation
    conf["spark.sql.shuffle.partitions"] = str(shuffle_partitions(spark))
    conf["spark.local.dir"] = str(settings.scratch / "spark")
    conf["spark.sql.warehouse.dir"] = str(settings.scratch / "warehouse")
    if settings.jars is not None:
        jars = ":".join(sorted(str(path) for path in settings.jars.glob("*.jar")))
        conf |= {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    if spark.executors.instances == 0:
        conf["spark.master"] = f"local[{settings.slots}]"
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        conf |= _on_kubernetes(settings, spark, labels)
    return conf | checked_conf(spark.conf)


def _on_kubernetes(settings: Settings, spark: SparkSpec, labels: Mapping[str, str]) -> dict[str, str]:
    executors = spark.executors
    template = settings.scratch / "executor.yaml"
    template.write_text(json.dumps(_executor_template()))
    return {
        "spark.master": "k8s://https://kubernetes.default.svc:443",
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": settings.namespace,
        "spark.kubernetes.driver.pod.name": settings.pod_name,
        "spark.kubernetes.container.image": spark.image or settings.image,
        "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        "spark.kubernetes.executor.podNamePrefix": settings.generation,
        **{
            f"spark.kubernetes.executor.label.{name}": value
            for name, value in {
                **labels,
                names.LABEL_COMPONENT: "executor",
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
            }.items()
        },
        "spark.kubernetes.executor.deleteOnTermination": "true",
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        # Executors mostly wait; asking for all they may use would keep pods from fitting on a small node.
        "spark.kubernetes.executor.request.cores": f"{executors.cores * 100}m",
        "spark.kubernetes.executor.limit.cores": str(executors.cores),
        # Spark adds its overhead to the heap; together they are the pod's limit.
        "spark.executor.memory": f"{max(SPARKS_LEAST, memory_bytes(executors.memory) * 6 // 10) // MEBI}m",
        "spark.executor.memoryOverhead": f"{memory_bytes(executors.memory) * 4 // 10 // MEBI}m",
        "spark.driver.host": settings.pod_ip,
        "spark.driver.bindAddress": settings.pod_ip,
        "spark.driver.port": str(names.SPARK_DRIVER_PORT),
        "spark.blockManager.port": str(names.SPARK_BLOCK_MANAGER_PORT),
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    } | _shared_checkpoint(settings, spark)


def _shared_checkpoint(settings: Settings, spark: SparkSpec) -> dict[str, str]:
    """The claim that the driver has mounted, mounted by the executors too."""
    if spark.checkpoint.type is not CheckpointType.PVC:
        return {}
    prefix = "spark.kubernetes.executor.volumes.persistentVolumeClaim.checkpoint"
    return {
        f"{prefix}.mount.path": settings.checkpoint_root,
        f"{prefix}.mount.readOnly": "false",
        f"{prefix}.options.claimName": names.checkpoint_claim(settings.generation),
    }


def _executor_template() -> dict[str, Any]:
    """A pod that a namespace with the `restricted` profile accepts."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "executor",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - an emptyDir
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def start(
    settings: Settings,
    spark: SparkSpec,
    labels: Mapping[str, str],
    more_java_options: Sequence[str] = (),
) -> SparkSession:
    """Start the JVM and the session. Blocks for seconds. `labels` are those of executor pods."""
    conf = conf_of(settings, spark, labels)
    (settings.scratch / "spark").mkdir(parents=True, exist_ok=True)
    options = [*java_options(settings), *more_java_options]
    conf["spark.driver.extraJavaOptions"] = " ".join(shlex.quote(each) for each in options)
    # What decides how the JVM itself starts can only be said here, before there is one.
    early = ("spark.driver.extraClassPath", "spark.driver.extraJavaOptions")
    arguments = ["--driver-memory", f"{heap_bytes(settings.memory) // MEBI}m"]
    for name in early:
        if name in conf:
            arguments += ["--conf", f"{name}={conf.pop(name)}"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(shlex.quote(each) for each in (*arguments, "pyspark-shell"))
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def java_options(settings: Settings) -> list[str]:
    # One collector thread: on two cores the others would only take turns with the work, and it costs least
    # memory.
    options = ["-XX:+UseSerialGC" if settings.cores <= 2 else "-XX:+UseParallelGC"]
    options += ["-XX:+ExitOnOutOfMemoryError", f"-Djava.io.tmpdir={settings.scratch}"]
    options += _LATE_OPTIMISING
    if settings.archive.exists():
        log = archive_log(settings)
        options += [f"-XX:SharedArchiveFile={settings.archive}", f"-Xlog:cds:file={log}:none:filecount=0"]
        # Map it where it was made for; at another address every pointer in it would have to be moved.
        options += ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
    return options


def archive_log(settings: Settings) -> Path:
    return settings.scratch / "cds.log"


def archive_used(settings: Settings) -> bool:
    """Whether the JVM really runs from the image's class archive: it drops it silently when any jar
    differs."""
    try:
        said = archive_log(settings).read_text()
    except OSError:
        return False
    return "mapped dynamic" in said.lower()


_QUANTITY: Final = re.compile(r"(\d+)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


def memory_bytes(quantity: str) -> int:
    """Kubernetes' spelling of an amount of memory, in bytes."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is no amount of memory")
    return int(match[1]) * _UNITS[match[2] or ""]
