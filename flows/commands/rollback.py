"""clicktower rollback"""

from flows.show import console, present


def rollback(*, to: str, release: str | None = None, json: bool = False) -> None:
    """Make the release live again that was before, or any that is kept.

    Nothing is encoded or copied: every byte of the release is checked, and the
    pointer is swapped in one step. Rolling back twice is back where it began.

        clicktower rollback --to release
        clicktower rollback --to release --release DIGEST

    Parameters
    ----------
    to
        Where releases live, as given to `publish`.
    release
        The digest of a release that `clicktower releases` lists, a candidate
        too. Without it: the one that was live before.
    json
        Print the result as one JSON object.
    """
    from flows.releases.kept_releases import rollback as run

    result = run(to, release=release)
    console.emit(result.to_json(), json, present.stage_with_details)
