"""When and where stages run: the Prefect DAG, the command line, publishing and search."""
