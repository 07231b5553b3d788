"""What clients may ask of the service, and the refusal of more."""

import ipaddress
from dataclasses import fields, replace

from starlette.requests import Request

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import Count, section
from clicktower.schemas.text_contract import normalise, split_normalised


class Refused(Exception):
    """A request that cannot be answered: a status from 400 to 499 and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence
        super().__init__(sentence)


@section
class Limits:
    """What clients may ask of a service, of all its workers together, which divide the numbers among them."""

    letters: Count = 2_000  # of a text, before and after it is normalised
    words: Count = 500  # of a text
    requests: Count = 128  # that wait for their turn
    slow_requests: Count = 32  # of those, that take more than a few milliseconds, such as explanations
    bodies: Count = 128  # that are arriving
    connections: Count = 512  # that wait for a client: to send a request's head, or to take an answer

    def of_worker(self, workers: int) -> "Limits":
        """The limits of one of so many workers. Raises UsageError if a number is too small to be divided."""
        divided = {name: getattr(self, name) // workers for name in _DIVIDED}
        if too_small := [name for name, number in divided.items() if not number]:
            raise UsageError(
                f"{workers} workers cannot share a limit of fewer than {workers} {' and '.join(too_small)}.",
                f"Raise it, --set {too_small[0]}={workers}, or start fewer workers.",
            )
        return replace(self, **divided)

    def require_text(self, name: str, text: str) -> int:
        """The number of words of a text. Raises UsageError for one with too many letters or words.

        Normalising makes eighteen letters of U+FDFA: letters are counted before it, which bounds its work, and after.
        """
        normalised = normalise(text) if len(text) <= self.letters else text
        num_letters, num_words = len(normalised), 0
        if num_letters <= self.letters:
            num_words = len(split_normalised(normalised))
            if num_words <= self.words:
                return num_words
        written_out = ", ligatures written out" if num_letters > len(text) else ""
        long = f"{num_words:,} words" if num_words else f"{num_letters:,} letters{written_out}"
        raise UsageError(
            f"The field {name} has a text of {long}, and the service reads {self.letters:,} letters and"
            f" {self.words:,} words.",
            "Shorten it.",
        )


_DIVIDED = [field.name for field in fields(Limits) if field.name not in ("letters", "words")]  # type: ignore[arg-type]


def address_of(request: Request) -> str:
    """The address of a request's client, as `shared_address` has it."""
    return shared_address(request.client.host if request.client else "")


def shared_address(host: str) -> str:
    """The address by which a client counts: of IPv6 the first 64 bits, since a client has all that begin with them."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
