"""The main path: the files that a plain run loads, from a log of clicks to a release and the page about the run."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests import house

# What a run imports when it gets there, in its own process or in that of a stage: all else that it loads, these import
# at their top.
ENTRIES = (
    "flows.cli",
    "flows.commands.pipelines", "flows.chain",
    "beam_jobs.ingest.ingest_job", "beam_jobs.sources.ubi", "beam_jobs.build.build_job",
    "flows.commands.stages", "training.trainer.worker", "training.trainer.clicks",
    "training.trainer.local_workers", "training.trainer.process_group", "training.evaluation.evaluate_stage",
    "flows.guards.promotion", "flows.releases.publish", "flows.releases.make_release",
    "flows.report.training_blocks",
)  # fmt: skip

# What hangs beside the main path: folders, and files of the others.
BESIDE = (
    "beam_jobs/checking", "beam_jobs/judgments", "beam_jobs/labelled", "flows/serve", "flows/simulation",
    "training/analysis", "training/sweep", "beam_jobs/build/clicked_pool.py", "beam_jobs/build/nothing_left.py",
    "beam_jobs/engine/engine_start.py", "beam_jobs/engine/engines.py", "beam_jobs/engine/forked_workers.py",
    "beam_jobs/ingest/dated_days.py", "beam_jobs/ingest/erase.py", "beam_jobs/ingest/erased_list.py",
    "beam_jobs/ingest/expired_keys.py", "beam_jobs/ingest/large_buckets.py", "beam_jobs/ingest/line_samples.py",
    "beam_jobs/ingest/pair_people.py", "beam_jobs/ingest/remainders.py", "beam_jobs/ingest/unreadable_log.py",
    "beam_jobs/ingest/windows.py", "beam_jobs/sources/delimited.py", "beam_jobs/sources/encodings.py",
    "beam_jobs/sources/field_names.py", "beam_jobs/sources/jsonl.py", "beam_jobs/sources/lake_tables.py",
    "beam_jobs/sources/log_times.py", "beam_jobs/sources/parquet.py", "clicktower/api.py", "flows/artifacts.py",
    "flows/config/optional_sections.py", "flows/config/recipe_file.py", "flows/config/refused_fields.py",
    "flows/config/replacements.py", "flows/guards/compare_models.py", "flows/guards/usual_figures.py",
    "flows/metrics.py", "flows/pipeline.py", "flows/plan.py", "flows/progress_relay.py",
    "flows/releases/encode_lines.py", "flows/releases/encode_texts.py",
    "flows/releases/export_release.py", "flows/releases/ivf_index.py", "flows/releases/kept_releases.py",
    "flows/releases/object_release.py", "flows/releases/opensearch_index.py", "flows/releases/search.py",
    "flows/releases/tower_graphs.py", "flows/report/comparison_page.py", "flows/report/explain_page.py",
    "flows/report/guard_blocks.py", "flows/report/headlines.py", "flows/report/heat_maps.py",
    "flows/report/labelled_page.py", "flows/report/markdown.py", "flows/report/sweep_page.py",
    "flows/report/training_page.py", "flows/retention.py", "flows/run_options.py", "flows/show/failures.py",
    "flows/show/json_lines.py", "flows/show/store_results.py", "flows/tracking.py", "schemas/day_version.py",
    "schemas/document_forms.py", "schemas/judgment_forms.py", "schemas/labelled_shard.py", "schemas/look_alikes.py",
    "schemas/object_store.py", "schemas/removal.py", "schemas/section_fields.py", "training/analysis/nearest_words.py",
    "training/evaluation/combine_stage.py", "training/evaluation/compare_stage.py",
    "training/evaluation/evaluate_labelled_stage.py", "training/evaluation/labelled_systems.py",
    "training/evaluation/measured_row.py", "training/evaluation/rows.py", "training/model/decoder.py",
    "training/model/ensemble.py", "training/model/forward.py", "training/model/head.py",
    "training/model/import_stage.py", "training/model/imported_encoder.py", "training/model/label_settings.py",
    "training/model/recipe_kinds.py", "training/model/teacher.py", "training/model/word_vectors.py",
    "training/ranking/doc2vec.py", "training/ranking/labelled_measures.py", "training/ranking/plsa.py",
    "training/towers/bag.py", "training/towers/bilstm.py", "training/towers/gpu_recurrent.py",
    "training/towers/recurrent.py", "training/towers/text_batch.py", "training/towers/threads.py",
    "training/towers/tower.py", "training/towers/tower_kinds.py", "training/trainer/adaptive_optimisers.py",
    "training/trainer/classify.py", "training/trainer/click_loss.py", "training/trainer/click_teacher.py",
    "training/trainer/culprit.py", "training/trainer/earlier_model.py", "training/trainer/generate.py",
    "training/trainer/gpu_check.py", "training/trainer/labelled_shards.py",
    "training/trainer/ray_cluster.py", "training/trainer/ray_workers.py", "training/trainer/reference_path.py",
)  # fmt: skip

HOOK = """
import atexit, os, sys
def note():
    root = os.environ["MAIN_PATH_ROOT"] + os.sep
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    with open(os.path.join(os.environ["MAIN_PATH_NOTES"], str(os.getpid())), "w") as notes:
        notes.write("\\n".join(file for file in map(os.path.realpath, files) if file.startswith(root)))
atexit.register(note)
leave = os._exit
def note_and_leave(code):
    note()
    leave(code)
os._exit = note_and_leave
"""


def is_beside(file: Path) -> bool:
    """Whether a file of the product is one that no plain run needs."""
    name = str(file.relative_to(house.ROOT))
    return any(name == place or name.startswith(f"{place}/") for place in BESIDE)


def loaded_from(entries: Iterable[str]) -> set[Path]:
    """The files that are loaded where these modules are, by what each imports at its top; read from the source."""
    files = {house.module_of(file): file for file in house.product_files()}
    loaded: set[str] = set()
    waiting = [f"clicktower.{entry}" for entry in entries]
    while waiting:
        module = waiting.pop()
        if module in loaded or module not in files:
            continue
        loaded.add(module)
        parts = module.split(".")
        waiting += [".".join(parts[:number]) for number in range(1, len(parts))]
        for node in _at_top(ast.parse(files[module].read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
    return {files[module] for module in loaded}


def _at_top(node: ast.AST) -> Iterable[ast.AST]:
    """The statements of a module that run as it is imported; not those for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _at_top(child)


def loaded_by(command: list[str], notes: Path) -> set[Path]:
    """The files of the product that a command loads, in all of its processes that end by themselves."""
    notes.mkdir()
    (notes / "sitecustomize.py").write_text(HOOK)
    (notes / "files").mkdir()
    paths = [str(notes), str(house.ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "MAIN_PATH_ROOT": str(house.ROOT),
        "MAIN_PATH_NOTES": str(notes / "files"),
    }  # fmt: skip
    run = [sys.executable, "-m", "clicktower.flows.cli", *command]
    subprocess.run(run, env=environment, cwd=house.ROOT, check=True, stdout=subprocess.DEVNULL)
    named = {Path(line) for note in (notes / "files").iterdir() for line in note.read_text().splitlines()}
    return named & set(house.product_files())


def num_lines(files: Iterable[Path]) -> int:
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files)
