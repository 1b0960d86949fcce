"""`python -m topicbinding_job`: the driver of one generation. All it is told stands in the environment
(settings)."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from topicbinding.api import Phase
from topicbinding.auth import TokenVerifier, cluster_keys
from topicbinding_job import VERSION
from topicbinding_job.driver import Driver, Stopped, reason_of
from topicbinding_job.ending import stop_jvm, write_termination_log
from topicbinding_job.kube import ClusterGeneration, FileGeneration, GenerationGone, GenerationPort
from topicbinding_job.serve import Server
from topicbinding_job.settings import Settings, SettingsError
from topicbinding_job.state import DriverState

logger = logging.getLogger("topicbinding_job")


def main() -> int:
    logging.basicConfig(
        level=os.environ.get("TB_LOG_LEVEL", "INFO"), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # py4j tells every call at INFO.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    faulthandler.enable()
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        logger.error("%s", error)
        write_termination_log(Path("/dev/termination-log"), "SettingsInvalid", str(error))
        return 2
    stop = threading.Event()
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: stop.set())
    state = DriverState(pod_uid=settings.pod_uid)
    verifier = TokenVerifier(cluster_keys, settings.gateway_subject) if settings.auth else None
    server = Server(state, verifier, settings.listen_host, settings.listen_port)
    server.start()
    logger.info("version %s, generation %s, listening on %d", VERSION, settings.generation, server.port)
    return run(settings, _port(settings), server, state, stop)


def run(
    settings: Settings, port: GenerationPort, server: Server, state: DriverState, stop: threading.Event
) -> int:
    """The driver's life from the first question to the last breath; returns the exit code."""
    driver = Driver(settings, port, server, state, stop)
    code, goodbye = 0, "stopped"
    try:
        driver.run()
    except (Stopped, GenerationGone):
        pass
    except BaseException as error:
        reason, message = reason_of(error)
        logger.error("failed: %s: %s", reason, message, exc_info=None if hasattr(error, "reason") else error)
        state.move(Phase.FAILED, reason, message)
        write_termination_log(settings.termination_log, reason, message)
        code, goodbye = 1, reason
    # From here on a second signal changes nothing: the way out is bounded.
    watchdog = threading.Timer(settings.stop_seconds, _exit_hard, args=(code,))
    watchdog.daemon = True
    watchdog.start()
    driver.reporter.close()
    server.close(goodbye)
    try:
        driver.close()
    except Exception as error:
        logger.warning("the query did not stop cleanly: %s", error)
    stop_jvm(settings.stop_seconds / 2)
    watchdog.cancel()
    logger.info("ended with %d", code)
    return code


def _port(settings: Settings) -> GenerationPort:
    directory = os.environ.get("TB_GENERATION_DIR")
    if directory:
        return FileGeneration(Path(directory))
    return ClusterGeneration(settings.namespace, settings.generation)


def _exit_hard(code: int) -> None:
    logger.error("still not ended: killing the JVM and leaving")
    stop_jvm(0.1)
    os._exit(code)


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    # Threads of libraries must not keep a finished driver alive.
    os._exit(ended)
