"""The packages lie beside `clicktower` in the repository, and in it once installed. pyproject.toml has the rest."""

from setuptools import find_packages, setup

BESIDE = ("schemas", "beam_jobs", "training", "flows")
DATA = ("schemas.golden", "schemas.content_lists", "flows.serve.static")  # folders without code

setup(
    packages=[
        "clicktower",
        *(f"clicktower.{name}" for name in (*find_packages(), *DATA) if name.split(".")[0] in BESIDE),
    ],
    package_dir={f"clicktower.{name}": name for name in BESIDE},
)
