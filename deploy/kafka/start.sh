#!/bin/sh
# Starts one broker of the development Kafka. Everything it needs to know comes from the environment of the StatefulSet:
# REPLICAS, CLUSTER_ID, POD_IP, HOST_PORT, HOST_SASL_PORT, SCRAM_USERNAME, SCRAM_PASSWORD, and the pod's name.
set -eu
broker=${HOSTNAME##*-}
brokers=kafka-brokers.kafka.svc
factor=$REPLICAS
in_sync=$(( (REPLICAS + 1) / 2 ))
voters=
i=0
while [ "$i" -lt "$REPLICAS" ]; do
  voters="$voters${voters:+,}$i@kafka-$i.$brokers:9095"
  i=$((i + 1))
done
# After a restart of the node this pod has a new address, and for a while its own name still means the old one. A broker that
# began with it would look for its controller there.
patience=60
until [ "$(getent ahostsv4 "kafka-$broker.$brokers" | cut -d' ' -f1 | head -1)" = "$POD_IP" ] || [ "$patience" = 0 ]; do
  patience=$((patience - 1))
  sleep 1
done
# HOST and HOST_SASL are the same broker seen from the machine the cluster runs on; each broker has its own port there.
cat > /tmp/server.properties <<PROPERTIES
process.roles=broker,controller
node.id=$broker
controller.quorum.voters=$voters
listeners=PLAINTEXT://:9092,SASL_SSL://:9094,HOST://:19092,HOST_SASL://:19093,CONTROLLER://:9095
advertised.listeners=PLAINTEXT://kafka-$broker.$brokers:9092,SASL_SSL://kafka-$broker.$brokers:9094,HOST://127.0.0.1:$((HOST_PORT + 100 * broker)),HOST_SASL://localhost:$((HOST_SASL_PORT + 100 * broker))
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,HOST:PLAINTEXT,SASL_SSL:SASL_SSL,HOST_SASL:SASL_SSL
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.host_sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=/etc/kafka-tls/server.pem
log.dirs=/var/lib/kafka/data
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=$factor
min.insync.replicas=$in_sync
offsets.topic.num.partitions=4
offsets.topic.replication.factor=$factor
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=$factor
transaction.state.log.min.isr=$in_sync
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=$factor
share.coordinator.state.topic.min.isr=$in_sync
group.initial.rebalance.delay.ms=0
PROPERTIES
# The same user in every broker's first metadata; a formatted disk is left as it is. What the tool prints holds the user's keys.
java -Xmx128m -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties -cp '/opt/kafka/jars/*' \
  kafka.tools.StorageTool format --ignore-formatted --cluster-id "$CLUSTER_ID" --config /tmp/server.properties \
  --add-scram "SCRAM-SHA-512=[name=$SCRAM_USERNAME,password=$SCRAM_PASSWORD]" > /dev/null
exec java -Xms256m -Xmx256m -XX:+UseSerialGC -Dsun.net.inetaddr.ttl=5 -XX:+ExitOnOutOfMemoryError -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties \
  -cp '/opt/kafka/jars/*' kafka.Kafka /tmp/server.properties
