"""Fixtures of the job's integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.integration.job import world
from topicbinding.api import SparkSpec
from topicbinding_job import session as spark_session
from topicbinding_job.ending import stop_jvm
from topicbinding_job.settings import Settings


@pytest.fixture
def topics() -> Iterator[world.Topics]:
    made = world.Topics()
    yield made
    made.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the job's own settings. Tests that start drivers come first, so there is one JVM at a
    time."""
    scratch = tmp_path_factory.mktemp("spark")
    settings = Settings(
        namespace="test", generation="test-g1", jars=world.jars(), scratch=scratch, archive=world.archive()
    )
    session = spark_session.start(settings, SparkSpec(), {})
    session.sparkContext.setLogLevel("OFF")
    yield session
    stop_jvm(20)
