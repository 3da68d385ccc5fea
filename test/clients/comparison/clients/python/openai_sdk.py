"""The official SDK, synchronous or not (the first word of the command line), in whichever version is installed."""

import json
import sys
from typing import Any

import openai
from program import API_KEY, BASE_URL, EMBEDDING_MODEL, MODEL, collect, items_of, make_calls, settle
from wanted import (
    CITY_FORMAT,
    RECORDING,
    RESPONSES_WEATHER,
    UNKNOWN_MODEL,
    WEATHER,
    City,
    messages_of,
    prompt_of,
)

kind = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}.get(sys.argv[1])
if kind is None:
    azure = {"azure": openai.AzureOpenAI, "azure-async": openai.AsyncAzureOpenAI}[sys.argv[1]]
    endpoint = BASE_URL.removesuffix("/v1")
    client = azure(azure_endpoint=endpoint, api_key=API_KEY, api_version="2025-04-01-preview")
else:
    client = kind(base_url=BASE_URL, api_key=API_KEY)

TOOLS = {"tools": [WEATHER], "tool_choice": "required"}
# The SDK's helper for streams parses the arguments, of strict tools only.
STRICT_TOOLS = {
    "tools": [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}],
    "tool_choice": "required",
}


def arguments(call: str, extra: dict[str, Any]) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages_of(call), "temperature": 0, "seed": 1, **extra}


async def chat(call: str, **extra: Any) -> Any:
    return await settle(client.chat.completions.create(**arguments(call, extra)))


async def chat_stream(call: str, **extra: Any) -> Any:
    return await collect(await chat(call, stream=True, **extra))


def head_of(raw: Any) -> dict[str, Any]:
    """What the SDK shows of an answer besides its body."""
    return {
        "status": raw.status_code,
        "headers": raw.headers,
        "request_id": raw.request_id,
        "retries_taken": raw.retries_taken,
    }


async def with_raw_response(call: str) -> Any:
    raw = await settle(client.chat.completions.with_raw_response.create(**arguments(call, {})))
    return {**head_of(raw), "parsed": await settle(raw.parse())}


async def stream_with_raw_response(call: str) -> Any:
    raw = await settle(
        client.chat.completions.with_raw_response.create(**arguments(call, {"stream": True}))
    )
    return {**head_of(raw), "chunks": await collect(await settle(raw.parse()))}


async def with_streaming_response(call: str) -> Any:
    """The lines of an event stream as they come, with their data parsed so that they can be compared by field."""
    manager = client.chat.completions.with_streaming_response.create(**arguments(call, {"stream": True}))
    if hasattr(manager, "__aenter__"):
        async with manager as raw:
            lines = [line async for line in raw.iter_lines()]
    else:
        with manager as raw:
            lines = list(raw.iter_lines())
    return {**head_of(raw), "lines": [parsed_line(line) for line in lines]}


def parsed_line(line: str) -> Any:
    field, _, data = line.partition(": ")
    return {field: json.loads(data)} if data.startswith("{") else line


async def events_of(manager: Any) -> Any:
    """The events of the SDK's own helper for streams, which puts the parts together."""
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            return await collect(stream)
    with manager as stream:
        return await collect(stream)


async def chat_helper(call: str, **extra: Any) -> Any:
    return await events_of(client.chat.completions.stream(**arguments(call, extra)))


async def models_list() -> Any:
    return await items_of(client.models.list())


async def response(call: str, **extra: Any) -> Any:
    return await settle(client.responses.create(model=MODEL, input=prompt_of(call), **extra))


async def response_stream(call: str, **extra: Any) -> Any:
    return await collect(await response(call, stream=True, **extra))


async def responses_websocket() -> Any:
    """Two responses over one WebSocket; the second continues the first, which is not stored."""
    manager = client.responses.connect()
    is_async = hasattr(manager, "__aenter__")
    connection = await manager.__aenter__() if is_async else manager.__enter__()
    events: list[Any] = []
    previous: dict[str, Any] = {}
    try:
        for _ in range(2):
            text = prompt_of("responses.websocket")
            await settle(connection.response.create(model=MODEL, input=text, store=False, **previous))
            event = None
            while event is None or event.type not in ("response.completed", "error"):
                event = await settle(connection.recv())
                events.append(event)
            previous = {"previous_response_id": event.response.id}
    finally:
        await settle(connection.close())
    return events


async def embeddings(call: str, **extra: Any) -> Any:
    return await settle(
        client.embeddings.create(model=EMBEDDING_MODEL, input=prompt_of(call), **extra)
    )


async def completions_stream() -> Any:
    prompt = prompt_of("completions.stream")
    stream = client.completions.create(model=MODEL, prompt=prompt, max_tokens=16, stream=True)
    return await collect(await settle(stream))


async def images_stream() -> Any:
    stream = client.images.generate(model=MODEL, prompt=prompt_of("images.stream"), stream=True)
    return await collect(await settle(stream))


async def speech() -> Any:
    answer = await settle(
        client.audio.speech.create(model=MODEL, voice="alloy", input=prompt_of("speech"))
    )
    return {"headers": answer.response.headers, "sound": answer.content}


make_calls(
    {
        "models.list": models_list,
        "models.retrieve": lambda: settle(client.models.retrieve(MODEL)),
        "chat": lambda: chat("chat"),
        "chat.with_raw_response": lambda: with_raw_response("chat.with_raw_response"),
        "chat.stream": lambda: chat_stream("chat.stream"),
        "chat.stream.usage": lambda: chat_stream(
            "chat.stream.usage", stream_options={"include_usage": True}
        ),
        "chat.stream.with_raw_response": lambda: stream_with_raw_response("chat.stream.with_raw_response"),
        "chat.stream.with_streaming_response": lambda: with_streaming_response(
            "chat.stream.with_streaming_response"
        ),
        "chat.stream.helper": lambda: chat_helper("chat.stream.helper"),
        "chat.tools": lambda: chat("chat.tools", **TOOLS),
        "chat.tools.stream": lambda: chat_stream("chat.tools.stream", **TOOLS),
        "chat.tools.stream.helper": lambda: chat_helper(
            "chat.tools.stream.helper", **STRICT_TOOLS
        ),
        "chat.json_schema": lambda: chat("chat.json_schema", response_format=CITY_FORMAT),
        "chat.json_schema.parse": lambda: settle(
            client.chat.completions.parse(**arguments("chat.json_schema.parse", {"response_format": City}))
        ),
        "chat.n2": lambda: chat("chat.n2", n=2),
        "chat.logprobs": lambda: chat("chat.logprobs", logprobs=True, top_logprobs=2),
        "chat.logprobs.stream": lambda: chat_stream(
            "chat.logprobs.stream", logprobs=True, top_logprobs=2
        ),
        "chat.reasoning": lambda: chat("chat.reasoning"),
        "chat.reasoning.stream": lambda: chat_stream("chat.reasoning.stream"),
        "responses": lambda: response("responses"),
        "responses.stream": lambda: response_stream("responses.stream"),
        "responses.stream.helper": lambda: events_of(
            client.responses.stream(model=MODEL, input=prompt_of("responses.stream.helper"))
        ),
        "responses.websocket": responses_websocket,
        "responses.tools": lambda: response("responses.tools", tools=[RESPONSES_WEATHER]),
        "responses.tools.stream": lambda: response_stream(
            "responses.tools.stream", tools=[RESPONSES_WEATHER]
        ),
        "embeddings": lambda: embeddings("embeddings", encoding_format="float"),
        # Without a format the SDK asks for base64 and decodes it.
        "embeddings.base64": lambda: embeddings("embeddings.base64"),
        "images": lambda: settle(client.images.generate(model=MODEL, prompt=prompt_of("images"))),
        "images.stream": images_stream,
        "speech": speech,
        "transcription": lambda: settle(
            client.audio.transcriptions.create(
                model=MODEL, file=RECORDING, prompt=prompt_of("transcription")
            )
        ),
        "moderations": lambda: settle(
            client.moderations.create(model=MODEL, input=prompt_of("moderations"))
        ),
        "completions": lambda: settle(
            client.completions.create(
                model=MODEL, prompt=prompt_of("completions"), temperature=0, max_tokens=16
            )
        ),
        "completions.stream": completions_stream,
        "error.unknown_model": lambda: chat("error.unknown_model", model=UNKNOWN_MODEL),
        "error.unknown_model.stream": lambda: chat_stream("error.unknown_model.stream", model=UNKNOWN_MODEL),
        "error.bad_request": lambda: chat("error.bad_request"),
        "error.bad_request.stream": lambda: chat_stream("error.bad_request.stream"),
        "error.bad_request.responses": lambda: response("error.bad_request.responses"),
        "error.bad_request.embeddings": lambda: embeddings("error.bad_request.embeddings"),
        "error.server": lambda: chat("error.server"),
        "error.server.stream": lambda: chat_stream("error.server.stream"),
        "error.rate_limit": lambda: chat("error.rate_limit"),
    }
)
