"""Where things run: the only reader of environment variables. Nothing here changes a result."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Set as CLICKTOWER_NAME in the environment.

    debug: show the traceback of an unexpected error. It may quote data, so it is off unless asked for.
    ray_address: an existing Ray cluster to train on; empty starts one on this machine for the run.
    """

    model_config = SettingsConfigDict(env_prefix="CLICKTOWER_", frozen=True)

    debug: bool = False
    ray_address: str = ""
