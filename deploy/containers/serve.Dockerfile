# Publishing and searching: publish, search and the search service. Carries clicktower[serve]: no Beam, no Prefect.
#
#   docker build -f deploy/containers/serve.Dockerfile -t clicktower-serve .
#   docker run --rm -p 127.0.0.1:8080:8080 -v "$PWD/release:/data/release:ro" clicktower-serve
#
# With `--build-arg EXTRAS=s3` (gcs, azure; several by commas) the release may be there too.
#
# Not run: no image was ever built from this file, for want of a Docker engine.
# Run: BuildKit's parser (v0.34.2) and hadolint 2.15.1; this extra installed under constraints.txt into an empty
# environment (6.0 GB with torch's CUDA libraries), and search there; publish with the packages of [publish] alone
# (tests/deploy/test_extras.py).

# hadolint global ignore=DL3008
# (DL3008: Debian's archive keeps one version of a package at a time, so a pinned one fails within weeks.)
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install --no-install-recommends --yes g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
RUN python -m venv /opt/clicktower
ENV PATH=/opt/clicktower/bin:$PATH
COPY . .
ARG EXTRAS=
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' constraints.txt)" \
    && pip install --no-cache-dir --constraint constraints.txt ".[serve${EXTRAS:+,$EXTRAS}]"

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home clicktower && install -d -o clicktower /data
COPY --from=build /opt/clicktower /opt/clicktower
ENV PATH=/opt/clicktower/bin:$PATH OMP_WAIT_POLICY=passive
USER 10001
WORKDIR /data
EXPOSE 8080
ENTRYPOINT ["clicktower"]
# All interfaces of the container; publish the port to this machine's loopback alone, as above, unless you mean more.
CMD ["serve", "--release", "/data/release", "--host", "0.0.0.0", "--port", "8080"]
