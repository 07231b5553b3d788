"""A teacher from the user: a trained model, or a file of vectors that another encoder made of the texts.

The file is Parquet with a column `text` and a column `vector` with equally many numbers each. Both sides of a
comparison are normalised, so it may hold texts as written or as `clicktower texts` lists them; if several become one
text, the first counts. Vectors are compared by cosine, so their lengths do not matter. Free of torch.

Shapes: T texts, D columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import changed
from clicktower.schemas.stage import open_result
from clicktower.schemas.text_contract import normalise_column
from clicktower.training.model.embedding import unit
from clicktower.training.model.objective_settings import Clicks
from clicktower.training.model.recipe import Recipe

SUFFIX = ".parquet"  # distinguishes a file of vectors from a model's folder


@dataclass(frozen=True, slots=True)
class TeacherSource:
    path: str  # of a model's data folder, or of a file of vectors
    digest: str  # identifies it


def teacher_source(path: str, recipe: Recipe) -> TeacherSource:
    """The model or ensemble in a stage's folder, or a file of vectors.

    Raises UsageError for the output of another stage or another file.
    """
    if path.endswith(SUFFIX):
        require_text_vectors(path)
        return TeacherSource(storage.absolute(path), storage.fingerprint(path))
    fix = "Give the folder that `train`, `combine` or `import-encoder` printed, or a Parquet file of vectors."
    result = open_result(path, "train", "combine", "import-encoder", fix=fix)
    return TeacherSource(storage.absolute(result.data), result.manifest.digest)


def require_teacher(source: TeacherSource) -> None:
    """Raise UsageError or StageError for a file of vectors from which nothing can be learnt. It reads all of it."""
    if source.path.endswith(SUFFIX):
        read_text_vectors(source.path)


def with_teacher(recipe: Recipe, teacher: str | None) -> Recipe:
    """A recipe completed for a teacher's folder: half of the loss by default.

    Raises UsageError if only one of the two is given, or the objective does not support a teacher.
    """
    if teacher is None and recipe.clicks.teacher:
        raise UsageError(
            f"{recipe.clicks.teacher.share:g} of the loss of {recipe.name} is a teacher's, and no teacher is given.",
            "Give `train --teacher FOLDER`, or set objective.teacher=none.",
        )
    if teacher and not isinstance(recipe.objective, Clicks):
        raise UsageError(
            f"The objective of {recipe.name} is {recipe.objective.kind}, which has no candidates whose scores it could "
            f"learn from the teacher {teacher}.",
            "Leave the teacher out, or train on clicks.",
        )
    return recipe if not teacher or recipe.clicks.teacher else changed(recipe, {"objective.teacher": {}})


@dataclass(frozen=True, kw_only=True, slots=True)
class TextVectors:
    """The content of a file, as an encoder (trainer.click_teacher)."""

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
        """The vectors of some normalised texts, float32 [texts, D]; the side makes no difference.

        Raises UsageError if the file lacks some: they are counted, not shown.
        """
        rows = pc.index_in(pa.array(texts, pa.string()), self.texts)
        if rows.null_count:
            raise UsageError(
                f"{rows.null_count:,} of {len(texts):,} texts ({side}) have no vector in {self.path}.",
                "Write the texts with `clicktower texts --shards FOLDER --to texts.parquet`, and give all of them a "
                "vector.",
            )
        vectors: np.ndarray = self.vectors_TD[rows.to_numpy()]
        return vectors


def require_text_vectors(path: str) -> None:
    """Raise UsageError for a missing file or other columns. It reads no more than necessary."""
    if not storage.exists(path):
        raise UsageError(
            f"There is no such file: {path}.", "Check the path; with several machines, give one that each of them sees."
        )
    try:
        with storage.open_read(path) as file:
            schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise _refused(path, str(error).splitlines()[0][:160]) from None
    kinds = {name: schema.field(name).type for name in ("text", "vector") if name in schema.names}
    if len(kinds) < 2 or not pa.types.is_floating(getattr(kinds["vector"], "value_type", pa.null())):
        columns = ", ".join(f"{name} ({kind})" for name, kind in zip(schema.names, schema.types, strict=True))
        raise _refused(path, f"its columns are {columns}")


def read_text_vectors(path: str) -> TextVectors:
    """Raises UsageError for a file that is missing or of another kind, StageError for numbers that are not finite."""
    require_text_vectors(path)
    with storage.open_read(path) as file:
        table = pq.read_table(file, columns=["text", "vector"])
    if any(column.null_count for column in table.columns):
        raise _refused(path, "some rows have no text or no vector")
    texts, vectors = normalise_column(table["text"].cast(pa.string())), table["vector"].combine_chunks()
    lengths = pc.unique(pc.list_value_length(vectors)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        raise _refused(path, "its vectors are not all of one length" if lengths else "it has no rows")
    numbers = vectors.flatten().cast(pa.float32())
    values_TD = numbers.to_numpy(zero_copy_only=False).reshape(len(texts), lengths[0])
    if num_odd := int((~np.isfinite(values_TD)).any(axis=1).sum()):
        raise StageError(
            f"The vectors of {num_odd:,} of {len(texts):,} texts are not finite in {path}.",
            "Make them again, or leave these texts out.",
        )
    vectors_TD = unit(values_TD)
    has_words = pc.not_equal(texts, "").to_numpy(zero_copy_only=False)  # no comparison needs the vector of the others
    if num_zeros := int((has_words & ~vectors_TD.any(axis=1)).sum()):
        raise StageError(
            f"The vectors of {num_zeros:,} of {int(has_words.sum()):,} texts are zeros in {path}, which have no"
            " direction and no cosine: a teacher would call all titles alike.",
            "Make them again with an encoder that reads these texts.",
        )
    if len(texts) > 1 and (vectors_TD == vectors_TD[0]).all():
        raise StageError(
            f"All {len(texts):,} texts have one vector in {path}: there is nothing to learn from it.",
            "Give vectors that another encoder made of each text.",
        )
    return TextVectors(path=path, texts=texts, vectors_TD=vectors_TD)


def _refused(path: str, problem: str) -> UsageError:
    return UsageError(
        f"{path} does not hold vectors of texts: {problem}.",
        "Give a Parquet file with a column `text` and a column `vector`: lists of as many numbers each.",
    )
