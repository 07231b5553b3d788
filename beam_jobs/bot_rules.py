"""From where on a client is taken for a program: the one set of thresholds."""

from dataclasses import dataclass

from schemas.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class BotRules:
    """From where on a client's behaviour is no person's. Each rule alone makes a bot.

    The rates are of people at their busiest, not of the average: the most eager shoppers look a search's results
    over, so one search a minute for a whole hour without a pause, or 300 within a day, is a program. Volume over the
    whole log is no sign: a shared or professional account may search every day for months. The two click rules ask
    for enough searches that chance cannot explain them: even at a click rate of 70% on the first result, 30 searches
    in a row answered by it alone have a probability of 2e-5.
    """

    searches_per_hour: int = 60
    searches_per_day: int = 300
    # "Clicks everything": of the documents shown, this share is clicked ...
    clicked_share: float = 0.8
    # ... over at least so many searches.
    clicked_share_searches: int = 20
    # "Clicks one rank": so large a share of the searches has its one click there, and there are hardly any other
    # clicks ...
    same_rank_share: float = 0.95
    # ... over at least so many searches.
    same_rank_searches: int = 30

    def __post_init__(self) -> None:
        if not (0 < self.clicked_share <= 1 and 0 < self.same_rank_share <= 1):
            raise _out_of_range("a share that is not above 0 and at most 1")
        numbers = (self.searches_per_hour, self.searches_per_day, self.clicked_share_searches, self.same_rank_searches)
        if min(numbers) < 1:
            raise _out_of_range("a number of searches below 1")


def _out_of_range(found: str) -> UsageError:
    return UsageError(
        asked="the rules for bots were set",
        found=f"there is {found}",
        follows="every client, or none, would be a bot",
        do="leave out what you do not mean to change",
    )
