"""Which session of ours a session of the SDK is: the one of its id, or one of its branches, which are forks of that."""

from __future__ import annotations

from flue_py.adapters.keys import key_of, metadata_of
from flue_py.core.jsontext import JsonObject
from flue_py.errors import InvalidArgument, RevisionConflict, SessionNotFound, shown
from flue_py.sessions.session import Session
from flue_py.sessions.store import Store

MAIN = "main"
"""The branch that every session begins on."""

BRANCHES = "openaiAgentsBranches"
"""The field of a session's metadata that has the ids of its branches, by their names."""


class Below:
    """The handle on the session of an id, and which of its branches is in use."""

    def __init__(self, session_id: str) -> None:
        """Note the id. Raises `InvalidArgument` if it is not a string."""
        self.session_id = session_id
        self.branch = MAIN
        self._key = key_of(session_id)
        self._handle: Session | None = None

    def forget(self) -> None:
        """Look the session up again the next time, on its main branch: it has been deleted."""
        self._handle, self.branch = None, MAIN

    async def lost(self, store: Store) -> None:
        """Look the session up again, as it has been deleted. Raises `InvalidArgument` if that was a branch of it alone.

        Who writes to a branch that is gone must not write to the main one instead.
        """
        main, branch = await self._main(store), self.branch
        if main is not None and branch != MAIN:
            raise InvalidArgument(f"branch: {shown(branch)} has been deleted; switch_to_branch({MAIN!r}) leaves it")
        self.forget()

    async def found(self, store: Store) -> Session | None:
        """Return the session of the branch in use, or None if nothing was ever written, or it was deleted."""
        if self._handle is None:
            self._handle = await self._main(store)
        return self._handle

    async def made(self, store: Store) -> Session:
        """Return the session of the branch in use, created if nothing was ever written."""
        if self._handle is None:
            metadata = metadata_of(self.session_id)
            self._handle = await store.open_session(self._key, mode="get_or_create", metadata=metadata)
        return self._handle

    async def branches(self, store: Store) -> dict[str, Session]:
        """Return the sessions of the branches by name, in the order they were made; those deleted are left out."""
        main = await self._main(store)
        if main is None:
            return {}
        named = {name: await store.get_session(id) for name, id in _ids(main).items()}
        return {MAIN: main, **{name: session for name, session in named.items() if session is not None}}

    async def switched(self, store: Store, branch: str) -> Session:
        """Use another branch from now on, and return its session. Raises `InvalidArgument` if there is none."""
        session = (await self.branches(store)).get(branch) if isinstance(branch, str) else None
        if session is None:
            raise InvalidArgument(f"branch: {shown(branch)} does not exist; list_branches() names those that do")
        self._handle, self.branch = session, branch
        return session

    async def branched(self, store: Store, at: str | None, branch: str | None, otherwise: str) -> str:
        """Fork the branch in use at an entry, use the fork from now on, and return its name.

        Without a name it is ``otherwise``, with a number behind it where that is taken. Raises `InvalidArgument` for a
        name that is or was taken. One transaction.
        """
        current = await self.made(store)
        while True:
            main = await self._main(store)
            if main is None:
                raise SessionNotFound(self.session_id)
            ids = _ids(main)
            name = _free(otherwise, ids) if branch is None else branch
            if name == MAIN or name in ids:
                raise InvalidArgument(f"branch_name: {shown(name)} is taken; choose another one")
            metadata: JsonObject = {"openaiAgentsBranch": name}
            try:
                async with store.atomic() as batch:
                    fork = batch.fork(current, at=at, title=name, metadata=metadata)
                    known: JsonObject = {BRANCHES: {**ids, name: fork.id}}
                    batch.set_metadata(main, known, merge=True, expected_revision=main.revision)
            except RevisionConflict:
                continue
            self._handle, self.branch = fork, name
            return name

    async def _main(self, store: Store) -> Session | None:
        try:
            return await store.open_session(self._key)
        except SessionNotFound:
            return None


def _ids(main: Session) -> dict[str, str]:
    kept = main.metadata.get(BRANCHES)
    return {name: id for name, id in kept.items() if isinstance(id, str)} if isinstance(kept, dict) else {}


def _free(name: str, taken: dict[str, str]) -> str:
    number = 2
    free = name
    while free in taken or free == MAIN:
        free, number = f"{name}_{number}", number + 1
    return free
