"""Tools that know no domain word."""

from ._checks import as_all as as_all, as_names as as_names, as_one as as_one, check_in_trio as check_in_trio
from ._fields import (
    LARGEST as LARGEST,
    is_a as is_a,
    is_bool as is_bool,
    is_count as is_count,
    is_duration as is_duration,
    is_finite as is_finite,
    is_none_or as is_none_or,
    is_one_of as is_one_of,
    is_positive as is_positive,
    is_text as is_text,
    is_tuple_of as is_tuple_of,
    is_whole as is_whole,
)
from ._keeping import Keeping as Keeping
from ._nursery import (
    is_cancelled as is_cancelled,
    leaves_of as leaves_of,
    open_hidden_nursery as open_hidden_nursery,
)
from ._public import NoPublicConstructor as NoPublicConstructor, final as final, publish as publish
from ._text import (
    canonical_json as canonical_json,
    clean_all as clean_all,
    clean_optional as clean_optional,
    clean_text as clean_text,
    listed as listed,
    shown as shown,
    unfenced as unfenced,
    without_addresses as without_addresses,
)

__all__ = [
    "LARGEST",
    "Keeping",
    "NoPublicConstructor",
    "as_all",
    "as_names",
    "as_one",
    "canonical_json",
    "check_in_trio",
    "clean_all",
    "clean_optional",
    "clean_text",
    "final",
    "is_a",
    "is_bool",
    "is_cancelled",
    "is_count",
    "is_duration",
    "is_finite",
    "is_none_or",
    "is_one_of",
    "is_positive",
    "is_text",
    "is_tuple_of",
    "is_whole",
    "leaves_of",
    "listed",
    "open_hidden_nursery",
    "publish",
    "shown",
    "unfenced",
    "without_addresses",
]

publish(globals(), __name__)
