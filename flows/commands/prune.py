"""clicktower prune: what a store need not keep."""

from clicktower.flows.commands.options import Json, Positive
from clicktower.flows.show import console, store_results


def prune(
    store: str,
    *,
    release: list[str] | None = None,
    keep_days: Positive = 90,
    keep_models: Positive = 5,
    dry_run: bool = False,
    json: Json = False,
) -> None:
    """Remove from a store the days past their retention, old models with their shards
    and evaluations, and what dead processes left half-made.

    The models of all releases stay, and the newest of the others; so does what a
    running stage reads, what was made within a day, and what only a person makes:
    sweeps, ensembles, imported encoders, judgments. With a day go the hashes of its
    people. It may run beside everything else, and be killed and repeated.

        clicktower prune store --release release --dry-run
        clicktower prune store --release release --keep-days 90 --keep-models 5

    Args:
        store: The store: a folder or URI that holds the output of all stages.
        release: A URI of releases whose models stay; may be repeated. Without it none is known.
        keep_days: How many days of the log stay, up to today.
        keep_models: How many models stay besides those of releases.
        dry_run: Show what would go and remove nothing.
    """
    from clicktower.flows.config.guard_rules import KeepRules
    from clicktower.flows.retention import prune as remove

    rules = KeepRules(days=keep_days, models=keep_models)
    result = remove(store, rules, releases=release or (), dry_run=dry_run)
    console.emit(result.to_json(), json, store_results.pruning)
