"""The contract: the model and the thinking level that a path has."""

from __future__ import annotations

from flue_py.core.entries import NewEntry, PathSettings, settings_on
from flue_py.core.sessions import STORED, NewSession
from flue_py.db.backend import Backend
from flue_py.errors import EntryNotFound
from tests.checks import refused
from tests.samples import UNKNOWN, add, compaction, new_session, path_of, talk, user


def level(name: object) -> NewEntry:
    return NewEntry.custom("thinking_level_change", {"thinkingLevel": name})  # type: ignore[dict-item]


def model(provider: str, name: str) -> NewEntry:
    return NewEntry.custom("model_change", {"provider": provider, "modelId": name})


def answer(provider: str, name: str) -> NewEntry:
    said = {"role": "assistant", "content": [], "provider": provider, "model": name}
    return NewEntry.message(said)  # type: ignore[arg-type]


class SettingsContract:
    """Settings on a path."""

    async def test_the_last_settings_of_the_path_are_in_force_and_a_branch_has_its_own(self, backend: Backend) -> None:
        session = await new_session(backend)
        assert await backend.read_settings(session.id) == PathSettings()
        ids = await add(
            backend,
            session.id,
            level("low"),
            user(),
            model("openai", "one"),
            answer("anthropic", "two"),
            level("high"),
            *talk(1),
            model("openai", "three"),
            user(),
        )
        told = [await backend.read_settings(session.id, leaf=each) for each in ids]
        assert told == [
            PathSettings("low"),
            PathSettings("low"),
            PathSettings("low", "openai", "one"),
            PathSettings("low", "anthropic", "two"),
            *[PathSettings("high", "anthropic", "two")] * 2,
            *[PathSettings("high", "openai", "three")] * 2,
        ]
        assert await backend.read_settings(session.id) == told[-1]
        assert await backend.read_settings(session.id, leaf=None) == PathSettings()
        await backend.move(session.id, ids[3])
        assert await backend.read_settings(session.id) == told[3]
        # Over forks of forks, and past a compaction.
        fork = await backend.fork(session.id, ids[3], NewSession())
        (own,) = await add(backend, fork.id, user())
        deeper = await backend.fork(fork.id, STORED, NewSession())
        await add(backend, deeper.id, compaction(own), user(), level("medium"))
        assert await backend.read_settings(fork.id) == told[3]
        assert await backend.read_settings(deeper.id) == PathSettings("medium", "anthropic", "two")
        assert settings_on(await path_of(backend, deeper.id)) == await backend.read_settings(deeper.id)

    async def test_what_names_nothing_leaves_the_setting_unknown(self, backend: Backend) -> None:
        session = await new_session(backend, level("high"), model("p", "m"))
        odd = [level(""), level(7), level(None), NewEntry.custom("thinking_level_change", "high")]
        for entry in odd:
            await add(backend, session.id, entry)
            assert await backend.read_settings(session.id) == PathSettings(None, "p", "m")
        await add(backend, session.id, NewEntry.message({"role": "assistant", "content": []}))
        assert await backend.read_settings(session.id) == PathSettings()

    async def test_settings_at_what_the_session_does_not_see_are_refused(self, backend: Backend) -> None:
        session = await new_session(backend, user())
        async with refused(backend, EntryNotFound):
            await backend.read_settings(session.id, leaf=UNKNOWN)
