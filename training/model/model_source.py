"""What an evaluation takes its model from: the output of a train stage, or a release, which holds its model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas import storage
from schemas.errors import StageError
from schemas.manifest import OutputFile, damaged_files
from schemas.release import MODEL, POINTER, RELEASE, Release, read_folder, read_release
from schemas.stage import open_result


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """`digest`: of the training, also where the model is read from a release. `folder`: of the model's two files."""

    digest: str
    folder: str
    labels: Mapping[str, Any]


def model_source(uri: str) -> ModelSource:
    """The model of a train stage's folder, of a release's folder, or of the release that is live at a URI.

    Raises StageError where there is none, or where it has other bytes than were written.
    """
    if storage.exists(storage.join(uri, POINTER)):
        return _of_release(*read_release(uri))
    if storage.exists(storage.join(uri, RELEASE)):
        return _of_release(uri, read_folder(uri))
    trained = open_result(uri)
    do = "run the same `train` again; if it is above 64 MiB, remove the folder first"
    _require_whole(trained.folder, trained.manifest.files, do)
    labels = dict(trained.manifest.outcome.labels)
    return ModelSource(digest=trained.manifest.digest, folder=trained.data, labels=labels)


def _of_release(folder: str, release: Release) -> ModelSource:
    of_model = [file for file in release.written if file.path.startswith(f"{MODEL}/")]
    _require_whole(folder, of_model, "publish the model again from where it was trained")
    return ModelSource(digest=release.inputs["model"], folder=storage.join(folder, MODEL), labels=dict(release.labels))


def _require_whole(folder: str, files: Sequence[OutputFile], do: str) -> None:
    """Every byte: a model is small, and what is wrong with one does not show in its figures."""
    if wrong := damaged_files(folder, files, hashes=True):
        raise StageError(
            asked=f"the model in {folder} was to be read",
            found="; ".join(wrong[:3]),
            follows="its figures would be those of another model",
            do=do,
        )
