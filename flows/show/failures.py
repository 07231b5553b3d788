"""A command that fails or is ended: one readable paragraph for a person, or with `json` an object for a program."""

import errno
import json as json_module
import sys
from io import UnsupportedOperation
from signal import SIGINT, Signals

from clicktower.flows.config.commands import COMMANDS
from clicktower.flows.show.console import errors, plain
from clicktower.schemas.errors import StageError, TransientError, UsageError, os_error_kind, place


def report_error(error: BaseException, stage: str, json: bool) -> int:
    """Tell a person, or with `json` a program, what went wrong; returns the exit code. No traceback unless
    requested.
    """
    facts = missing_package(error, stage) or explain(error)
    if json:
        kind = type(facts).__name__  # a scheduler retries only a TransientError
        value = {"kind": kind, "problem": facts.problem, "fix": facts.fix}
        sys.stdout.write(json_module.dumps({"stage": stage, "error": value}, ensure_ascii=False) + "\n")
    else:
        errors.print(f"[bold red]clicktower {stage}:[/] {plain(str(facts))}", soft_wrap=True)
    if error.__traceback__:  # there is none if the command line itself is wrong
        from clicktower.flows.config.settings import Settings  # loads longer than everything else in a short command

        if Settings().debug:
            errors.print_exception()
    return facts.exit_code


def report_end(number: Signals, stage: str, json: bool) -> None:
    """Tell a person, or with `json` a program, that a signal ended the command; a scheduler starts it again."""
    cause = "interrupted" if number == SIGINT else f"ended by {number.name}"
    if json:
        problem = f"The stage {stage} was {cause}. What was finished is kept."
        report_error(TransientError(problem, "Run it again: it continues from there."), stage, json)
        sys.stdout.flush()
    else:
        kept = "what was finished is kept, and the same command continues from there"
        sys.stderr.write(f"{cause}; {'the service has ended' if stage == 'serve' else kept}\n")
        sys.stderr.flush()


def explain(error: BaseException) -> StageError:
    """Any error as one that a user can act on."""
    if isinstance(error, StageError):
        return error
    from clicktower.schemas.object_store import store_error

    if of_a_store := store_error(error):
        return of_a_store
    if isinstance(error, UnsupportedOperation):  # a stage reads its inputs twice
        return UsageError("A pipe is where a file should be.", "Write it to a file, and give that.")
    if isinstance(error, IsADirectoryError):
        return UsageError(f"{error.filename or 'A path'} is a folder, and should be a file.", "Check the path.")
    if isinstance(error, OSError) and error.errno in _OS_REASONS:
        problem, fix = _OS_REASONS[error.errno]
        where = f" ({error.filename})" if error.filename else ""
        return os_error_kind(error)(f"{problem}{where}. Nothing half-written is left under a final name.", fix)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":  # Arrow writes no such path
        return UsageError("The name of a file or a folder is not UTF-8.", "Give it another name, in UTF-8.")
    if isinstance(error, MemoryError):
        return StageError(
            f"This machine has not enough memory ({place(error)}). No output was published under a final name.",
            "Ask for smaller sizes, or for fewer processes at once, or use a machine with more memory.",
        )
    kind = os_error_kind(error) if isinstance(error, OSError) else StageError
    return kind(
        f"Something unexpected happened: {type(error).__name__} in {place(error)}. No output was published under a"
        " final name.",
        "Report this defect; CLICKTOWER_DEBUG=1 shows where it is (the trace may quote data).",
    )


_OS_REASONS = {
    errno.ENOSPC: ("The disk is full", "Free some space and run the same command again."),
    errno.EDQUOT: ("The disk quota is used up", "Free some space and run the same command again."),
    errno.EIO: ("The disk reports an input/output error", "Check the disk, then run the same command again."),
    errno.EFBIG: ("A file grew past the limit set for this process", "Raise the limit (ulimit -f) and run again."),
    errno.EACCES: ("Permission is denied", "Check who owns the folder, or choose another."),
    errno.EPERM: ("The operation is not permitted", "Check who owns the folder, or choose another."),
    errno.EROFS: ("The file system is read-only", "Choose a folder that can be written."),
    errno.ENOENT: ("There is no such file", "Check the path."),
    errno.ENOTDIR: ("A part of the path is a file, not a folder", "Check the path."),
    errno.EEXIST: ("A file is where a folder should be", "Choose another folder."),
    errno.ENAMETOOLONG: ("A name in the path is too long", "Check the path."),
    errno.EMFILE: ("Too many files are open", "Raise the limit (ulimit -n) and run again."),
}


EXTRA_OF_PACKAGE = {"tokenizers": "encoders", "mlflow": "mlflow"}  # which a setting needs in any command


def missing_package(error: BaseException, command: str) -> StageError | None:
    """The error that a user can act on, if `error` is about a package that is not installed; None otherwise."""
    at = None if isinstance(error, StageError) else error
    while at is not None:
        package = (at.name or "").partition(".")[0] if isinstance(at, ModuleNotFoundError) else ""
        if package not in ("", "clicktower"):
            extras = (
                EXTRA_OF_PACKAGE.get(package)
                or ",".join(COMMANDS[command].extras if command in COMMANDS else ())
                or "all"
            )
            return StageError(
                f"The package {package}, which `clicktower {command}` needs, is not installed here.",
                f"Install it (pip install 'clicktower[{extras}]'), or run the command where it is installed.",
            )
        at = at.__cause__ or at.__context__
    return None
