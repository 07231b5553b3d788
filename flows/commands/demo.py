"""clicktower demo"""

from flows.show import console, present


def demo(*, work: str = "clicktower-demo", searches: int = 30_000, seed: int = 0, json: bool = False) -> None:
    """Simulate a log and run everything, up to a searchable release and a report,
    in minutes.

    Beam, the trainer and LanceDB really run, on this machine; only the log is
    simulated, and everything made from it says so. A second run reuses what is there.

        clicktower demo --work clicktower-demo

    Parameters
    ----------
    work
        Folder for the simulated data, the store, the release and the report.
    searches
        Size of the simulated log.
    seed
        The seed of the simulated shop.
    json
        Print the results of all stages as one JSON object; progress goes to stderr.
    """
    from flows.demo import run_demo

    results = run_demo(work, searches=searches, seed=seed)
    console.emit(present.as_one("demo", results), json, present.run_results)
