"""Where things run: the only reader of environment variables. Nothing here changes a result."""

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Set as CLICKTOWER_NAME in the environment.

    debug: show the traceback of an unexpected error. It may quote data, so it is off unless asked for.
    engines: where `make engines` put Prism and Flink.
    """

    model_config = SettingsConfigDict(env_prefix="CLICKTOWER_", frozen=True)

    debug: bool = False
    engines: str = str(Path(__file__).resolve().parent.parent / ".engines")
