"""Run in the spark image by test_spark.py: counts a Kafka topic as a batch, and says where it was done."""

import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

topic, executors = sys.argv[1], int(sys.argv[2])
builder = SparkSession.builder.appName("count").config("spark.ui.enabled", "false")
if executors == 0:
    builder = builder.master("local[2]")
else:
    settings = {
        "spark.executor.instances": executors,
        "spark.executor.cores": 1,
        "spark.executor.memory": "512m",
        "spark.kubernetes.executor.request.cores": "200m",
        "spark.kubernetes.namespace": os.environ["NAMESPACE"],
        "spark.kubernetes.container.image": os.environ["IMAGE"],
        "spark.kubernetes.driver.pod.name": os.environ["POD_NAME"],
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
        "spark.kubernetes.executor.podTemplateFile": "/job/executor.json",
        "spark.driver.host": os.environ["POD_IP"],
        "spark.driver.bindAddress": os.environ["POD_IP"],
        "spark.driver.port": 7078,
        "spark.driver.blockManager.port": 7079,
        "spark.port.maxRetries": 0,
        # Work starts when all of them are there, so that each gets some.
        "spark.scheduler.minRegisteredResourcesRatio": 1.0,
    }
    builder = builder.master("k8s://https://kubernetes.default.svc")
    for key, value in settings.items():
        builder = builder.config(key, value)


def where(_rows: Iterable[int]) -> Iterator[str]:
    yield socket.gethostname()


spark = builder.getOrCreate()
reader = spark.read.format("kafka").option("kafka.bootstrap.servers", "kafka.kafka.svc:9092")
rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
counted = rows.count()
places = spark.sparkContext.parallelize(range(40), 40).mapPartitions(where).distinct().collect()
print("RESULT " + json.dumps({"rows": counted, "places": sorted(places)}), flush=True)
spark.stop()
