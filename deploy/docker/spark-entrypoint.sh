#!/bin/sh
# What a container of the spark image runs. Spark's Kubernetes backend starts its executors with the single word `executor` and
# says the rest in SPARK_* variables; everything else is our job, which is the driver.
set -eu
if [ "${1:-}" != executor ]; then
  exec python -m topicbinding_job "$@"
fi
# Java options come one per variable, SPARK_JAVA_OPT_0, _1, ...: they may hold spaces, so each stays one word.
number=0
set --
while option=$(printenv "SPARK_JAVA_OPT_$number"); do
  set -- "$@" "$option"
  number=$((number + 1))
done
exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:-}${SPARK_CLASSPATH:+:}$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
