"""clicktower simulate"""

from flows.config.toml_file import with_fields
from flows.show import console, present


def simulate(
    out: str, *, searches: int = 30_000, seed: int = 0, set: list[str] | None = None, json: bool = False
) -> None:
    """Make a search log with known truth: documents, searches, clicks, bots, noise, judgments.

    Everything made from it is labelled simulated.

        clicktower simulate demo-data --searches 100000 --seed 7

    Parameters
    ----------
    out
        A new folder for the log, the documents, the judgments and the truth (grades, bots, the fate of each line).
    searches
        The number of searches by people and bots; the log has about ten lines per search.
    seed
        The same seed makes the same bytes.
    set
        field=value for any field of the simulation's settings; may be repeated.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from flows.simulation import SimulationConfig
    from flows.simulation import simulate as run

    config = with_fields(SimulationConfig(), [f"num_searches={searches}", f"seed={seed}", *(set or [])])
    with console.progress_bar("simulate") as progress:
        result = run(out, config=config, progress=progress)
    console.emit({"stage": "simulate", **result}, json, present.simulated)
