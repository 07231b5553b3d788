"""How well `check` tells the languages of short queries, on texts of known language and mixtures of them.

    CLICKTOWER_DATA=/path/to/data python benchmarks/languages.py [--mixtures 300] [--record]

Reads real queries (English: homedepot, nfcorpus, dbpedia_entity; Chinese: sogou_qt) and, of two packages to be
installed for it (pip install emoji django), short texts of other languages that people wrote: the names of emoji as
Unicode's CLDR has them ("écouteurs audio"), 14 languages, and the first four words of Django's messages, 18 languages;
1,000 texts of each at most. First each by itself, then mixtures of one, two or three languages drawn from all of them,
in known shares, and of two near relatives. With --record writes benchmarks/results/languages.json.
"""

import argparse
import json
import os
import re
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from beam_jobs.checking.languages import MIN_SHARE, identify, language_shares
from schemas.text_contract import normalise

RESULT = Path(__file__).parent / "results" / "languages.json"
REAL = {
    "homedepot": ("en", "homedepot/queries.train.tsv"),
    "nfcorpus": ("en", "nfcorpus/queries.train.tsv"),
    "dbpedia_entity": ("en", "dbpedia_entity/queries.train.tsv"),
    "sogou_qt": ("zh", "sogou_qt/queries.train.tsv"),
}
EMOJI = ("ar", "de", "en", "es", "fa", "fr", "id", "it", "ja", "ko", "pt", "ru", "tr", "zh")
DJANGO = ("cs", "da", "de", "el", "es", "fi", "fr", "hu", "it", "nb", "nl", "pl", "pt", "ro", "sv", "tr", "uk", "vi")
RELATIVES = (
    ("django/da", "django/no"), ("django/sv", "django/da"), ("emoji/es", "emoji/pt"), ("emoji/ru", "django/uk"),
    ("django/cs", "django/pl"), ("emoji/fa", "emoji/ar"),
)  # fmt: skip
MOST = 1_000
SIZES = (100, 200, 500, 1_000)
SHARES = {1: [[1.0]], 2: [[0.95, 0.05], [0.9, 0.1], [0.8, 0.2], [0.65, 0.35], [0.5, 0.5]],
          3: [[0.8, 0.1, 0.1], [0.6, 0.2, 0.2]]}  # fmt: skip


def texts_of_known_language(data: Path) -> dict[str, list[str]]:
    """`source/code` -> different normalised texts, shuffled."""
    found = {
        f"{name}/{code}": [line.split("\t")[1] for line in (data / file).read_text(encoding="utf-8").splitlines()]
        for name, (code, file) in REAL.items()
    }
    found |= {f"emoji/{code}": emoji_names(code) for code in EMOJI}
    found |= {f"django/{'no' if code == 'nb' else code}": django_messages(code) for code in DJANGO}
    draw = np.random.default_rng(0)
    texts = {name: sorted({normalise(text) for text in texts} - {""}) for name, texts in found.items()}
    return {name: [each[at] for at in draw.permutation(len(each))[:MOST]] for name, each in texts.items()}


def emoji_names(code: str) -> list[str]:
    """Without those of other skins, which are the same words over again."""
    import emoji

    emoji.config.load_language(code)
    names = [of[code].strip(":").replace("_", " ") for of in emoji.EMOJI_DATA.values() if code in of
             and "skin_tone" not in of["en"]]  # fmt: skip
    return [name for name in names if ":" not in name]


def django_messages(code: str) -> list[str]:
    import django

    found = []
    for file in sorted(Path(django.__file__).parent.rglob(f"locale/{code}/LC_MESSAGES/*.po")):
        for message in re.findall(r'^msgstr(?:\[\d\])? "(.+)"$', file.read_text(encoding="utf-8"), re.M):
            plain = re.sub(r"%\(\w+\)[\w.]+|%\w|<[^>]+>|\{[^}]*\}|[\\\"“”„.:…!?,]", " ", message)
            found.append(" ".join(plain.split()[:4]))
    return [text for text in found if len(text) > 3]


def mixtures(answers: dict[str, np.ndarray], codes: list[str], languages: int, size: int, count: int) -> dict[str, Any]:
    """Of `count` mixtures: languages that are not there, those that were not found, and how wrong shares are."""
    draw = np.random.default_rng([size, languages])
    errors, phantoms, wrong_first = [], 0, 0
    missed, mixed = Counter[float](), Counter[float]()
    while sum(mixed.values()) < count * languages:
        names = draw.choice(sorted(answers), languages, replace=False)
        true = [name.split("/")[1] for name in names]
        if len(set(true)) < languages:
            continue
        parts = SHARES[languages][draw.integers(len(SHARES[languages]))]
        drawn = [(answers[name], round(part * size)) for name, part in zip(names, parts, strict=True)]
        rows = [rows[draw.choice(len(rows), many, replace=many > len(rows))] for rows, many in drawn]
        found = language_shares(codes, np.vstack(rows))
        phantoms += bool(set(found) - set(true))
        wrong_first += parts[0] > 0.5 and next(iter(found), None) != true[0]
        for code, part in zip(true, parts, strict=True):
            mixed[part] += 1
            missed[part] += code not in found
            if code in found:
                errors.append(abs(found[code] - part))
    return {
        "languages": languages,
        "queries": size,
        "mixtures": count,
        "with_a_language_that_is_not_there": phantoms,
        "with_another_language_first": wrong_first,
        "not_found_of": {f"{part:.2f}": [missed[part], mixed[part]] for part in sorted(mixed)},
        "error_mean": round(float(np.mean(errors)), 4),
        "error_of_95_in_100": round(float(np.quantile(errors, 0.95)), 4),
        "error_largest": round(float(np.max(errors)), 4),
    }


def relatives(answers: dict[str, np.ndarray], codes: list[str], *, size: int = 500, count: int = 10) -> list[Any]:
    """For each two of RELATIVES how wrong the share of the second is (0 if it is not told), in 3 `count` mixtures."""
    draw = np.random.default_rng(size)
    reported = []
    for first, second in RELATIVES:
        errors, missed = [], 0
        for part in np.repeat((0.1, 0.3, 0.5), count):
            many = round(part * size)
            rows = [answers[first][draw.choice(len(answers[first]), size - many)],
                    answers[second][draw.choice(len(answers[second]), many)]]  # fmt: skip
            share = language_shares(codes, np.vstack(rows)).get(second.split("/")[1], 0.0)
            missed += share == 0.0
            errors.append(abs(share - part))
        reported.append({"of": [first, second], "mixtures": len(errors), "not_found": missed,
                     "error_mean": round(float(np.mean(errors)), 4),
                     "error_of_95_in_100": round(float(np.quantile(errors, 0.95)), 4),
                     "error_largest": round(float(np.max(errors)), 4)})  # fmt: skip
        print(*reported[-1].items())
    return reported


def measure(data: Path, count: int) -> dict[str, Any]:
    texts = texts_of_known_language(data)
    alone, answers = {}, {}
    begun = time.perf_counter()
    for name, each in texts.items():
        codes, answers[name] = identify(each)
        best = Counter(codes[at] for at in answers[name].argmax(axis=1))
        alone[name] = {
            "texts": len(each),
            "right_one_by_one": round(best[name.split("/")[1]] / len(each), 4),
            "languages_with_one_in_100_of_the_votes": sum(votes > 0.01 * len(each) for votes in best.values()),
            "told": {code: round(share, 4) for code, share in language_shares(codes, answers[name]).items()},
        }
        print(f"{name:18}", *alone[name].values())
    reported = []
    for size in SIZES:
        for languages in SHARES:
            reported.append(mixtures(answers, codes, languages, size, count))
            print(*reported[-1].items())
    return {
        "py3langid": metadata.version("py3langid"),
        "languages_known": len(codes),
        "min_share": MIN_SHARE,
        "seconds_for_all_texts": round(time.perf_counter() - begun, 1),
        "texts": alone,
        "mixtures": reported,
        "mixtures_of_relatives": relatives(answers, codes),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixtures", type=int, default=300)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    result = measure(Path(os.environ["CLICKTOWER_DATA"]), arguments.mixtures)
    if arguments.record:
        RESULT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
