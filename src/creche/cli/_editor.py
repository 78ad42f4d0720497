"""The line that is typed, with what was said above it and who works below: everything here runs in a thread of its own.

The package for it has an asyncio loop, which this thread runs. Others reach it through `Editor.call`, and it tells what
was typed through one function that may be called from any thread.

Rule 1: what comes out goes above the line in one piece, with the terminal left in raw mode: a key that is pressed
meanwhile is a key, and never a signal or an echo. It leaves that mode only to be stopped.
Rule 2: a question takes the keys only when the line that is being typed is empty, the question is on the screen, and
nothing that was typed before waits to be read. So nothing typed is lost, or taken for an answer.
"""

import os
import select
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import trio
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from ._keys import Interrupted, Key, Left, Typed
from ._tail import NOTE, PLAIN, QUESTION, TYPED, Fragment, Tail, wrap_words
from ._unbuffered import unbuffered_output

PROMPT, QUESTION_PROMPT = "> ", "? "
FINISH_FIRST = "a question waits: send this line or clear it (Ctrl-U), then answer"
STYLE = Style([(PLAIN, ""), (TYPED, "bold"), (NOTE, "fg:ansibrightblack"), (QUESTION, "bold"), ("prompt", "bold")])
"""Styles of lines."""


class Editor:
    """Draws and reads the terminal. Made anywhere, used in its thread, but for `call`.

    Args:
      waiting: What is to be written; others append to it and `call` for `flush`.
      history: What was typed before.
      tell: Called with what is typed.
      when_begun: Called when keys are read.
    """

    def __init__(
        self,
        waiting: deque[Fragment],
        history: History,
        *,
        tell: Callable[[Key], None],
        when_begun: Callable[[], None],
    ) -> None:
        self.tail = Tail()
        """The paragraph of the answer that is not complete."""
        self._waiting = waiting
        self._tell = tell
        self._when_begun = when_begun
        self._status = ""
        self._has_just_interrupted = False
        self._question: Callable[[str], None] | None = None
        self._is_answering = False
        self._failure: BaseException | None = None
        self._draft = Buffer(
            multiline=False, history=history, accept_handler=self._accept, on_text_changed=self._note_change
        )
        self._answer = Buffer(multiline=False, accept_handler=self._accept_answer, on_text_changed=self._note_change)
        self._app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=self._bindings(),
            style=STYLE,
            input=create_input(),
            output=unbuffered_output(),
            erase_when_done=True,
            after_render=self._let_answer,
        )

    # ---------------------------------------------------------------- from any thread

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """Let its thread call one of the functions below; nothing happens if it has ended."""
        loop = self._app.loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended since
                loop.call_soon_threadsafe(function, *arguments)

    # ---------------------------------------------------------------- in its thread

    def run(self) -> None:
        """Read keys until `end`.

        Raises:
          EOFError: The terminal has gone.
          OSError: The same.
        """
        self._app.run(pre_run=self._begin, set_exception_handler=False, handle_sigint=False)
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Take the line away and let `run` return."""
        if self._is_live:
            self._app.exit()

    def flush(self) -> None:
        """Write what waits."""
        if not self._is_live:
            return  # and whoever ended it writes what waits
        complete: StyleAndTextTuples = []
        columns = self._app.output.get_size().columns
        while self._waiting:
            style, text = self._waiting.popleft()
            taken = self.tail.take((style, wrap_words(text, columns) if style in (NOTE, QUESTION) else text))
            if taken is not None:
                complete.append((f"class:{style}" if style else "", taken[1]))
        if complete:
            self._app.renderer.erase()
            print_formatted_text(self._app.output, FormattedText(complete), STYLE)
            self._app.output.flush()
        self._app.invalidate()

    def show_status(self, status: str) -> None:
        """Show who works."""
        if status != self._status:
            self._status = status
            self._app.invalidate()

    def clear(self) -> None:
        """Clear the line that is being typed; the history has it."""
        self._has_just_interrupted = False
        self._draft.reset(append_to_history=True)
        self._app.invalidate()

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        has_draft = bool(self._draft.text)
        self._tell(Interrupted(again=self._has_just_interrupted, has_draft=has_draft))
        self._has_just_interrupted = True

    def begin_question(self, take: Callable[[str], None]) -> None:
        """Let the next line answer a question; see rule 2 about when."""
        self._question = take
        self._app.invalidate()

    def end_question(self) -> None:
        """Let lines be lines again."""
        self._question = None
        self._is_answering = False
        self._answer.reset()
        self._app.layout.focus(self._draft)
        self._app.invalidate()

    # ---------------------------------------------------------------- inside

    @property
    def _is_live(self) -> bool:
        return self._app.is_running and not self._app.is_done

    def _begin(self) -> None:
        loop = self._app.loop
        assert loop is not None, "it runs"
        loop.set_exception_handler(lambda _, context: self._fail(context))
        self._when_begun()

    def _fail(self, context: dict[str, object]) -> None:
        """Let `run` raise what went wrong in a callback."""
        error = context.get("exception")
        self._failure = self._failure or (
            error if isinstance(error, BaseException) else RuntimeError(str(context["message"]))
        )
        self.end()

    def _layout(self) -> Layout:
        search = SearchToolbar()
        is_answering = Condition(lambda: self._is_answering)
        draft = _line_window(PROMPT, BufferControl(self._draft, search_buffer_control=search.control))
        answer = _line_window(QUESTION_PROMPT, BufferControl(self._answer))
        tail = Window(
            FormattedTextControl(self._tail_text, get_cursor_position=lambda: Point(0, 0)), dont_extend_height=True
        )
        return Layout(
            HSplit(
                [
                    ConditionalContainer(tail, filter=Condition(lambda: bool(self.tail))),
                    ConditionalContainer(draft, filter=~is_answering),
                    ConditionalContainer(answer, filter=is_answering),
                    search,
                    Window(FormattedTextControl(self._status_text), height=1, style="class:bottom-toolbar"),
                ]
            ),
            focused_element=draft,
        )

    def _tail_text(self) -> str:
        size = self._app.output.get_size()
        return "\n".join(self.tail.rows(size.columns, max(size.rows // 2, 1)))

    def _status_text(self) -> str:
        return FINISH_FIRST if self._question is not None and not self._is_answering else self._status

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        is_empty = Condition(lambda: not self._app.current_buffer.text)

        @keys.add("c-c", filter=~is_searching)
        def _interrupt(_: KeyPressEvent) -> None:
            self.interrupt()

        @keys.add("c-d", filter=is_empty & ~is_searching)
        def _leave(_: KeyPressEvent) -> None:
            self._tell(Left())

        @keys.add("escape", "enter")
        def _newline(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @keys.add("c-z")
        def _stop(_: KeyPressEvent) -> None:
            run_in_terminal(_stop_all)

        return keys

    def _note_change(self, _: Buffer) -> None:
        self._has_just_interrupted = False

    def _accept(self, buffer: Buffer) -> bool:
        self._has_just_interrupted = False
        self._tell(Typed(buffer.text))
        return False

    def _accept_answer(self, buffer: Buffer) -> bool:
        take, text = self._question, buffer.text
        self._waiting.append((TYPED, f"{QUESTION_PROMPT}{text}"))
        self.flush()
        self.end_question()
        assert take is not None, "a question takes the keys"
        take(text)
        return False

    def _let_answer(self, _: object) -> None:
        if self._question is None or self._is_answering or self._draft.text or is_searching():
            return
        if select.select([self._app.input.fileno()], [], [], 0)[0]:
            return  # it is read, and then there is another rendering
        self._is_answering = True
        self._app.layout.focus(self._answer)
        self._app.invalidate()


def _stop_all() -> None:
    """Stop this process and those that a shell started with it, until the shell goes on with them.

    The main thread does it: it is stopped before it goes on, another one may be so a little later, and would draw.
    """
    trio.from_thread.run_sync(os.kill, 0, signal.SIGTSTP)


def _line_window(prompt: str, control: BufferControl) -> Window:
    """Return where a line is typed: behind its prompt, and as high as it is."""

    def prefix(line: int, wraps: int) -> StyleAndTextTuples:
        return [("class:prompt", " " * len(prompt) if line or wraps else prompt)]

    return Window(control, get_line_prefix=prefix, dont_extend_height=True, wrap_lines=True)
