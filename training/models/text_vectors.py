"""Vectors of texts that some other encoder made, to be learnt from (objectives.clicks): any transformer, any service.

A Parquet file with a column `text` and a column `vector` of as many numbers each. Both sides of a comparison are
normalised, so it may hold texts as they were written or as `clicktower texts` lists them; of those that
are one text then, the first counts. Vectors are compared by cosine, whatever their lengths.

Shapes: T texts, D columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.stage import open_result
from schemas.text_contract import normalise_column
from training.ranking.embedding import unit
from training.recipes.objectives import Clicks
from training.recipes.recipe import Recipe
from training.recipes.section import changed

SUFFIX = ".parquet"  # by which such a file differs from a model's folder


@dataclass(frozen=True, kw_only=True, slots=True)
class TextVectors:
    """What a file holds, as teacher asks an encoder for it."""

    path: str
    texts: pa.Array  # normalised
    vectors_TD: np.ndarray  # float32, of length 1 or 0

    @property
    def similarity(self) -> Literal["cosine"]:
        return "cosine"

    @property
    def dimensions(self) -> int:
        return self.vectors_TD.shape[1]

    def encode(self, texts: Sequence[str], side: str, *, empty: str = "zero") -> np.ndarray:
        """The vectors of some normalised texts, float32 [texts, D]; a text is the same on either side.

        Raises UsageError where the file lacks some: they are counted, not shown.
        """
        rows = pc.index_in(pa.array(texts, pa.string()), self.texts)
        if rows.null_count:
            raise UsageError(
                asked=f"the vectors in {self.path} were to teach",
                found=f"{rows.null_count:,} of {len(texts):,} texts ({side}) have none there",
                follows="nothing could be learnt of them",
                do="write the texts with `clicktower texts --shards FOLDER --to texts.parquet`, and give all of them a"
                " vector",
            )
        vectors: np.ndarray = self.vectors_TD[rows.to_numpy()]
        return vectors


def require_text_vectors(path: str) -> None:
    """Raise UsageError for a file that is not there or has other columns. Reads no more than that takes."""
    if not storage.exists(path):
        raise UsageError(
            asked=f"vectors of texts were to be read from {path}",
            found="there is no such file",
            do="check the path; with several machines, give one that each of them sees",
        )
    try:
        with storage.open_read(path) as file:
            schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise _not_such(path, str(error).splitlines()[0][:160]) from None
    kinds = {name: schema.field(name).type for name in ("text", "vector") if name in schema.names}
    if len(kinds) < 2 or not pa.types.is_floating(getattr(kinds["vector"], "value_type", pa.null())):
        has = ", ".join(f"{name} ({kind})" for name, kind in zip(schema.names, schema.types, strict=True))
        raise _not_such(path, f"its columns are {has}")


def read_text_vectors(path: str) -> TextVectors:
    """Raises UsageError for a file that is not there or is none such, StageError for numbers that are not finite."""
    require_text_vectors(path)
    with storage.open_read(path) as file:
        table = pq.read_table(file, columns=["text", "vector"])
    if any(column.null_count for column in table.columns):
        raise _not_such(path, "some rows have no text or no vector")
    texts, vectors = normalise_column(table["text"].cast(pa.string())), table["vector"].combine_chunks()
    lengths = pc.unique(pc.list_value_length(vectors)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        raise _not_such(path, "its vectors are not all of one length" if lengths else "it has no rows")
    numbers = vectors.flatten().cast(pa.float32())
    values_TD = numbers.to_numpy(zero_copy_only=False).reshape(len(texts), lengths[0])
    if odd := int((~np.isfinite(values_TD)).any(axis=1).sum()):
        raise StageError(
            asked=f"the vectors in {path} were to teach",
            found=f"those of {odd:,} of {len(texts):,} texts are not finite",
            follows="every parameter would become NaN",
            do="make them again, or leave these texts out",
        )
    return TextVectors(path=path, texts=texts, vectors_TD=unit(values_TD))


def _not_such(path: str, found: str) -> UsageError:
    return UsageError(
        asked=f"vectors of texts were to be read from {path}",
        found=found,
        do="give a Parquet file with a column `text` and a column `vector`: lists of as many numbers each",
    )


# The teacher that a user names, and the recipe as it completes it. Free of torch, as launch.


@dataclass(frozen=True, slots=True)
class TeacherSource:
    path: str  # of a model's data folder, or of a file of vectors
    digest: str  # which one it is


def teacher_in(path: str, recipe: Recipe) -> TeacherSource:
    """The model or ensemble in a stage's folder, or a file of vectors (text_vectors).

    Raises UsageError for the output of another stage or another file.
    """
    if path.endswith(SUFFIX):
        require_text_vectors(path)
        return TeacherSource(storage.absolute(path), storage.fingerprint(path))
    found = open_result(path)
    if (stage := found.manifest.request.stage) not in ("train", "combine"):
        raise UsageError(
            asked=f"{recipe.name} was to be taught by the model in {path}",
            found=f"it is the output of {stage}",
            do="give the folder that `clicktower train` or `clicktower combine` printed, or a Parquet file of vectors",
        )
    return TeacherSource(storage.absolute(found.data), found.manifest.digest)


def recipe_taught(recipe: Recipe, teacher: str | None) -> Recipe:
    """A recipe as a teacher's folder completes it: half of the loss where it does not say.

    Raises UsageError where there is one without the other, or the objective has no use for it.
    """
    if teacher is None and recipe.clicks.teacher:
        raise UsageError(
            asked=f"{recipe.name} was to be trained with {recipe.clicks.teacher.share:g} of its loss a teacher's",
            found="no teacher was given",
            follows="there would be nothing to agree with",
            do="give `train --teacher FOLDER`, or set objective.teacher=none",
        )
    if teacher and not isinstance(recipe.objective, Clicks):
        raise UsageError(
            asked=f"{recipe.name} was to be taught by the model in {teacher}",
            found=f"its objective is {recipe.objective.kind}",
            follows="there would be no candidates whose scores it could agree with",
            do="leave the teacher out, or train on clicks",
        )
    return recipe if not teacher or recipe.clicks.teacher else changed(recipe, {"objective.teacher": {}})
