"""The packages lie beside `clicktower` in the repository, and in it once installed. pyproject.toml has the rest."""

from setuptools import find_namespace_packages, setup

BESIDE = ("schemas", "beam_jobs", "training", "flows")
FOLDERS = find_namespace_packages(include=[*BESIDE, *(f"{name}.*" for name in BESIDE)])

setup(
    packages=["clicktower", *(f"clicktower.{name}" for name in FOLDERS)],
    package_dir={f"clicktower.{name}": name for name in BESIDE},
)
