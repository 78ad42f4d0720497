"""Values that keep what was made of them."""

import functools
from collections.abc import Callable

import attrs


@attrs.frozen
class Keeping:
    """A value that keeps bytes made of it, such as its form on a provider's wire. They are no part of the value."""

    @functools.cached_property
    def _forms(self) -> dict[str, bytes]:
        return {}

    def kept(self, form: str, make: Callable[[], bytes]) -> bytes:
        """Return one form of the value, made at its first use.

        Args:
          form: Name of the form, with everything that it depends on besides the value.
          make: Makes it. Contract: gives the same bytes whenever it is called for this value and name.
        """
        made = self._forms.get(form)
        if made is None:
            made = self._forms[form] = make()
        return made
