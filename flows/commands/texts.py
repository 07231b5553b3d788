"""clicktower texts"""

from flows.show import console


def texts(*, shards: str, to: str, json: bool = False) -> None:
    """Write the texts that training meets, for your own teacher to encode.

    Give each text a vector with any encoder, a transformer or a service, as a
    second column `vector`, and train towers to rank like it:

        clicktower texts --shards store/build/DIGEST --to texts.parquet
        clicktower train --shards store/build/DIGEST --teacher vectors.parquet --into store

    docs/model.md ("A teacher") shows the code in between. The texts are those of
    the shards, behind the privacy gate: released queries and your titles.

    Parameters
    ----------
    shards
        The folder that `build` printed.
    to
        The Parquet file to write, with a column `text`: each text once. A file that
        exists is not overwritten.
    json
        Print the result as one JSON object.
    """
    from training.data.shard_folder import write_texts

    number = write_texts(shards, to)
    console.emit(
        {"texts": number, "path": to},
        json,
        lambda _: console.output.print(f"[green]✓[/] {number:,} texts in {console.plain(to)}"),
    )
