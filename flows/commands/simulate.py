"""clicktower simulate, demo: a log with known truth, and all stages on it."""

from importlib import resources
from pathlib import Path

from clicktower.flows.commands.options import Json, Seed, Set
from clicktower.flows.commands.pipelines import run_locally
from clicktower.flows.config.toml_file import with_options
from clicktower.flows.show import console, present
from clicktower.flows.submit import run_stage_command


def simulate(
    out: str, *, searches: int | None = None, seed: int | None = None, set: Set = None, json: Json = False
) -> None:
    """Make a search log with known truth: documents, searches, clicks, bots, noise, judgments.

    Everything made from it is labelled simulated.

        clicktower simulate demo-data --searches 100000 --seed 7

    Args:
        out: A new folder for the log, the documents, the judgments and the truth (who searched, the fate of each line).
        searches: The number of searches by people and bots, by default 30,000; the log has about ten lines per search.
        seed: The same seed makes the same bytes; by default 0.
    """
    from clicktower.flows.simulation import write_simulation
    from clicktower.flows.simulation.simulation_config import SimulationConfig

    config = with_options(SimulationConfig(), {"num_searches": searches, "seed": seed}, set)
    with console.progress_bar("simulate") as progress:
        result = write_simulation.simulate(out, config=config, progress=progress)
    console.emit({"stage": "simulate", **result}, json, present.stage_with_details)


def demo(*, work: str = "clicktower-demo", searches: int = 30_000, seed: Seed = 0, json: Json = False) -> None:
    """Simulate a log and run everything, up to a searchable release and a report,
    in minutes.

    Beam and two training workers really run, on this machine; only the log
    is simulated, and everything made from it says so. A second run reuses what is
    there.

        clicktower demo --work clicktower-demo

    Args:
        work: Folder for the simulated data, the store, the release and the report.
        searches: Size of the simulated log.
        seed: The seed of the simulated shop.
    """
    folder = Path(work)
    folder.mkdir(parents=True, exist_ok=True)
    simulated = run_stage_command("simulate", {"out": str(folder / "data"), "searches": searches, "seed": seed})
    present.stage_result(simulated)
    config = folder / "pipeline.toml"
    config.write_bytes((resources.files("clicktower.flows.commands") / "demo.toml").read_bytes())
    results = {"simulate": simulated, **run_locally(str(config))}
    console.emit(present.run_json("demo", results), json, present.run_results)
