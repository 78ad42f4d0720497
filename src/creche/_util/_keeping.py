"""Values that keep what was made of them."""

import functools
from collections.abc import Callable

import attrs


@attrs.frozen
class Keeping:
    """A value that keeps texts made of it, such as its form on a provider's wire. They are no part of the value."""

    @functools.cached_property
    def _forms(self) -> dict[str, str]:
        return {}

    def kept(self, form: str, make: Callable[[], str]) -> str:
        """Return one form of the value, made at its first use.

        Args:
          form: Name of the form, with everything that it depends on besides the value.
          make: Makes it. Contract: gives the same text whenever it is called for this value and name.
        """
        text = self._forms.get(form)
        if text is None:
            text = self._forms[form] = make()
        return text
