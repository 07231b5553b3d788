"""Where things run: the only reader of environment variables. Nothing here changes a result."""

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Set as CLICKTOWER_NAME in the environment.

    debug: show the traceback of an unexpected error. It may quote data, so it is off by default. engines: where `make
    engines` put Prism, Flink and an S3 server.
    """

    model_config = SettingsConfigDict(env_prefix="CLICKTOWER_", frozen=True)

    debug: bool = False
    engines: str = str(Path(__file__).resolve().parents[2] / ".engines")


class Surroundings(BaseSettings):
    """Environment variables of Ray and Prefect that determine where things run."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    ray_address: str = ""
    prefect_api_url: str = ""
    prefect_home: str = ""
