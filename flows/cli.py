"""`clicktower`: the command line. Each subcommand lives in flows/commands and is imported only when it runs."""

import gc
import os
import sys
from collections.abc import Sequence

import cyclopts
from cyclopts import App, CycloptsError

from schemas.process import use_scratch

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

COMMANDS = {
    "demo": "Simulate a log and run everything from it to a searchable release.",
    "run": "Run the whole pipeline that a TOML file describes.",
    "backfill": "Run it for a range of dates: missed nights, or the past.",
    "simulate": "Make a search log with known truth, labelled simulated.",
    "check": "Report what a log contains and what looks wrong with it, from a sample.",
    "ingest": "Read a search log into a private daily aggregate.",
    "build": "Turn days and documents into training shards, behind the privacy gate.",
    "build-labelled": "Turn labelled pairs or texts into shards, with no sentence on both sides of the split.",
    "texts": "Write the texts that training meets, for your own teacher to encode.",
    "train": "Train the twin towers on shards.",
    "combine": "Make an ensemble of trained models.",
    "sweep": "Train many variants of a recipe, and rank them on held-out data.",
    "judgments": "Derive graded judgments from the clicks of a later period.",
    "pool": "Make a sheet of several systems' best documents for people to judge, and qrels from sheets.",
    "evaluate": "Evaluate a model by NDCG, compared with BM25 and a random order.",
    "evaluate-labelled": "Evaluate a model on labelled pairs or texts, compared with lexical baselines.",
    "compare": "Compare all rows of the paper's table on your data, with intervals and tests.",
    "publish": "Encode all documents into a release and make it the live one.",
    "releases": "List the releases that are kept: which is live, and why a candidate is not.",
    "rollback": "Make the previous release live again, or any that is kept.",
    "export": "Export the live release as Parquet, for OpenSearch, or as a TREC run.",
    "explain": "Show what a recurrent model reads in a text: keywords, traces of every gate.",
    "search": "Rank the documents of the live release for a query.",
    "serve": "Answer searches over HTTP from the live release, with a search page.",
    "encode": "Turn lines of text into vectors.",
    "erase": "Erase people, on their request, from the private days of a store.",
    "verify": "Check every byte of an output against its manifest.",
    "doctor": "Report whether this machine can run everything, which path training takes, and what to fix.",
}

# The files in flows/commands that hold several commands; any other command has a file of its name.
FILES = {
    "pipelines": ("demo", "run", "backfill"),
    "preprocess": ("simulate", "ingest", "erase", "build", "build-labelled", "judgments"),
    "train_and_evaluate": ("train", "texts", "combine", "evaluate", "evaluate-labelled", "encode"),
    "publish_and_serve": ("publish", "releases", "rollback", "verify", "export", "search", "serve"),
}

# What they run is Beam and Arrow, in a process of their own.
ONLY_BEAM = frozenset({"ingest", "build", "build-labelled", "judgments"})


def build_app(command: str) -> App:
    """The command line. The one-line helps above list the commands without importing them; `command` shows its own."""
    app = App(
        name="clicktower",
        help=HELP,
        help_format="markdown",
        version_flags=["--version"],
        default_parameter=cyclopts.Parameter(negative=()),
        suppress_keyboard_interrupt=False,  # `run` says what an interrupt leaves
    )
    file_of = {name: file for file, names in FILES.items() for name in names}
    for order, (name, line) in enumerate(COMMANDS.items()):
        where = f"flows.commands.{file_of.get(name, name)}:{name.replace('-', '_')}"
        app.command(where, name=name, help=None if name == command else line, sort_key=order)
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its code; without `argv` that of this process, which ends with it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None and _command(arguments) in ONLY_BEAM:
        from beam_jobs import keep_out_unused_imports

        keep_out_unused_imports()
    use_scratch()
    gc.set_threshold(20_000)  # what a command imports stays: looked through less often, that is 0.1 s
    code = run(arguments)
    gc.freeze()  # or else the interpreter looks through all that Beam and torch are made of once more: 0.3 s
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code."""
    from flows.show.console import report_error

    command = _command(arguments)
    json = "--json" in arguments
    try:
        result = build_app(command)(
            _engine_options(arguments), exit_on_error=False, print_error=not json, result_action="return_value"
        )
    except CycloptsError as error:
        if json:
            from schemas.errors import UsageError

            plain = " ".join(str(error).split())
            return report_error(
                UsageError(
                    asked=f"clicktower {command} was called", found=plain, do=f"see `clicktower {command} --help`"
                ),
                command,
                json,
            )
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was finished is kept, and the same command continues from there\n")
        return 130
    except BrokenPipeError:  # `clicktower search ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return report_error(error, command, json)
    return result if isinstance(result, int) else 0


def _command(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def _engine_options(arguments: list[str]) -> list[str]:
    """What follows a bare `--` belongs to the engine, not to us."""
    if "--" not in arguments:
        return arguments
    at = arguments.index("--")
    return arguments[:at] + [f"--beam-options={option}" for option in arguments[at + 1 :]]


if __name__ == "__main__":
    main()
