"""`clicktower`: the command line. Each subcommand lives in flows/commands and is imported only when it runs."""

# A signal amid the import of `decimal`, and the interpreter prints a warning of its own when Beam imports it again.
import decimal  # noqa: F401
import gc
import os
import select
import sys
from collections.abc import Sequence
from functools import cache, partial
from io import TextIOWrapper
from signal import SIGINT, SIGPIPE, Signals
from typing import IO

import cyclopts
from cyclopts import App, CycloptsError, UnknownOptionError

from clicktower.flows.config.commands import COMMANDS, OPTIONS, call_command, function_of
from clicktower.schemas.errors import UsageError
from clicktower.schemas.process import asked_to_end_by, end_at_signals, end_process, signals_raising, use_scratch

HELP = """Turn a search engine's click log into sentence embeddings that rank.

To begin:

    clicktower doctor               can this machine run it, and how fast a path will training take?
    clicktower demo                 the whole way on a simulated log, in minutes
    clicktower check logs/          look at your log before you run
    clicktower run pipeline.toml    the same on your data
    clicktower search --release release "angle bracket"

The stages, in order: ingest, build, train, evaluate, publish. Each runs alone,
answers "reused" when its result is there already, and prints one JSON object
with --json. Exit code: 0 done or reused, 1 failed, 2 wrong usage.
"""


def build_app(command: str) -> App:
    """The command line. The one-line helps above list the commands without importing them; `command` shows its own."""
    app = App(
        name="clicktower",
        help=HELP,
        help_format="markdown",
        version_flags=["--version"],
        default_parameter=cyclopts.Parameter(negative=()),
        suppress_keyboard_interrupt=False,  # `run` explains what an interrupt leaves
    )
    for order, (name, entry) in enumerate(COMMANDS.items()):
        where, shown = f"clicktower.{function_of(name)}", None if name == command else entry.help
        app.command(where, name=name, help=shown, sort_key=order)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its code; without `argv` that of this process, which ends with it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command, json = _command(arguments), "--json" in arguments
    try:
        if command != "serve":  # it answers what it has taken on
            end_at_signals(partial(_say_ended, command, json))
        entry = COMMANDS.get(command)
        if argv is None and entry and (entry.on_engine or entry.without_pandas):
            from clicktower.beam_jobs import keep_out_unused_imports

            keep_out_unused_imports()
        use_scratch()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a terminal that is not UTF-8 shows ? for what it cannot show
                stream.reconfigure(errors="replace")
        gc.set_threshold(20_000)  # a command keeps its imports: fewer collections save 0.1 s
        code = run(arguments)
        gc.freeze()  # otherwise the interpreter scans all objects of Beam and torch once more: 0.3 s
    except (KeyboardInterrupt, SystemExit):
        code = _ended(command, json)
    end_process(code)


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code, which is that of SIGPIPE if nobody reads what it prints (`... | head`)."""
    try:
        return _run(arguments)
    except BrokenPipeError:
        for stream in _unread_streams():  # the interpreter flushes them at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 128 + SIGPIPE


def _run(arguments: list[str]) -> int:
    command, json = _command(arguments), "--json" in arguments
    with signals_raising():
        try:
            if arguments[1:] == ["--json", OPTIONS]:  # as submit calls it
                result = call_command(command, sys.stdin.read())
            else:
                words = _engine_options(arguments)
                if command in ("check", "ingest"):  # `-` is the name of its file: cyclopts takes it for an option
                    words = ["/dev/stdin" if word == "-" else word for word in words]
                app = build_app(command)
                result = app(words, exit_on_error=False, print_error=False, result_action="return_value")
            return result if isinstance(result, int) else 0
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _unread_streams():
                raise
            if asked_to_end_by():
                return _ended(command, json)
            from clicktower.flows.show.failures import report_error  # what a command loads that fails

            if not isinstance(error, CycloptsError):
                return report_error(error, command, json)
            fix = f"See `{' '.join(['clicktower', *[command] * (command in COMMANDS), '--help'])}`."
            if isinstance(error, UnknownOptionError) and command in COMMANDS and not COMMANDS[command].on_engine:
                fix += " Text that begins with - stands at the end, behind a bare `--`."
            return report_error(UsageError(" ".join(str(error).split()), fix), command, json)
        except (KeyboardInterrupt, SystemExit):
            return _ended(command, json)


def _ended(command: str, json: bool) -> int:
    """The exit code after a signal. Raises the current exception if there was none."""
    number = asked_to_end_by() or (SIGINT if isinstance(sys.exception(), KeyboardInterrupt) else None)
    if number is None:
        raise
    _say_ended(command, json, number)
    return 128 + number


@cache  # a command that says so once may still take too long to end
def _say_ended(command: str, json: bool, number: Signals) -> None:
    from clicktower.flows.show.failures import report_end

    report_end(number, command, json)


def _unread_streams() -> list[IO[str]]:
    """Those of stdout and stderr that are pipes which nobody reads."""
    poll, by_number = select.poll(), {stream.fileno(): stream for stream in (sys.stdout, sys.stderr) if stream}
    for number in by_number:
        poll.register(number, 0)  # for errors alone
    return [by_number[number] for number, _ in poll.poll(0)]


def _command(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def _engine_options(arguments: list[str]) -> list[str]:
    """What follows a bare `--` belongs to the engine, not to us; of a command without one it is text, not options."""
    command = COMMANDS.get(_command(arguments))
    at = arguments.index("--") if "--" in arguments and command and command.on_engine else len(arguments)
    return arguments[:at] + [f"--beam-options={option}" for option in arguments[at + 1 :]]


if __name__ == "__main__":
    main()
