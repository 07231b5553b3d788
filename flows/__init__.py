"""When and where the stages run: the Prefect DAG, the command line, publishing and search."""
