"""From the name of a model, or one of pydantic-ai, to a `Model`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flue_py.core.model import Model, check_amount
from flue_py.errors import InvalidArgument, MissingExtra, ModelDenied, shown

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.providers import Provider


# ---------------------------------------------------------------------------------------------------------------------
# How long an answer of a known model may be. (How large its window is, pydantic-ai knows by genai-prices.)

_MAX_OUTPUT = {
    # The pages of the models at https://platform.openai.com/docs/models
    **dict.fromkeys(("gpt-5", "gpt-5-mini", "gpt-5-nano"), 128_000),
    **dict.fromkeys(("o1", "o3", "o3-mini", "o3-pro", "o4-mini"), 100_000),
    **dict.fromkeys(("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"), 32_768),
    **dict.fromkeys(("gpt-4o", "gpt-4o-mini"), 16_384),
    # The pages of the models at https://ai.google.dev/gemini-api/docs/models
    **dict.fromkeys(("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"), 65_536),
}
"""Of models whose provider says so: a name that is not here, or here with a date behind it, is unknown."""

_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$")


def max_output_of(model: TheirModel) -> int | None:
    """Return how many tokens an answer may have, None if that is not known. O(1)."""
    try:
        told = model.profile.get("anthropic_max_output_tokens")
    except NotImplementedError:  # several models behind one
        return None
    return told if isinstance(told, int) else _MAX_OUTPUT.get(_DATE.sub("", model.model_name))


# ---------------------------------------------------------------------------------------------------------------------
# Keys of providers, which no error and no ``repr`` may show.

_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|AIza)[-_]?[\w*-]{12,}|(?<=Bearer )\S{8,}")
_SHORTEST = 8
_HIDDEN = "[hidden]"


class Secrets:
    """The keys that a model was opened with. Its ``repr`` shows none of them."""

    def __init__(self, keys: Iterable[str]) -> None:
        # A short one is no key but a stand-in, and would be hidden in the midst of words.
        self._keys = sorted({key for key in keys if len(key) >= _SHORTEST}, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without the keys, and without what looks like one."""
        for key in self._keys:
            text = text.replace(key, _HIDDEN)
        return _LOOKS_LIKE_A_KEY.sub(_HIDDEN, text)

    def are_told_by(self, error: BaseException) -> bool:
        """Return whether a traceback of an error would show a key, by its own text or that of what it came from."""
        return any(self.hidden(text) != text for each in _chain(error) for text in (str(each), repr(each)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._keys)} hidden)"


def keys_of(model: object) -> Iterator[str]:
    """Yield the keys of the clients behind a model of pydantic-ai, those of wrapped models included."""
    client = getattr(model, "client", None)
    for name in ("api_key", "auth_token"):
        key = getattr(client, name, None)
        if isinstance(key, str):
            yield key
    wrapped = getattr(model, "wrapped", None)
    for each in (*(getattr(model, "models", None) or ()), *([] if wrapped is None else [wrapped])):
        yield from keys_of(each)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


# ---------------------------------------------------------------------------------------------------------------------
# From the name of a model, or one of pydantic-ai, to a `Model`.


def open_model(
    model: str | TheirModel,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    settings: Mapping[str, object] | None = None,
    context_window: int | None = None,
    max_output_tokens: int | None = None,
    stream: bool | None = None,
    account: str | None = None,
) -> Model:
    """Return a model of pydantic-ai as a `Model`: by its name, such as ``"anthropic:claude-sonnet-4-5"``, or as it is.

    A name takes ``api_key`` and ``base_url``; without them the provider's own environment variables count, such as
    ``OPENAI_API_KEY``. ``settings`` are pydantic-ai's ``ModelSettings`` for each call, over those of the model; where
    they do not say ``max_retries``, nothing is sent twice: to wait is up to the caller. ``context_window`` and
    ``max_output_tokens`` are those of the model by default, as far as they are known. With ``stream`` an answer is read
    as it comes: by default only that of Anthropic, which then tells what an answer cost that breaks off. ``account`` is
    a name of yours for whose key it is: what a provider compacted itself goes back to the same account alone.

    It holds no connection between calls, needs no closing, and may be used by several tasks, and by one event loop
    after the other. Raises `MissingExtra`, `ModelDenied` where there is no key, and `InvalidArgument` naming the
    argument. Nothing is sent.
    """
    check_amount(context_window, "context_window")
    check_amount(max_output_tokens, "max_output_tokens")
    if account is not None and (not isinstance(account, str) or not account):
        raise InvalidArgument(f"account: should be a string with characters or None, not {shown(account)}")
    for name, text in (("api_key", api_key), ("base_url", base_url)):
        if not isinstance(text, (str, type(None))):
            # What was given in place of a key may show one.
            raise InvalidArgument(f"{name}: should be a string or None, not one of type {type(text).__name__}")
    found = _found(model, {"api_key": api_key, "base_url": base_url})
    from flue_py.models.calling import CalledModel  # noqa: PLC0415 - needs the extra, which is there

    return CalledModel(
        found,
        settings=_checked_settings(settings, found),
        context_window=context_window or found.context_window,
        max_output_tokens=max_output_tokens or max_output_of(found),
        stream=found.system == "anthropic" if stream is None else stream,
        secrets=Secrets([*([] if api_key is None else [api_key]), *keys_of(found)]),
        account=account,
    )


def _found(model: object, given: Mapping[str, str | None]) -> TheirModel:
    try:
        from pydantic_ai.models import Model as TheirModel  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra("models", "a model of a provider") from error
    told = {name: value for name, value in given.items() if value is not None}
    if isinstance(model, TheirModel):
        if told:
            raise InvalidArgument(f"{next(iter(told))}: is for a model that is named; give it to the model's provider")
        return model
    if not isinstance(model, str):
        raise InvalidArgument(
            f"model: should be a name such as 'openai:gpt-5' or a model of pydantic-ai, not {shown(model)}"
        )
    return _named(model, told)


def _named(name: str, told: Mapping[str, str]) -> TheirModel:
    from pydantic_ai.exceptions import UserError  # noqa: PLC0415 - an extra
    from pydantic_ai.models import infer_model  # noqa: PLC0415 - an extra

    secrets = Secrets([told["api_key"]] if "api_key" in told else [])
    try:
        return infer_model(name, lambda provider: _provider(provider, told, name))
    except ImportError as error:
        detail = f"the model {shown(name)} needs a package that is not installed: {error}"
        raise MissingExtra("models", f"the model {shown(name)}", detail=detail) from error
    except (UserError, ValueError) as error:
        wrong = f"model: {shown(name)} is not a model that can be opened: {secrets.hidden(str(error))}"
        cause = None if secrets.are_told_by(error) else error
    raise InvalidArgument(wrong) from cause


def _provider(provider: str, told: Mapping[str, str], name: str) -> Provider[Any]:
    from pydantic_ai.exceptions import UserError  # noqa: PLC0415 - an extra
    from pydantic_ai.providers import infer_provider, infer_provider_class  # noqa: PLC0415 - an extra

    try:
        if not told:
            return infer_provider(provider)
        # A provider that takes no key or address is told by its constructor alone.
        made: Any = infer_provider_class(provider)
        try:
            return made(**told)  # type: ignore[no-any-return]
        except TypeError as error:
            raise InvalidArgument(f"{' and '.join(told)}: the provider {shown(provider)} does not take that") from error
    except UserError as error:
        raise ModelDenied(f"model {shown(name)} cannot be called: {error}", provider=provider, model=name) from error


def _checked_settings(settings: object, model: TheirModel) -> dict[str, object]:
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidArgument(f"settings: should be ModelSettings of pydantic-ai or None, not {shown(settings)}")
    # A client that waits and sends again would hide what it cost, and the delay that the provider asks for.
    quiet: dict[str, object] = {} if "max_retries" in model.unsupported_settings else {"max_retries": 0}
    return {**quiet, **(model.settings or {}), **(settings or {})}
