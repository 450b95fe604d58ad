"""What a program is: a state, and the effects that can begin now.

Owns the shape that the runtime drives. Must not know any particular program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from effects import Effect, Outcome

StateT = TypeVar("StateT")
InputsT_contra = TypeVar("InputsT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Next(Generic[StateT]):
    """Where a program stands; with no effects here and none in flight, it has ended."""

    state: StateT
    effects: tuple[Effect, ...] = ()


class Program(Protocol[InputsT_contra, StateT]):
    """Three pure functions."""

    def start(self, inputs: InputsT_contra) -> Next[StateT]:
        """Return the first effects, or none where there is nothing to do."""

    def react(self, state: StateT, outcome: Outcome) -> Next[StateT]:
        """Return what can begin after an outcome; any outcome, in any order."""

    def abort(self, state: StateT, error_type: str) -> Next[StateT]:
        """Return what is still to be done when the program itself broke."""
