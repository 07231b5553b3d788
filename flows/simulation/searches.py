"""What is typed in each search: words for an intent, or something that must not be learned from."""

from dataclasses import dataclass

import numpy as np

from flows.simulation import phrases, simulation_config
from flows.simulation.people import (
    CROWD_BOT,
    CROWD_MINUTES,
    HEAVY_PERSON,
    HUMAN,
    PERSON,
    PROFESSIONAL,
    Population,
    Searchers,
)
from flows.simulation.phrases import FORMS, Dice, Intents, Phrasebook, draw_intents, draw_popular
from flows.simulation.simulated_catalogue import Catalogue, ShopVocabulary
from flows.simulation.simulation_config import SimulationConfig

INTENT, PRIVATE, ADULT, SPAM, EMPTY = range(5)
WHAT = ("intent", "private", "adult", "spam", "empty")
FAVOURITE = 0.10  # of a person's searches are for the same thing again, in the same words
STOCK, OF_STOCK = (
    12,
    0.4,
)  # a professional asks for a few things again and again: so many, in this share of its searches
PRIVATE_OF_HEAVY = 6  # times as often: they repeat their private query more than k times, so people must be counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Searches:
    """Arrays over N searches. Whoever types something private, adult or spam still gets a page: `intents` has all N."""

    numbers: np.ndarray  # int64 (N)
    who: Searchers
    what: np.ndarray  # int8 (N): INTENT and so on
    author: np.ndarray  # int64 (N): the actor whose private text it is where it is one
    intents: Intents
    form: np.ndarray  # int64 (N)
    text: list[str]  # (N), as typed
    understood: np.ndarray  # bool (N): the words are those of the titles, spelled rightly
    has_client: np.ndarray  # bool (N)
    silent: np.ndarray  # bool (N): no event of it is logged
    altered: np.ndarray  # bool (N, 3): misspelled at random, odd case, odd spaces


def draw_searches(
    config: SimulationConfig,
    vocabulary: ShopVocabulary,
    catalogue: Catalogue,
    population: Population,
    phrasebook: Phrasebook,
    numbers: np.ndarray,
) -> Searches:
    """The searches of these numbers."""
    seed, who = config.seed, population.searchers(numbers)
    is_human = np.isin(who.role, HUMAN)

    what = np.full(len(numbers), INTENT, np.int8)
    unit = simulation_config.uniform(simulation_config.stream(seed, "what"), numbers)
    private = np.where(who.role == HEAVY_PERSON, PRIVATE_OF_HEAVY * config.private, config.private)
    for kind, rate in ((PRIVATE, private), (ADULT, config.adult), (SPAM, config.spam), (EMPTY, config.empty)):
        what[is_human & (unit >= 0) & (unit < rate)] = kind
        unit = unit - rate
    in_crowd = who.role == CROWD_BOT
    wants_popular = in_crowd & (who.turn == 1) & (population.crowd(who.actor) % 2 == 0)
    what[in_crowd & ~wants_popular] = PRIVATE
    author = np.where(in_crowd, population.victim(who.actor), who.actor)

    # A favourite is drawn by person instead of by search; bots crawl evenly over everything people want.
    favourite = (who.role == PERSON) & (
        simulation_config.uniform(simulation_config.stream(seed, "favourite"), numbers) < FAVOURITE
    )
    counter = np.where(favourite, config.num_searches + who.actor, numbers)
    of_stock = (who.role == PROFESSIONAL) & (
        simulation_config.uniform(simulation_config.stream(seed, "stock"), numbers) < OF_STOCK
    )
    item = (simulation_config.bits(simulation_config.stream(seed, "item"), numbers) % np.uint64(STOCK)).astype(np.int64)
    counter = np.where(of_stock, 4 * config.num_searches + STOCK * who.actor + item, counter)
    wanted = draw_popular(simulation_config.stream(seed, "wanted"), counter, config.intents, config.flattened_head)
    crawled = (
        simulation_config.bits(simulation_config.stream(seed, "crawled"), numbers) % np.uint64(config.intents)
    ).astype(np.int64)
    intents = draw_intents(vocabulary, seed, catalogue, np.where(is_human | wants_popular, wanted, crawled))
    form = simulation_config.pick(FORMS, simulation_config.uniform(simulation_config.stream(seed, "form"), counter))

    alteration = simulation_config.uniform(simulation_config.stream(seed, "altered"), numbers[:, None], np.arange(3))
    altered = (alteration < (config.random_misspelling, config.odd_case, config.odd_spaces)) & is_human[:, None]
    altered &= (what == INTENT)[:, None]
    text, understood = _texts(vocabulary, seed, phrasebook, numbers, author, what, intents, form, altered)
    nobody = (who.role == PERSON) & (
        simulation_config.uniform(simulation_config.stream(seed, "nobody"), numbers) < config.without_client
    )
    return Searches(
        numbers=numbers,
        who=who,
        what=what,
        author=author,
        intents=intents,
        form=form,
        text=text,
        understood=understood & ~altered[:, 0],
        has_client=~nobody | (what == PRIVATE),
        silent=in_crowd & (population.crowd(who.actor) // len(CROWD_MINUTES) % 2 == 1),
        altered=altered,
    )


def _texts(
    vocabulary: ShopVocabulary,
    seed: int,
    phrasebook: Phrasebook,
    numbers: np.ndarray,
    author: np.ndarray,
    what: np.ndarray,
    intents: Intents,
    form: np.ndarray,
    altered: np.ndarray,
) -> tuple[list[str], np.ndarray]:
    texts, understood = [], np.ones(len(numbers), bool)
    rows = zip(
        numbers.tolist(),
        author.tolist(),
        what.tolist(),
        intents.number.tolist(),
        intents.type.tolist(),
        intents.attributes.tolist(),
        intents.source.tolist(),
        intents.by_model.tolist(),
        form.tolist(),
        altered.tolist(),
        strict=True,
    )
    for row, (number, actor, kind, intent, product, wanted, source, by_model, shape, changes) in enumerate(rows):
        if kind == INTENT:
            text, understood[row] = phrasebook.phrase(intent, product, tuple(wanted), source, by_model, shape)
            if any(changes):
                dice = Dice(seed, "altered", number)
                for changed, change in zip(
                    changes, (phrases.misspell_text, phrases.odd_case, phrases.odd_spaces), strict=True
                ):
                    text = change(text, dice) if changed else text
        elif kind == PRIVATE:
            text = phrases.private_text(vocabulary, seed, actor)
        elif kind == EMPTY:
            text = phrases.empty_text(Dice(seed, "empty", number))
        else:
            write = phrases.adult_text if kind == ADULT else phrases.spam_text
            text = write(vocabulary, Dice(seed, "unwanted", number))
        texts.append(text)
    return texts, understood
