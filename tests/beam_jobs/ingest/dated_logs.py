"""Logs of single days for tests: small, of a few shoppers who come back."""

import random
from pathlib import Path

from tests.beam_jobs.sources.ubi_lines import event, search

TEXTS = ["angle bracket", "wood screw", "deck paint", "garden hose", "door mat", "shower tap", "xxx movies"]


def day_lines(date: str, seed: int, num_searches: int = 12, clients: int = 9) -> list[bytes]:
    """Searches of a date with impressions and clicks; now and then something that one person alone types."""
    draw = random.Random(f"{date} {seed}")
    lines = []
    for number in range(num_searches):
        query_id, client = f"{date}-{seed}-{number}", f"client-{draw.randrange(clients)}"
        time = f"{date}T{draw.randrange(24):02d}:{draw.randrange(60):02d}:00.000Z"
        own = draw.random() < 0.1
        lines.append(search(query_id, f"own thing of {client}" if own else draw.choice(TEXTS), client, time))
        for position in range(1, 4):
            document = f"d{draw.randrange(12)}"
            lines.append(event(query_id, "impression", document, position, client, time))
            if draw.random() < 0.5:
                lines.append(event(query_id, "click", document, position, client, time))
    return lines


def write_lines(path: Path, lines: list[bytes]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)
