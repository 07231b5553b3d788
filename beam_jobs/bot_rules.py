"""The rules that tell programs from people, as data: their names in order, and from where on each of them holds.

A client is surely a bot, surely no bot, or unsure: kept out of training, counted apart. The first rule of RULES that
holds for a client is the one it is counted under.
"""

from dataclasses import asdict, dataclass
from typing import Any

from schemas.errors import UsageError

# Raised on purpose when a rule comes, goes, or means something else. Thresholds are not part of it: they are recorded.
RULES_VERSION = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A verdict: its name, and the fate of the lines of whom it catches (schemas.ledger)."""

    name: str
    fate: str


RULES = (
    Rule(name="user_agent", fate="bot_user_agent"),
    Rule(name="pace", fate="bot_behaviour"),
    Rule(name="clicks_everything", fate="bot_behaviour"),
    Rule(name="clicks_one_rank", fate="bot_behaviour"),
    Rule(name="around_the_clock", fate="bot_behaviour"),
    Rule(name="even_pace", fate="bot_behaviour"),
    Rule(name="crowd", fate="bot_crowd"),
    Rule(name="unsure_pace", fate="bot_unsure"),
    Rule(name="unsure_clicks_everything", fate="bot_unsure"),
    Rule(name="unsure_clicks_one_rank", fate="bot_unsure"),
    Rule(name="unsure_around_the_clock", fate="bot_unsure"),
    Rule(name="unsure_even_pace", fate="bot_unsure"),
    Rule(name="unsure_never_clicks", fate="bot_unsure"),
    Rule(name="unsure_crowd", fate="bot_unsure"),
)
RULE = {rule.name: number for number, rule in enumerate(RULES)}
NO_RULE = len(RULES)  # after all of them


@dataclass(frozen=True, kw_only=True, slots=True)
class BotRules:
    """From where on a client's behaviour is surely no person's, and (`unsure_...`) from where on it may not be.

    The rates are of people at their busiest, not of the average: the most eager shoppers look a search's results
    over, so one search a minute for a whole hour without a pause, or 300 within a day, is a program. Volume over the
    whole log is no sign: a shared or professional account may search every day for months. The click rules ask for
    enough searches that chance cannot explain them: even at a click rate of 70% on the first result, 30 searches in a
    row answered by it alone have a probability of 2e-5.
    """

    version: int = RULES_VERSION

    # Pace: searches of one client in its busiest hour or day.
    searches_per_hour: int = 60
    searches_per_day: int = 300
    unsure_searches_per_hour: int = 45
    unsure_searches_per_day: int = 200

    # Clicks everything: this share of the documents shown is clicked, over at least so many searches that showed at
    # least so many documents each on average (a log that records what was clicked and hardly more shows nothing).
    clicked_share: float = 0.8
    unsure_clicked_share: float = 0.6
    clicked_share_searches: int = 20
    shown_per_search: float = 2.0

    # Clicks one rank: so large a share of the searches has its one click there, and there are hardly any other clicks.
    same_rank_share: float = 0.95
    same_rank_searches: int = 30
    unsure_same_rank_searches: int = 20

    # Around the clock: at work in so many hours of one day (UTC), so nobody slept; several people behind one client id
    # do that too, hence unsure. A bot where, besides, it hardly ever clicks, hardly ever asks twice, or keeps an even
    # pace.
    clock_hours: int = 20
    # Even pace: the variance of its searches per hour (or day) over their mean, all hours between its first and last
    # counted. People come in bursts, far above 1; chance alone makes 1; a timer is near 0. Unsure; a bot where it also
    # hardly ever clicks or hardly ever asks twice.
    even_dispersion: float = 0.2
    # Hardly ever clicks, hardly ever asks twice: the share of clicks to searches, of distinct queries, from so many
    # searches on. Signs, no rule by themselves: a blocked tracker hides all clicks of a person.
    few_clicks_share: float = 0.01
    distinct_share: float = 0.9
    sign_searches: int = 20
    # Both together over so many searches: unsure.
    unsure_never_clicks_searches: int = 50

    # Crowd: at least so many clients that ask for at most so many different queries in the whole log ask for the same
    # one within a short time, and the chance that as many who have nothing to do with each other would is this small.
    crowd_clients: int = 3
    crowd_queries: int = 3
    crowd_chance: float = 1e-9
    unsure_crowd_chance: float = 1e-5
    # That none of them has an event says something where at most this share of such clients has none.
    crowd_silent_share: float = 0.02

    def __post_init__(self) -> None:
        if self.version != RULES_VERSION:
            raise UsageError(
                asked=f"the rules for bots were to be those of version {self.version}",
                found=f"this clicktower has version {RULES_VERSION}",
                follows="clients would be told by other rules than you mean",
                do=f"compare docs/privacy.md with what you set, and set version {RULES_VERSION}",
            )
        for name, value in self.thresholds().items():
            if name.endswith(("_share", "_dispersion", "_chance")):
                if not 0 < value <= 1:
                    raise _out_of_range(f"{name} = {value}, which is not above 0 and at most 1")
            elif value < 1:
                raise _out_of_range(f"{name} = {value}, which is below 1")

    def thresholds(self) -> dict[str, Any]:
        """Every setting but the version."""
        return {name: value for name, value in asdict(self).items() if name != "version"}


def _out_of_range(found: str) -> UsageError:
    return UsageError(
        asked="the rules for bots were set",
        found=f"there is {found}",
        follows="every client, or none, would be a bot",
        do="leave out what you do not mean to change",
    )
