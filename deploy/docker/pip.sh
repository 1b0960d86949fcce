#!/bin/sh
# Installs a locked requirements file into /opt/venv inside an image build. Trusts the host's certificates and follows the host's
# pip settings where the build is given them as secrets (`ca`, `pip`).
set -eu
if [ -s /run/secrets/pip ]; then export PIP_CONFIG_FILE=/run/secrets/pip; fi
if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca SSL_CERT_FILE=/run/secrets/ca REQUESTS_CA_BUNDLE=/run/secrets/ca; fi
/usr/bin/python3 -m pip --python /opt/venv/bin/python install --quiet --disable-pip-version-check --no-input --require-hashes -r "$1"
# What no program of ours ever opens.
cd /opt/venv/lib/python3.11/site-packages
rm -rf pyarrow/include pyarrow/tests pandas/tests numpy/*/tests pyspark/examples pyspark/R
# The class archive of the spark image knows its jars by size and time: the same jars must have the same time in every build.
if [ -d pyspark/jars ]; then touch -d 2026-01-01 pyspark/jars/*; fi
