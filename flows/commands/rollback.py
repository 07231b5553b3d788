"""clicktower rollback"""

from flows.show import console, present


def rollback(*, to: str, release: str | None = None, json: bool = False) -> None:
    """Make the previous release live again, or any that is kept.

    Nothing is encoded or copied: every byte of the release is checked, and the
    pointer is swapped in one step. Rolling back twice returns to the start.

        clicktower rollback --to release
        clicktower rollback --to release --release DIGEST

    Parameters
    ----------
    to
        The folder or URI of the releases, as given to `publish`.
    release
        The digest of a release or candidate that `clicktower releases` lists; by
        default the release that was live before.
    json
        Print the result as one JSON object.
    """
    from flows.releases.kept_releases import rollback as run

    result = run(to, release=release)
    console.emit(result.to_json(), json, present.stage_with_details)
