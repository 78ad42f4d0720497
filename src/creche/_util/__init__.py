"""Tools that know no domain word."""

from ._checks import as_all as as_all, as_one as as_one
from ._nursery import open_hidden_nursery as open_hidden_nursery
from ._public import NoPublicConstructor as NoPublicConstructor, final as final, publish as publish
from ._text import canonical_json as canonical_json, clean_text as clean_text

__all__ = [
    "NoPublicConstructor",
    "as_all",
    "as_one",
    "canonical_json",
    "clean_text",
    "final",
    "open_hidden_nursery",
    "publish",
]

publish(globals(), __name__)
