# Training: train, sweep, evaluate, combine, explain, alone or as the head and the workers of a Ray cluster. Carries
# clicktower[train]: no Beam, no Prefect.
#
#   docker build -f deploy/containers/train.Dockerfile -t clicktower-train .                        CPU, the last stage
#   docker build -f deploy/containers/train.Dockerfile --target gpu -t clicktower-train:gpu .       CUDA, some 6 GB more
#   docker run --rm -v "$PWD/store:/data/store" clicktower-train train --shards /data/store/build/DIGEST --into /data/store
#
# With `--build-arg EXTRAS=s3` (gcs, azure, mlflow; several by commas) the store may be there too.
#
# The compiled kernel is built once, in a stage of its own, and chooses its instructions (AVX-512, AVX2, plain) where it
# runs: an image built on one machine serves another.
#
# Not run: no image was ever built from this file, for want of a Docker engine, and PyTorch's own index (below) could not
# be reached. Run: BuildKit's parser (v0.34.2) and hadolint 2.15.1; this extra installed under constraints.txt into an
# empty environment (5.7 GB with torch's CUDA libraries), and train, evaluate and explain there.

# hadolint global ignore=DL3008
# (DL3008: Debian's archive keeps one version of a package at a time, so a pinned one fails within weeks.)
FROM python:3.11-slim-bookworm AS source
RUN apt-get update && apt-get install --no-install-recommends --yes g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
RUN python -m venv /opt/clicktower
ENV PATH=/opt/clicktower/bin:$PATH
COPY . .
# Built apart, and its presence proved: an optional extension that fails to build would only make training slower.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && python -m zipfile --list /wheels/clicktower-*.whl >/wheels/list && grep --quiet _kernel /wheels/list

FROM source AS build-gpu
ARG EXTRAS=
RUN pip install --no-cache-dir --constraint constraints.txt "$(echo /wheels/clicktower-*.whl)[train${EXTRAS:+,$EXTRAS}]"

FROM source AS build-cpu
ARG EXTRAS=
# torch first and from PyTorch's index, which has it without CUDA; the version is that of constraints.txt.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' constraints.txt)" \
    && pip install --no-cache-dir --constraint constraints.txt "$(echo /wheels/clicktower-*.whl)[train${EXTRAS:+,$EXTRAS}]"

# wget and bash are what KubeRay's probes and start commands call.
FROM python:3.11-slim-bookworm AS base
RUN apt-get update && apt-get install --no-install-recommends --yes wget && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home clicktower && install -d -o clicktower /data
ENV PATH=/opt/clicktower/bin:$PATH RAY_USAGE_STATS_ENABLED=0 OMP_WAIT_POLICY=passive
USER 10001
WORKDIR /data
ENTRYPOINT ["clicktower"]
CMD ["--help"]

# Triton compiles its kernels when they first run, and wants a C compiler for that.
FROM base AS gpu
USER 0
RUN apt-get update && apt-get install --no-install-recommends --yes gcc libc6-dev && rm -rf /var/lib/apt/lists/*
USER 10001
COPY --from=build-gpu /opt/clicktower /opt/clicktower

FROM base AS cpu
COPY --from=build-cpu /opt/clicktower /opt/clicktower
