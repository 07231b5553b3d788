"""When and where stages run: the Prefect DAG, the command line, publishing and search."""

import schemas  # noqa: F401  # before any engine: it says what engines are to tell their makers
