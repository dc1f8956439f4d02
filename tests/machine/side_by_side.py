"""A store and the model side by side: how both are opened, called and closed, and how a machine of them is run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar, cast

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from flue_py.db.backend import Backend
from flue_py.db.runner import Sources
from tests.model import StoreModel
from tests.sources import OpenBackend, StepSources

T = TypeVar("T")


class SideBySide(RuleBasedStateMachine):
    """A store and the model, with the same ids and the same time at each step."""

    open_backend: ClassVar[Callable[[Sources], Awaitable[Backend]]]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._steps = (StepSources(), StepSources())
        self._model = cast("Backend", StoreModel(self._steps[0].sources))
        self._store: Backend = self._run(type(self).open_backend(self._steps[1].sources))

    def teardown(self) -> None:
        """Finish, and close the store."""
        try:
            self.finish()
        finally:
            self._run(self._store.close())
            self._runner.close()

    def finish(self) -> None:
        """Let the store check itself."""
        assert self._run(self._store.verify()).problems == []

    def _run(self, awaitable: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await awaitable

        # `Runner.run` would take over SIGINT and give it back each time, which takes longer than most answers.
        return self._runner.get_loop().run_until_complete(awaited())


def run_machine(
    machine: type[SideBySide], open_backend: OpenBackend, share: float, step_share: float, **members: object
) -> None:
    """Run a machine over a backend, with these shares of the profile's examples and of the steps of each."""
    profile = settings()
    examples = max(3, round(profile.max_examples * share))
    steps = max(10, round(profile.stateful_step_count * step_share))
    made = type("Machine", (machine,), {"open_backend": staticmethod(open_backend), **members})
    run_state_machine_as_test(made, settings=settings(max_examples=examples, stateful_step_count=steps))
