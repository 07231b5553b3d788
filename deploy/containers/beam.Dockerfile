# Preprocessing: ingest, build, check, judgments, erase. Carries clicktower[beam]: no torch, no Ray, no Prefect.
#
#   docker build -f deploy/containers/beam.Dockerfile -t clicktower-beam .
#   docker run --rm -v "$PWD/data:/data" clicktower-beam ingest /data/logs --into /data/store
#
# With `--build-arg EXTRAS=s3` (gcs, azure, tables; several by commas) it reads and writes there too.
#
# The same image is the worker pool beside a Flink task manager: deploy/kubernetes/flink.yaml.
#
# Not run: no image was ever built from this file, for want of a Docker engine.
# Run: parsed and linted by BuildKit's own parser (v0.34.2) and by hadolint 2.15.1; this extra installed
# under constraints.txt into an empty environment (421 MB), and ingest, build, check and verify there on a simulated log;
# the same with EXTRAS=gcs (456 MB), log and store on a server that speaks as Google Cloud Storage does.

# hadolint global ignore=DL3008
# (DL3008: Debian's archive keeps one version of a package at a time, so a pinned one fails within weeks.)
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install --no-install-recommends --yes g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
RUN python -m venv /opt/clicktower
ENV PATH=/opt/clicktower/bin:$PATH
COPY . .
ARG EXTRAS=
RUN pip install --no-cache-dir --constraint constraints.txt ".[beam${EXTRAS:+,$EXTRAS}]"

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home clicktower && install -d -o clicktower /data
COPY --from=build /opt/clicktower /opt/clicktower
ENV PATH=/opt/clicktower/bin:$PATH
USER 10001
WORKDIR /data
ENTRYPOINT ["clicktower"]
CMD ["--help"]
