"""The contracts between stages: log rows, words and trigrams, day, shard, judgments, release, manifest."""

import os

# No engine that this package uses or starts sends usage reports, unless the user enables them. Set here, because every
# module of ours imports this package before any engine.
for _name, _value in {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}.items():
    os.environ.setdefault(_name, _value)
