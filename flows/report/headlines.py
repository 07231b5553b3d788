"""Results of the stages that a run does not have, in one line each (config.commands), and what judgments show."""

from collections.abc import Mapping
from typing import Any

from clicktower.flows.report.blocks import Block, Cell, Items, Table


def simulate(result: Mapping[str, Any]) -> str:
    c = result["counts"]
    return f"{c['lines']:,} lines of {c['searches']:,} searches over {c['documents']:,} documents, simulated"


def build_labelled(result: Mapping[str, Any]) -> str:
    c, unit = result["counts"], result["metrics"]["unit"]
    of_classes = f" of {c['classes']:,} classes" if c["classes"] else ""
    return f"{c['train_rows']:,} labelled {unit}{of_classes} to train on, {c['dev_rows']:,} held out"


def combine(result: Mapping[str, Any]) -> str:
    m = result["metrics"]
    members = f"{len(m['members'])} models ({', '.join(m['members'])})"
    figures = m.get("ndcg@10", {})
    worth = ", ".join(f"{name.replace('_', '-')} {value:.3f}" for name, value in figures.items())
    shares = f", shares {', '.join(f'{share:.3g}' for share in m['shares'])}" if "shares" in m else ""
    return f"an ensemble of {members}, {m['dimensions']:,} dimensions{shares}" + (
        f"; NDCG@10 of {m['chosen_on']:,} judged queries: {worth}" if worth else ""
    )


def import_encoder(result: Mapping[str, Any]) -> str:
    m = result["metrics"]
    return f"{m['name']}: {result['counts']['parameters']:,} parameters, {m['dimensions']:,} dimensions"


def sweep(result: Mapping[str, Any]) -> str:
    c, m = result["counts"], result["metrics"]
    best = m["rows"][0]["mean"]
    reused = f", {c['trials_reused']:,} of them there already" if c["trials_reused"] else ""
    diverged = f", {c['trials_diverged']:,} diverged" if c["trials_diverged"] else ""
    outcome = f"best {m['measure']} {best:.4f}" if best is not None else "none gave a model"
    return f"{c['trials']:,} trials of {c['points']:,} points{reused}{diverged}; {outcome}"


def judgments(result: Mapping[str, Any]) -> str:
    c = result["counts"]
    judged = f"{c['judgments']:,} click-derived judgments of {c['queries']:,} queries"
    return f"{judged}, {result['metrics']['click_model_name']}"


def evaluate_labelled(result: Mapping[str, Any]) -> str:
    m = result["metrics"]
    ours = ", ".join(f"{name} {value['value']:.3f}" for name, value in m["systems"][m["ours"]].items())
    return f"{ours.replace('auc', 'area under ROC')}, over {m['n']:,} {m['unit']}"


def rollback(result: Mapping[str, Any]) -> str:
    m = result["metrics"]
    before = f"before it {m['previous'] or 'none'}"
    return f"{result['digest']} is live, of {m['num_documents']:,} documents; {before}"


def export(result: Mapping[str, Any]) -> str:
    m = result["metrics"]
    text = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result["counts"].items())
    return f"{m['form']} of {result['digest']}: {text}. {m['sentence']}"


def propensities(result: Mapping[str, Any]) -> list[Block]:
    """The probability of looking at each rank, relative to the highest, with its relative standard error; how judgments
    were derived from clicks, and their limits.
    """
    metrics, counts = result["metrics"], result["counts"]
    grades = ", ".join(f"{counts[name]:,} of grade {name[6:]}" for name in sorted(counts) if name.startswith("grade_"))
    lines = [
        f"click-derived, {metrics['click_model_name']}; {grades}",
        f"prior of {metrics['prior']['of'].replace('_', ' ')}, worth"
        f" {metrics['prior']['strength_examined_impressions']:g} examined impressions",
        f"the ranking that was shown: logged.run, {counts['logged_results']:,} results",
    ]
    if unmeasured := metrics["unmeasured_ranks"]:
        lines.append(f"left out, too little is known of them: ranks {', '.join(map(str, unmeasured))}")
    rows: list[list[Cell | str]] = [
        [str(row["rank"]), f"{row['propensity']:.3f}", f"{row['relative_error']:.1%}", Cell(share=row["propensity"])]
        for row in metrics["propensities"]
    ]
    return [
        Table(caption="Propensities", header=("rank", "looked at", "error", ""), rows=rows, left=(3,)),
        Items(items=lines),
    ]
