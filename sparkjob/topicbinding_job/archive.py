"""`python -m topicbinding_job.archive PATH`: makes the class archive (AppCDS) that halves a cold start.

Run once, in the image build, after everything on the class path is in place: the JVM drops the archive
silently when any jar differs, which `session.archive_used` makes visible. The archive holds the classes that
a throw-away query and a Kafka client have loaded.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from topicbinding.api import Mode, SparkSpec
from topicbinding_job import session as spark_session
from topicbinding_job import warmup
from topicbinding_job.settings import Settings

_PACKAGES: Final = (
    "org/apache/spark/",
    "org/apache/kafka/clients/",
    "org/apache/kafka/common/",
)

logger = logging.getLogger("topicbinding_job.archive")


def main(target: Path) -> int:
    logging.basicConfig(level=logging.INFO)
    with tempfile.TemporaryDirectory() as scratch:
        settings = replace(
            Settings.from_environment({"TB_NAMESPACE": "image", "TB_GENERATION": "archive"} | _jars()),
            archive=target,
            scratch=Path(scratch),
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        session = spark_session.start(settings, SparkSpec(), {}, [f"-XX:ArchiveClassesAtExit={target}"])
        warmup.warm(session, settings.scratch, Mode.AUTO, seconds=120.0)
        _load_connector(session, settings)
        gateway: Any = SparkContext._gateway
        session.stop()
        # The archive is written when the JVM ends by itself: it does when its standard input is closed.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(120)
    if not target.exists():
        logger.error("the JVM wrote no archive")
        return 1
    logger.info("%s: %d MiB", target, target.stat().st_size // 2**20)
    return 0


def _load_connector(session: SparkSession, settings: Settings) -> None:
    """Load every class of the connector and of Kafka's client: there is no broker here to make them needed,
    and the first question to a real one needs hundreds."""
    jvm: Any = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    jars = settings.jars or Path(pyspark.__file__).parent / "jars"
    for jar in sorted(jars.glob("*kafka*.jar")):
        with zipfile.ZipFile(jar) as packed:
            files = [name for name in packed.namelist() if name.startswith(_PACKAGES)]
        for name in files:
            if name.endswith(".class"):
                # One that needs what is not on the class path is one that we do not use.
                with contextlib.suppress(Py4JError):
                    jvm.java.lang.Class.forName(name[:-6].replace("/", "."), False, loader)


def _jars() -> dict[str, str]:
    """Tests keep the connector jars elsewhere than the image does."""
    return {"TB_JARS": os.environ["TB_JARS"]} if "TB_JARS" in os.environ else {}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
