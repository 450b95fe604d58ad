"""What a program is: a state, and the effects that can begin now.

Owns the shape that the runtime drives. Must not know any particular program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from effects import Effect, Outcome

StateT = TypeVar("StateT")
InputsT = TypeVar("InputsT")


@dataclass(frozen=True, slots=True)
class Next(Generic[StateT]):
    """Where a program stands; with no effects here and none in flight, it has ended."""

    state: StateT
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Program(Generic[InputsT, StateT]):
    """Three pure functions."""

    start: Callable[[InputsT], Next[StateT]]
    """From inputs to the first effects, or none where there is nothing to do."""
    react: Callable[[StateT, Outcome], Next[StateT]]
    """From an outcome, any outcome in any order, to what can begin after it."""
    abort: Callable[[StateT, str], Next[StateT]]
    """From the type of an exception to what is still to be done when the program itself broke."""
