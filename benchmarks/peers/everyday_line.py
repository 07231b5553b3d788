"""The form that nearly every line of a UBI log has, as a regular expression for Rust's and RE2's engines.

It accepts whole JSON objects whose known fields have their types, in any order, so what it accepts can be decoded
without a check. What it does not accept may still be a good line: `strict_line` decides.
"""

_SPACE = "[ \t]*"
# A lone half of a surrogate pair is no text; escapes of either half are left to the strict reader.
_TEXT = r'"(?:[^"\\\x00-\x1f\x{fffd}]|\\(?:["\\/bfnrt]|u[0-9abcefABCEF][0-9a-fA-F]{3}))*"'
_TEXTS = (
    "application|query_id|client_id|user_query|action_name|session_id|message|message_type|user_agent|"
    "object_id|object_id_field|query_response_id"
)
TIME = r'"[12][0-9]{3}-[01][0-9]-[0-3][0-9]T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{3})?Z"'


def _member(name: str, value: str) -> str:
    return f'"(?:{name})"{_SPACE}:{_SPACE}{value}'


def _object(*members: str) -> str:
    member = f"(?:{'|'.join(members)})"
    return rf"\{{{_SPACE}(?:{member}{_SPACE}(?:,{_SPACE}{member}{_SPACE})*)?\}}"


_TEXT_MEMBER = _member(_TEXTS, _TEXT)
_PLACE = _object(_member("ordinal", "(?:0|[1-9][0-9]{0,8})"))
_EVENT = _object(_member("object", _object(_TEXT_MEMBER)), _member("position", _PLACE), _TEXT_MEMBER)
EVERYDAY_LINE = "^{}\r?$".format(
    _object(
        _TEXT_MEMBER,
        _member("timestamp", TIME),
        _member("query_attributes", _object(_TEXT_MEMBER)),
        _member("event_attributes", _EVENT),
    )
)
