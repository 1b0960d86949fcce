#!/bin/sh
# Prints a fresh certificate authority's certificate and, after a line of dashes, the broker's key with its certificate.
# Run once per cluster, inside the broker's image; the authority's key is thrown away.
set -eu
cd "$(mktemp -d)"
names=DNS:localhost,IP:127.0.0.1,DNS:kafka,DNS:kafka.kafka,DNS:kafka.kafka.svc,DNS:kafka.kafka.svc.cluster.local
names=$names,DNS:*.kafka-brokers.kafka.svc,DNS:*.kafka-brokers.kafka.svc.cluster.local
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $key -keyout ca.key -out ca.crt -days 3650 -subj "/CN=TopicBinding development Kafka CA" \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
openssl req $key -keyout server.key -out server.csr -subj "/CN=kafka.kafka.svc" 2>/dev/null
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n' "$names" > extensions
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile extensions -out server.crt 2>/dev/null
cat ca.crt
echo ----
cat server.key server.crt
