"""Errors for users. Each says what is wrong and what to do."""

import errno


class StageError(Exception):
    """A stage failed (exit code 1).

    `problem` says in one or two sentences what is wrong with which value, `fix` says in one imperative what to do;
    `str(error)` is both. Neither may quote log text: a rejected line is identified by file, offset and reason.
    """

    exit_code = 1

    def __init__(self, problem: str, fix: str) -> None:
        self.problem, self.fix = problem, fix
        super().__init__(problem, fix)

    def __str__(self) -> str:
        return f"{self.problem} {self.fix}"


class UsageError(StageError):
    """The request itself is wrong: an option out of range, a missing file (exit code 2)."""

    exit_code = 2


class Diverged(StageError):
    """Training diverged: its numbers are no longer finite. The same request would end in the same way."""


class StoppedEarly(StageError):
    """Training stopped early, as requested: its checkpoint is kept, and the same request continues from it."""


class JobGoesOn(StageError):
    """An engine's job is out of reach or belongs to another process: its output folder must stay, since the job
    commits.
    """


class TransientError(StageError):
    """A failure of the environment: an engine was lost, a disk was full, a signal ended the stage.

    The request is fine, so it may succeed later: a scheduler retries it.
    """


class LostSight(JobGoesOn, TransientError):
    """An engine's job is out of sight. The same request waits for it, so a scheduler retries it."""


class UnknownVersionError(StageError):
    """A file has an unknown major version; it was not read."""


class LaterVersionError(UnknownVersionError):
    """A later version wrote a file. It is no damage, and nothing is made in its place."""


def require_major(what: str, found: object, known: str, *, stage: str = "") -> None:
    """Refuse a file whose major version differs from `known` ("1.2"); any minor version passes.

    `stage`: the command that makes such a file. Raises UnknownVersionError, LaterVersionError for a later one.
    """
    major, ours = str(found).split(".")[0], known.split(".")[0]
    if major == ours:
        return
    problem = f"{what} has version {found!s}; this clicktower reads version {known}."
    if major.isdigit() and int(major) > int(ours):
        raise LaterVersionError(problem, "Upgrade clicktower.")
    raise UnknownVersionError(problem, f"Make it again with {f'`clicktower {stage}`' if stage else 'this clicktower'}.")


# Errors that a person has to fix: retrying does not help.
_LASTING = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EFBIG,
}  # fmt: skip


def os_error_kind(error: OSError) -> type[StageError]:
    """The error class: TransientError if a retry may help (a failed disk or connection), otherwise StageError."""
    return StageError if error.errno in _LASTING else TransientError


def place(error: BaseException) -> str:
    """Where an error was raised, module:line, without its message, which may quote data."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace else "an unknown place"
