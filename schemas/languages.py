"""The languages whose terms the lexical contract knows: a setting, apart from it so that naming one loads nothing."""

from typing import Literal

Language = Literal[
    "none",  # words as they are
    "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto", "estonian",
    "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian",
    "nepali", "norwegian", "persian", "polish", "portuguese", "romanian", "russian", "serbian", "sesotho", "spanish",
    "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
DEFAULT_LANGUAGE: Language = "english"
