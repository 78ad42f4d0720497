"""A window in which somebody types, and waits for what is to be seen."""

from contextlib import asynccontextmanager

from .window import open_window


class Screen:
    """A window whose text can be looked at as a whole."""

    def __init__(self, window):
        self.window = window
        self.type = window.type
        self.ends = window.end
        self.resize = window.resize
        self.hang_up = window.close

    @property
    def process(self):
        return self.window.process

    @property
    def raw(self):
        return self.window.raw

    @property
    def modes(self):
        return self.window.modes()

    @property
    def rows(self):
        return self.window.shown

    @property
    def text(self):
        """What has scrolled off the top, and the screen."""
        return "\n".join(self.window.everything)

    @property
    def unwrapped(self):
        return self.text.replace("\n", "")

    async def until(self, condition):
        await self.window.wait_for(condition)

    async def shows(self, *texts):
        """Wait until all of these can be seen at once, lines that have scrolled off included."""
        try:
            await self.until(lambda: all(text in self.text for text in texts))
        except AssertionError as error:
            raise AssertionError(f"{texts!r} cannot all be seen: {error}") from None


@asynccontextmanager
async def open_screen(started, *, columns=80, rows=24, **variables):
    """Start a process on a pseudo-terminal; it is killed if it has not ended with the block."""
    async with open_window(started, columns=columns, lines=rows, **variables) as window:
        yield Screen(window)
