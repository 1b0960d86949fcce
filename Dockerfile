# Two images from one file: `control` (controller, bridge, gateway, CLI, demo) and `spark` (a generation's driver and executors).
# Needs BuildKit. What changes seldom comes first, our code last, so that a code change rebuilds and ships one small layer.
#
# Optional build secrets carry the machine's certificates and package-client settings; no layer keeps them:
#   ca (a PEM bundle), pip (pip.conf), maven (settings.xml), npm (.npmrc)

# Which stage, or which image of an earlier build, the class archive is taken from; see below.
ARG ARCHIVE=archive

# --- what both images run on
FROM debian:bookworm-slim AS runtime
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* /var/log/* /usr/share/doc \
    && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin topicbinding
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp PYTHONPATH=/app PYTHONUNBUFFERED=1

# --- Python packages, every one checked against its hash; pip itself stays behind in these stages
FROM runtime AS pip
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/* && python3 -m venv --without-pip /opt/venv
COPY deploy/docker/pip.sh /build/

FROM pip AS control-packages
COPY requirements/control.txt /src/
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip --mount=type=cache,target=/root/.cache/pip \
    sh /build/pip.sh /src/control.txt

FROM pip AS spark-packages
COPY requirements/spark.txt /src/
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip --mount=type=cache,target=/root/.cache/pip \
    sh /build/pip.sh /src/spark.txt

# --- the page: built once from its locked packages, served as plain files
FROM debian:bookworm-slim AS page
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates nodejs npm && rm -rf /var/lib/apt/lists/*
WORKDIR /page
COPY operator/topicbinding/gateway/page/package.json operator/topicbinding/gateway/page/package-lock.json ./
RUN --mount=type=secret,id=ca --mount=type=secret,id=npm,target=/root/.npmrc --mount=type=cache,target=/root/.npm \
    if [ -s /run/secrets/ca ]; then export NODE_EXTRA_CA_CERTS=/run/secrets/ca; fi; npm ci --ignore-scripts --no-audit --no-fund
COPY operator/topicbinding/gateway/page ./
RUN npm run build

# --- our own jar, and the jars that pyspark does not carry: exactly those of jars.sha256
FROM debian:bookworm-slim AS jars
# Java's packages want a place for manual pages, which the slim image has not.
RUN mkdir -p /usr/share/man/man1 && apt-get update \
    && apt-get install -y --no-install-recommends maven openjdk-17-jdk-headless \
    && rm -rf /var/lib/apt/lists/*
COPY sparkjob/java /src/java
COPY sparkjob/jars.sha256 /src/
RUN --mount=type=secret,id=ca --mount=type=secret,id=maven --mount=type=cache,target=/root/.m2 \
    --mount=type=bind,source=deploy/docker,target=/build \
    cd /src/java && sh /build/mvn.sh package && cd target/jars && sha256sum --quiet --strict -c /src/jars.sha256 \
    && touch -d 2026-01-01 * && test "$(ls | grep -vc '^topicbinding-job.jar$')" = "$(wc -l < /src/jars.sha256)"

# --- our code, compiled to bytecode once, with the same bytes from the same sources
FROM runtime AS control-code
COPY operator/topicbinding /app/topicbinding
RUN rm -rf /app/topicbinding/gateway/page && python3 -m compileall -q --invalidation-mode unchecked-hash /app
COPY --from=page /page/dist /app/topicbinding/gateway/page/dist

FROM runtime AS spark-code
COPY operator/topicbinding /app/topicbinding
COPY sparkjob/topicbinding_job /app/topicbinding_job
RUN rm -rf /app/topicbinding/gateway/page && python3 -m compileall -q --invalidation-mode unchecked-hash /app

# --- control
FROM runtime AS control
COPY --from=control-packages /opt/venv /opt/venv
COPY --from=control-code /app /app
WORKDIR /app
USER 10001:10001
ENTRYPOINT ["python", "-m", "topicbinding"]

# --- spark
FROM runtime AS spark-base
# Java's packages want a place for manual pages, which the slim image has not.
RUN mkdir -p /usr/share/man/man1 && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/log/* /usr/share/doc
ENV SPARK_HOME=/opt/venv/lib/python3.11/site-packages/pyspark PYSPARK_PYTHON=/opt/venv/bin/python
COPY --from=spark-packages /opt/venv /opt/venv
COPY --from=jars /src/java/target/jars /opt/venv/lib/python3.11/site-packages/pyspark/jars/
WORKDIR /app

# The class archive that halves a cold start. Only the modules that decide which classes are loaded, and how the JVM is started,
# are here: a change elsewhere leaves the archive (the second-largest layer) as it is.
FROM spark-base AS recorder
COPY operator/topicbinding/__init__.py /app/topicbinding/
COPY operator/topicbinding/api /app/topicbinding/api
COPY operator/topicbinding/tables /app/topicbinding/tables
COPY sparkjob/topicbinding_job/log /app/topicbinding_job/log
COPY sparkjob/topicbinding_job/__init__.py sparkjob/topicbinding_job/archive.py sparkjob/topicbinding_job/ingest.py \
     sparkjob/topicbinding_job/session.py sparkjob/topicbinding_job/settings.py sparkjob/topicbinding_job/sink.py \
     sparkjob/topicbinding_job/transform.py sparkjob/topicbinding_job/warmup.py sparkjob/topicbinding_job/wire.py \
     /app/topicbinding_job/
RUN python -m topicbinding_job.archive /opt/topicbinding/app.jsa

FROM scratch AS archive
COPY --from=recorder /opt/topicbinding /opt/topicbinding

# The archive of an earlier build is as good while the jars are the same: --build-arg ARCHIVE=<image> saves the recording.
FROM ${ARCHIVE} AS chosen-archive

FROM spark-base AS spark
COPY --from=chosen-archive /opt/topicbinding /opt/topicbinding
COPY deploy/docker/spark-entrypoint.sh /opt/spark/entrypoint.sh
COPY --from=spark-code /app /app
USER 10001:10001
ENTRYPOINT ["/bin/sh", "/opt/spark/entrypoint.sh"]
