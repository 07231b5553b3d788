"""Which of clicktower's extras a command needs, for an image that was given others."""

from schemas.errors import StageError

EVERYTHING = ("beam", "train", "publish", "flows")
NEEDS = {
    "demo": EVERYTHING,
    "run": EVERYTHING,
    "check": ("beam",),
    "ingest": ("beam",),
    "build": ("beam",),
    "build-labelled": ("beam",),
    "judgments": ("beam",),
    "erase": ("beam",),
    "texts": ("train",),
    "train": ("train",),
    "combine": ("train",),
    "sweep": ("train",),
    "evaluate": ("train",),
    "evaluate-labelled": ("train", "compare"),
    "explain": ("train",),
    "compare": ("train", "compare"),
    "publish": ("publish",),
    "search": ("publish",),
    "serve": ("serve",),
    "encode": ("train",),
}
OURS = ("schemas", "beam_jobs", "training", "flows")


def missing_package(error: BaseException, command: str) -> StageError | None:
    """The error that a user can act on, if `error` comes from a package that is not installed; None otherwise."""
    at = None if isinstance(error, StageError) else error
    while at is not None:
        package = (at.name or "").partition(".")[0] if isinstance(at, ModuleNotFoundError) else ""
        if package and package not in OURS:
            extras = ",".join(NEEDS.get(command, ("all",)))
            return StageError(
                asked=f"the command {command} was called",
                found=f"the package {package} is not installed here",
                follows="no output was published under a final name",
                do=f"install it (pip install 'clicktower[{extras}]'), or run the command where it is installed",
            )
        at = at.__cause__ or at.__context__
    return None
