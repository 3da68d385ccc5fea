"""What the Python client programs share: they make the calls of `CALLS` one after the other.

For each call they print one JSON line with what the library hands to its user, or with what it throws.
"""

import asyncio
import base64
import dataclasses
import datetime
import enum
import inspect
import json
import math
import os
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import Any

import openai
import pydantic

Call = Callable[[], Awaitable[Any]]

BASE_URL = os.environ["BASE_URL"]
API_KEY = os.environ["API_KEY"]
MODEL = os.environ["MODEL"]
EMBEDDING_MODEL = os.environ["EMBEDDING_MODEL"]

# Fields of errors that hold objects of the HTTP library, or texts of the library itself about its own options.
HIDDEN = {"request", "response", "llm_provider", "litellm_debug_info", "with_traceback"}


def make_calls(calls: Mapping[str, Call]) -> None:
    """Makes the calls that the environment names, in its order."""
    asyncio.run(_make_all(calls))


async def _make_all(calls: Mapping[str, Call]) -> None:
    # Libraries print hints to standard output, which is for results.
    results, sys.stdout = sys.stdout, sys.stderr
    for name in os.environ["CALLS"].split(","):
        try:
            outcome = {"call": name, "result": plain(await calls[name]())}
        except Exception as error:
            outcome = {"call": name, "error": plain_error(error)}
        print(json.dumps(outcome), file=results, flush=True)


async def settle(value: Any) -> Any:
    """The value of a call, whether the client is synchronous or not."""
    return await value if inspect.isawaitable(value) else value


async def items_of(stream: Any) -> list[Any]:
    """All items of a stream, synchronous or not."""
    return [item async for item in _each(stream)]


async def collect(stream: Any) -> Any:
    """The items until a stream ends or throws, with what it throws."""
    items: list[Any] = []
    try:
        async for item in _each(stream):
            # Some libraries yield one object that grows, so each state is written down when it comes.
            items.append(plain(item))
    except Exception as error:
        return {"items": items, "thrown": plain_error(error)}
    return items


async def _each(stream: Any) -> AsyncIterable[Any]:
    if isinstance(stream, AsyncIterable):
        async for item in stream:
            yield item
    else:
        for item in stream:
            yield item


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it; what JSON does not have is named."""
    if depth > 20:
        return "<deeper>"
    if value is None or isinstance(value, (bool, int, str)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, enum.Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, (bytes, bytearray)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, BaseException):
        return plain_error(value, depth + 1)
    if isinstance(value, Mapping):
        return {str(name): plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, pydantic.BaseModel):
        return _plain_model(value, depth)
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {each.name: plain(getattr(value, each.name, None), depth + 1) for each in fields}
    if isinstance(value, Iterable):
        return [plain(each, depth + 1) for each in value]
    return f"<{type(value).__name__}>"


def _plain_model(value: pydantic.BaseModel, depth: int) -> Any:
    names = list(type(value).model_fields)
    if isinstance(value, openai.BaseModel):
        # The SDK's objects tell a field that is missing from one that is null.
        names = [name for name in names if name in value.model_fields_set]
    # A library may build an object without all of its fields.
    fields = {name: plain(getattr(value, name), depth + 1) for name in names if hasattr(value, name)}
    extra = {name: plain(each, depth + 1) for name, each in (value.model_extra or {}).items()}
    identity = getattr(value, "_request_id", None)
    return {**fields, **extra, **({} if identity is None else {"_request_id": identity})}


def plain_error(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """What a program that catches an error can read of it."""
    fields = {
        name: plain(each, depth + 1)
        for name, each in vars(error).items()
        if name not in HIDDEN and not name.startswith("_")
    }
    cause = {} if error.__cause__ is None or depth > 3 else {"cause": plain_error(error.__cause__, depth + 1)}
    status = getattr(error, "status_code", None)
    return {
        **fields,
        **cause,
        **({} if status is None else {"status": status}),
        "class": type(error).__name__,
        "message": str(error),
    }
