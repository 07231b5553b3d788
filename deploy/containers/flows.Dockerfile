# Scheduling. Two images:
#
#   docker build -f deploy/containers/flows.Dockerfile --target server -t clicktower-server .   Prefect's server, alone
#   docker build -f deploy/containers/flows.Dockerfile -t clicktower-worker .                   a worker, the last stage
#
# A worker of a process pool runs the stages themselves where it is, each as a command of its own, so it carries all of
# them; one that only submits to a Flink and a Ray cluster does so with the same commands. The server carries
# clicktower[flows] alone, because the versions beside Prefect matter (docs/developing.md). A worker with
# `--build-arg EXTRAS=kubernetes` starts its runs as pods (deploy/kubernetes/prefect).
#
# The flow is a module of the package, and the files that deploy it are in the image, so a container needs no checkout.
#
# Not run: no image was ever built from this file, for want of a Docker engine.
# Run: BuildKit's parser (v0.34.2) and hadolint 2.15.1; the extra `flows` installed under constraints.txt into an empty
# environment (364 MB).

# hadolint global ignore=DL3008
# (DL3008: Debian's archive keeps one version of a package at a time, so a pinned one fails within weeks.)
FROM python:3.11-slim-bookworm AS source
RUN apt-get update && apt-get install --no-install-recommends --yes g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
RUN python -m venv /opt/clicktower
ENV PATH=/opt/clicktower/bin:$PATH
COPY . .

FROM source AS build-server
RUN pip install --no-cache-dir --constraint constraints.txt '.[flows]'

FROM source AS build-worker
ARG EXTRAS=
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' constraints.txt)" \
    && pip install --no-cache-dir --constraint constraints.txt ".[all${EXTRAS:+,$EXTRAS}]"

FROM python:3.11-slim-bookworm AS base
RUN useradd --uid 10001 --create-home clicktower && install -d -o clicktower /data /home/clicktower/.prefect
ENV PATH=/opt/clicktower/bin:$PATH \
    PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=1 RAY_USAGE_STATS_ENABLED=0 OMP_WAIT_POLICY=passive
USER 10001
WORKDIR /data

FROM base AS server
COPY --from=build-server /opt/clicktower /opt/clicktower
# All interfaces of the container; who reaches them is for whoever starts it to say (deploy/compose.yaml: loopback).
ENTRYPOINT ["prefect"]
CMD ["server", "start", "--host", "0.0.0.0"]

FROM base AS worker
COPY --from=build-worker /opt/clicktower /opt/clicktower
COPY deploy/prefect.yaml deploy/lost-runs.yaml /opt/clicktower/deploy/
ENTRYPOINT ["prefect"]
# It makes the pool, if there is none.
CMD ["worker", "start", "--pool", "clicktower", "--type", "process"]
