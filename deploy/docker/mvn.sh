#!/bin/sh
# Maven inside an image build. Trusts the host's certificates and follows the host's Maven settings where the build is given
# them as secrets (`ca`, `maven`); both are gone when the step ends.
set -eu
here=$(dirname "$0")
settings=
if [ -s /run/secrets/ca ]; then
  java "$here/TrustStore.java" /run/secrets/ca /dev/shm/trust.p12
  export MAVEN_OPTS="-Djavax.net.ssl.trustStore=/dev/shm/trust.p12 -Djavax.net.ssl.trustStorePassword=changeit"
fi
if [ -s /run/secrets/maven ]; then settings="-s /run/secrets/maven"; fi
# shellcheck disable=SC2086  # no settings means no words
mvn -B -q -ntp $settings "$@"
rm -f /dev/shm/trust.p12
