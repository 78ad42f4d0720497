"""Checked by mypy and pyright, never run: what the helpers of `creche._util` look like to them."""

from typing import assert_type

import attrs

from creche._util import NoPublicConstructor, final


@final
@attrs.define(eq=False)
class Handle(metaclass=NoPublicConstructor):
    """A handle."""

    name: str


assert_type(Handle._create("a"), Handle)
assert_type(Handle._create("a").name, str)


class Sub(Handle):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """Refused by both."""
