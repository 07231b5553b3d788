"""clicktower verify"""

from flows.show import console
from schemas.errors import StageError


def verify(folder: str, *, json: bool = False) -> None:
    """Check every byte of a stage's output, of a whole store, or of a release.

    Each file is compared with the hash that was recorded when it was made.

        clicktower verify store
        clicktower verify release

    Parameters
    ----------
    folder
        A folder that a stage printed, a store, or a release.
    json
        Print the findings as one JSON object.
    """
    from flows.releases.verify import verify as run

    with console.progress_bar("verify") as progress:
        findings = run(folder, progress=progress)
    if findings:
        raise StageError(
            asked=f"every file of {folder} was compared with its manifest",
            found=f"{len(findings)} do not match: {'; '.join(findings[:10])}",
            follows="what is read from them cannot be believed",
            do="run the stage again (it notices and makes the output anew), or restore the files",
        )
    console.emit(
        {"stage": "verify", "path": folder, "findings": []},
        json,
        lambda _: console.output.print(f"[green]✓[/] every byte of {console.plain(folder)} is as it was written"),
    )
