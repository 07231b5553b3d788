"""`clicktower`: the command line. Each subcommand lives in flows/commands and is imported only when it runs."""

# A signal amid the import of `decimal`, and the interpreter prints a warning of its own when Beam imports it again.
import decimal  # noqa: F401
import gc
import os
import sys
from collections.abc import Sequence
from functools import cache, partial
from io import TextIOWrapper
from signal import SIGINT, Signals

import cyclopts
from cyclopts import App, CycloptsError

from clicktower.schemas.process import asked_to_end_by, end_at_signals, signals_raising, use_scratch

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

# The file in flows/commands that holds a command, and what the command does.
COMMANDS = {
    "demo": ("pipelines", "Simulate a log and run everything from it to a searchable release."),
    "run": ("pipelines", "Run the whole pipeline that a TOML file describes."),
    "backfill": ("pipelines", "Run it for a range of dates: missed nights, or the past."),
    "simulate": ("preprocess", "Make a search log with known truth, labelled simulated."),
    "check": ("check", "Report what a log contains and what looks wrong with it, from a sample."),
    "ingest": ("preprocess", "Read a search log into a private daily aggregate."),
    "build": ("preprocess", "Turn days and documents into training shards, behind the privacy gate."),
    "build-labelled": ("preprocess", "Turn labelled pairs or texts into shards, split so that no sentence leaks."),
    "texts": ("train_and_evaluate", "Write the texts that training meets, for your own teacher to encode."),
    "train": ("train_and_evaluate", "Train the twin towers on shards."),
    "import-encoder": ("train_and_evaluate", "Bring a transformer, to stand in the place of a model or beside one."),
    "combine": ("train_and_evaluate", "Make an ensemble of models."),
    "sweep": ("sweep", "Train many variants of a recipe, and rank them on held-out data."),
    "judgments": ("preprocess", "Derive graded judgments from the clicks of a later period."),
    "evaluate": ("train_and_evaluate", "Evaluate a model by NDCG, compared with BM25 and a random order."),
    "evaluate-labelled": ("train_and_evaluate", "Evaluate a model on labelled texts, beside lexical baselines."),
    "compare": ("compare", "Compare all rows of the paper's table on your data, with intervals and tests."),
    "publish": ("publish_and_serve", "Encode all documents into a release and make it the live one."),
    "releases": ("publish_and_serve", "List the releases that are kept: which is live, and why a candidate is not."),
    "rollback": ("publish_and_serve", "Make the previous release live again, or any that is kept."),
    "export": ("publish_and_serve", "Export the live release as Parquet, for OpenSearch, a hub or trec_eval."),
    "explain": (
        "explain",
        "Show what makes the score of a query and a title, or what a recurrent model reads in a text.",
    ),
    "nearest-words": ("explain", "List the nearest words of a word, by Doc2Vec or by a trained tower."),
    "search": ("publish_and_serve", "Rank the documents of the live release for a query."),
    "serve": ("publish_and_serve", "Answer searches over HTTP from the live release, with a search page."),
    "preference": ("publish_and_serve", "Say which of two interleaved releases people prefer, from their clicks."),
    "encode": ("train_and_evaluate", "Turn lines of text into vectors."),
    "erase": ("preprocess", "Erase people, on their request, from the private days of a store."),
    "prune": ("prune", "Remove old days and models, and what dead processes left, from a store."),
    "verify": ("publish_and_serve", "Check every byte of an output against its manifest."),
    "settings": ("settings", "List every setting of a command, with its type, default and meaning."),
    "doctor": ("doctor", "Report whether this machine can run everything, which path training takes, and what to fix."),
}

# They run Beam and Arrow, in a process of their own.
ONLY_BEAM = frozenset({"ingest", "build", "build-labelled", "judgments"})


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
    for order, (name, (file, line)) in enumerate(COMMANDS.items()):
        where = f"clicktower.flows.commands.{file}:{name.replace('-', '_')}"
        app.command(where, name=name, help=None if name == command else line, sort_key=order)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its code; without `argv` that of this process, which ends with it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command, json = _command(arguments), "--json" in arguments
    if command != "serve":  # it answers what it has taken on
        end_at_signals(partial(_say_ended, command, json))
    try:
        if argv is None and command in ONLY_BEAM:
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
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code."""
    from clicktower.flows.show.console import report_error

    command = _command(arguments)
    json = "--json" in arguments
    with signals_raising():
        try:
            result = call(arguments)
            return result if isinstance(result, int) else 0
        except CycloptsError as error:
            from clicktower.schemas.errors import UsageError

            see = " ".join(["clicktower", *[command] * (command in COMMANDS), "--help"])
            return report_error(UsageError(" ".join(str(error).split()), f"See `{see}`."), command, json)
        except BrokenPipeError:  # `clicktower search ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            return _ended(command, json) if asked_to_end_by() else report_error(error, command, json)
        except (KeyboardInterrupt, SystemExit):
            return _ended(command, json)


def call(arguments: list[str]) -> object:
    """What a command's function returns for a command line. Raises what it raises, and CycloptsError."""
    command = _command(arguments)
    words = _engine_options(_standard_input(command, arguments))
    return build_app(command)(words, exit_on_error=False, print_error=False, result_action="return_value")


def _ended(command: str, json: bool) -> int:
    """The exit code after a signal. Raises the current exception if there was none."""
    number = asked_to_end_by() or (SIGINT if isinstance(sys.exception(), KeyboardInterrupt) else None)
    if number is None:
        raise
    _say_ended(command, json, number)
    return 128 + number


@cache  # a command that says so once may still take too long to end
def _say_ended(command: str, json: bool, number: Signals) -> None:
    from clicktower.flows.show.console import report_end

    report_end(number, command, json)


def _command(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def _standard_input(command: str, arguments: list[str]) -> list[str]:
    """`-` for a log by the name of its file: cyclopts takes it for an option."""
    if command not in ("check", "ingest"):
        return arguments
    return ["/dev/stdin" if word == "-" else word for word in arguments]


def _engine_options(arguments: list[str]) -> list[str]:
    """What follows a bare `--` belongs to the engine, not to us."""
    if "--" not in arguments:
        return arguments
    at = arguments.index("--")
    return arguments[:at] + [f"--beam-options={option}" for option in arguments[at + 1 :]]


if __name__ == "__main__":
    main()
