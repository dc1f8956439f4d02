"""From the name of a model, or one of pydantic-ai, to a `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flue_py.core.model_seam import Model, check_amount
from flue_py.errors import InvalidArgument, MissingExtra, ModelDenied, shown
from flue_py.models.limits import max_output_of
from flue_py.models.secrets import Secrets, keys_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.providers import Provider


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
