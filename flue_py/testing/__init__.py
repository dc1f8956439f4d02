"""What a store must pass: a contract, state machines that compare it with a reference model, and strategies.

A backend of your own is tested by a subclass in a test module (needs the extra ``test``)::

    class TestMine(BackendContract):
        @pytest.fixture
        def open_backend(self, tmp_path: Path) -> OpenBackend:
            async def open_it(sources: Sources) -> Backend:
                return await open_mine(tmp_path / str(uuid4()), sources)

            return open_it

and a fixture ``anyio_backend`` that returns ``"asyncio"``. `BackendMachine`, `check_budgets` and `check_deletion`
take a function of the same shape. pytest and Hypothesis are imported here and nowhere else in this library;
`postgres`, which measurements use too, needs neither.
"""

from __future__ import annotations

import sys
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from flue_py.lazy import lazy_modules

if "pytest" in sys.modules:
    import pytest

    # So that a failing assert of any module here shows its values, as it would in a test module.
    pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__)
