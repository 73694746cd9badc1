"""Work that takes long says so: a progress bar with rate and time left, and for a command a sentence and a cheaper way.

Left to itself (show=None) a bar appears on standard error after two seconds, and only where somebody sees it: in a
terminal, or in a notebook, there as a widget where ipywidgets is installed. True shows it at once and everywhere and
lets it stand, False never. Without tqdm there is no bar, and the work goes on.

A command speaks too (`speaking`), in a terminal or not: once a bar knows from its first steps that it will take more
than a minute, it says so in a sentence, with the time left and, where there is one, a cheaper way (`cheaper`). Where
nobody sees bars, as in a log, it says in lines what they would show, after two seconds and then ever more seldom. And
between bars it is never silent for long: a line says that it is at work, until it waits for others (`waiting`).
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import chain, repeat
from typing import Any, Protocol

from nescio._common.early_words import said_in_time
from nescio._common.formatting import count, duration, rough_duration
from nescio._common.terminals import assumed_size, in_notebook, in_terminal
from nescio._common.ticking import ever_rarer, ticking

LONG = 60.0
"""Seconds from which on work says how long it will take."""
clock = time.perf_counter
"""What all that is timed is timed by."""
SOON = 2.0
"""Seconds after which a bar appears, and after which its steps tell of the rest."""
BRIEF = 0.5
"""The same for a bar of a command that has been at work for so long without one."""
SLOW = 5 * SOON
"""Seconds from which on the first step alone tells of the rest."""
UNKNOWN = 20.0
"""Seconds after which work that cannot tell yet how long it takes names a cheaper way."""
OFTEN, SELDOM = 8.0, 600.0
"""Seconds between the first two lines that say the same of work, and the most between any two."""
TICK = 1.0
"""Seconds after which a bar in a terminal is drawn again, though no step has ended."""

READY = "nescio: getting ready; what follows says how long it takes"


class Bar(Protocol):
    """Anything that moves on by steps.

    Examples:
        >>> with nescio.progress.bar(3, show=False) as shown:
        ...     shown.update(3)
    """

    def update(self, n: int, /) -> object:
        """Move on by n steps.

        Args:
            n: How many.

        Returns:
            Nothing that is used.
        """


class _Speech:
    """What a command has to say of long work: of each kind of it once."""

    def __init__(self) -> None:
        self.advice = ""
        self.told: set[str] = set()
        self.began = clock()
        self.shown = 0
        """How many bars there are now, which speak for themselves."""
        self.last = ""
        """What the last one was of."""
        self.lines = 0
        """How many lines were said in the place of bars."""
        self.waits = False
        """Whether the command only waits for others now."""
        self.first_said: Callable[[], None] | None = None
        """Where another process says the first line: what keeps it from that."""
        self.hushed()

    @contextmanager
    def of_bar(self, description: str) -> Iterator[None]:
        """Leave it to a bar to speak, within the block."""
        self.shown += 1
        self.never_mind()
        try:
            yield
        finally:
            self.shown, self.last = self.shown - 1, description
            self.hushed()

    def never_mind(self) -> None:
        """Let the first line be, which is not needed any more."""
        if self.first_said is not None:
            self.first_said()

    def hushed(self) -> None:
        """Note that nothing says now how the work goes on."""
        self.since, self.due = time.monotonic(), ever_rarer(SOON, OFTEN, SELDOM)
        self.next = self.since + next(self.due)

    def look(self) -> None:
        """Say that the command is at work, if it was long silent."""
        now = time.monotonic()
        if self.shown or self.waits or now < self.next:
            return
        passed, self.next = now - self.since, now + next(self.due)
        if passed < OFTEN and not self.last:
            if self.first_said is None:
                _write(READY)
        else:
            _write(
                f"nescio: still at work after {rough_duration(passed)}" + (f" (done: {self.last})" if self.last else "")
            )


_speech: ContextVar[_Speech | None] = ContextVar("_speech", default=None)


@contextmanager
def speaking() -> Iterator[None]:
    """Let long work inside the block say how long it will take.

    Returns:
        The context manager.

    Examples:
        >>> with nescio.progress.speaking():
        ...     scores = nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), "entropy")
    """
    speech = _Speech()
    before = _speech.set(speech)
    try:
        with said_in_time(READY, SOON) as speech.first_said, ticking(repeat(min(SOON, TICK) / 4), speech.look):
            yield
    finally:
        _speech.reset(before)


def cheaper(advice: str) -> None:
    """Say what to do where work takes too long; the block of `speaking` adds it to its sentence, if there is one.

    Args:
        advice: The end of a sentence.

    Examples:
        >>> with nescio.progress.speaking():
        ...     nescio.progress.cheaper("--method entropy takes one forward pass")
    """
    speech = _speech.get()
    if speech is not None:
        speech.advice = advice


def waiting() -> None:
    """Say that the command waits for others from here on, such as for requests: then it may be silent.

    Examples:
        >>> nescio.progress.waiting()
    """
    speech = _speech.get()
    if speech is not None:
        speech.waits = True
        speech.never_mind()


def foretell(left: float, steps: int, description: str, unit: str = "input") -> None:
    """Say that more steps will take so many seconds, where that is long, a command wants it and it was not said.

    Args:
        left: The seconds.
        steps: How many steps are left.
        description: What is done.
        unit: What a step is.

    Examples:
        >>> nescio.progress.foretell(600.0, 100, "Scoring")  # outside of `speaking` nothing is said
    """
    speech = _speech.get()
    if speech is None or left <= LONG or description in speech.told:
        return
    speech.told.add(description)
    each = duration(left / steps, digits=2)
    words = f"{description} will take about {rough_duration(left)} more: {count(steps, unit)}, {each} each"
    _write(f"nescio: {words}" + (f"; {speech.advice}" if speech.advice else ""))


def _write(line: str) -> None:
    """On standard error, and not into a bar."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)  # a thread may find it half imported
    if tqdm is not None:
        tqdm.write(line, file=sys.stderr)
    elif sys.stderr is not None:
        print(line, file=sys.stderr)


class _Watched:
    """A bar that says how long it will take, once its first steps tell."""

    def __init__(self, speech: _Speech, shown: Bar, total: int | None, description: str, unit: str) -> None:
        self.speech, self.shown, self.total, self.description, self.unit = speech, shown, total, description, unit
        self.done, self.first, self.began, self.warm = 0, 0, clock(), clock()

    def update(self, n: int, /) -> None:
        """Move on by n steps. In the first ones work sets itself up: alone they tell of the rest if they are slow."""
        self.shown.update(n)
        now, alone = clock(), self.first == 0
        self.done += n
        if alone:
            self.first, self.warm = self.done, now
        steps, passed = (self.done, now - self.began) if alone else (self.done - self.first, now - self.warm)
        left = 0 if self.total is None else self.total - self.done
        if now - self.began >= (SLOW if alone else SOON) and steps > 0 and left > 0:
            foretell(passed / steps * left, left, self.description, self.unit)

    def advise(self) -> None:
        """Name a cheaper way, if the steps do not tell yet how long it will take."""
        if self.speech.advice and (self.total is None or self.done == 0):
            _write(f"nescio: this takes long ({self.description}); {self.speech.advice}")


class _Lines:
    """A bar where nobody would see one: it says in lines how far the work is."""

    def __init__(self, speech: _Speech, total: int | None, description: str, unit: str, left: Any) -> None:
        self.speech, self.total, self.description, self.unit = speech, total, description, unit
        self.done, self.began, self.left = 0, clock(), left

    def update(self, n: int, /) -> None:
        """Move on by n steps."""
        self.done += n

    def say(self) -> None:
        """Say how many steps are done, what one takes, and how long the rest will."""
        self.speech.lines += 1
        passed, done, total = clock() - self.began, self.done, self.total
        words = count(done, self.unit) if total is None else f"{done:,} of {count(total, self.unit)}"
        words += f" after {rough_duration(passed)}"
        if done and self.left is None:
            words += f", {duration(passed / done, digits=2)} each"
        rest = 0 if total is None or not done else total - done
        if rest and (left := passed / done * rest if self.left is None else self.left(rest)) is not None:
            words += f", about {rough_duration(left)} left"
        _write(f"nescio: {self.description}: {words}")


def growing(total: int, most: int) -> Iterator[range]:
    """Give ranges of steps that grow from one to `most`: the first ones soon tell how long the rest will take.

    Args:
        total: The number of steps.
        most: The most steps of a range.

    Returns:
        The ranges.

    Examples:
        >>> list(nescio.progress.growing(9, 4))
        [range(0, 1), range(1, 3), range(3, 7), range(7, 9)]
    """
    start, size = 0, 1
    while start < total:
        yield range(start, min(start + size, total))
        start, size = start + size, min(2 * size, most)


class _Silent:
    def update(self, n: int, /) -> None:
        pass


@contextmanager
def bar(
    total: int | None,
    *,
    show: bool | None = None,
    description: str = "",
    unit: str = "input",
    foretells: bool = True,
    left: Callable[[int], float | None] | None = None,
) -> Iterator[Bar]:
    """Show a progress bar that is closed when the block is left.

    Args:
        total: How many steps there are; None: not known.
        show: True shows it at once, False never; None where somebody sees it, after two seconds.
        description: What is done.
        unit: What a step is.
        foretells: Whether its steps tell how long the rest will take; False where the block calls `foretell` itself.
        left: Seconds that so many more steps take, or None for not known yet, where the time that passes does not tell.

    Returns:
        The context manager, which gives a `Bar`.

    Examples:
        >>> with nescio.progress.bar(3, show=False) as shown:
        ...     for _ in range(3):
        ...         shown.update(1)
    """
    speech = None if show is False else _speech.get()
    tqdm = _tqdm() if (_is_watched() if show is None else show) else None
    delay = SOON if show is None else 0.0
    size = None if in_notebook() else assumed_size()
    settings: dict[str, Any] = {} if size is None else {"ncols": size.columns, "nrows": size.lines}
    if left is not None:
        settings["bar_format"] = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}]"
    with ExitStack() as stack:
        shown: Any = None
        if speech is not None:
            delay = min(delay, max(BRIEF, speech.began + SOON - clock()))
            stack.enter_context(speech.of_bar(description))
        if tqdm is not None:
            settings |= {"desc": description, "unit": f" {unit}", "leave": bool(show), "file": sys.stderr}
            shown = stack.enter_context(tqdm(total=total, delay=delay, **settings))
            if in_terminal() and not in_notebook():  # by itself it is drawn when a step ends, which may take long
                stack.enter_context(ticking(chain([delay or TICK], repeat(TICK)), shown.refresh))
        elif speech is not None:
            shown = _Lines(speech, total, description, unit, left)
            wait = max(delay, min(SOON * 2**speech.lines, LONG))
            stack.enter_context(ticking(ever_rarer(wait, OFTEN, SELDOM), shown.say))
        if speech is not None and foretells:
            shown = _Watched(speech, shown, total, description, unit)
            stack.enter_context(ticking([UNKNOWN], shown.advise))
        yield _Silent() if shown is None else shown


def _is_watched() -> bool:
    """Whether somebody sees a bar: in a terminal or a notebook."""
    return in_terminal() or in_notebook()


def _tqdm() -> Any:
    try:
        if in_notebook():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # without ipywidgets it is a bar of text
                from tqdm.auto import tqdm as fitting
            return fitting
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
