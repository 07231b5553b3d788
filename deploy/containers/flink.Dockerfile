# What preprocessing on a Flink cluster needs beside the beam image. Two images; deploy/kubernetes/flink.yaml uses both:
#
#   docker build -f deploy/containers/beam.Dockerfile -t clicktower-beam .
#   docker build -f deploy/containers/flink.Dockerfile --target cluster -t clicktower-flink .
#   docker build -f deploy/containers/flink.Dockerfile --target submit -t clicktower-flink-submit .
#
# cluster: Flink 1.19 with Beam's jars on its own class path, so that the steps of a job share their Python workers.
# submit: the beam image with Java and Beam's job server, which the command starts for one job.
#
# Not run: no image was ever built from this file, for want of a Docker engine.
# Run: BuildKit's parser (v0.34.2) and hadolint 2.15.1; deploy/engines/install.py makes the same jars for every test run.

# hadolint global ignore=DL3002,DL3006,DL3008
# (DL3002: the first stage is thrown away. DL3006: clicktower-beam is one you build. DL3008: Debian's archive keeps one
# version of a package at a time, so a pinned one fails within weeks.)
FROM clicktower-beam AS jars
USER 0
RUN apt-get update && apt-get install --no-install-recommends --yes maven
COPY deploy/engines /source/deploy/engines
RUN python /source/deploy/engines/install.py /opt/engines flink-job-server

FROM flink:1.19.3-scala_2.12-java17 AS cluster
COPY --from=jars /opt/engines/flink-job-server/lib /opt/flink/lib

FROM clicktower-beam AS submit
USER 0
RUN apt-get update && apt-get install --no-install-recommends --yes openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=jars /opt/engines/flink-job-server /opt/engines/flink-job-server
ENV CLICKTOWER_ENGINES=/opt/engines
USER 10001
