"""The SDK of LiteLLM, synchronous or not (the first word of the command line), with the target as an OpenAI-compatible API."""

import sys
from typing import Any

import litellm
from program import API_KEY, BASE_URL, EMBEDDING_MODEL, MODEL, collect, make_calls, settle
from wanted import (
    CITY_FORMAT,
    RECORDING,
    RESPONSES_WEATHER,
    UNKNOWN_MODEL,
    WEATHER,
    messages_of,
    prompt_of,
)

PREFIX = {"sync": "", "async": "a"}[sys.argv[1]]
TOOLS = {"tools": [WEATHER], "tool_choice": "required"}

litellm.telemetry = False
litellm.suppress_debug_info = True


async def call_of(function: str, model: str = MODEL, **extra: Any) -> Any:
    """Calls `litellm.FUNCTION`, or its asynchronous variant."""
    method = getattr(litellm, PREFIX + function)
    return await settle(method(model=f"openai/{model}", api_base=BASE_URL, api_key=API_KEY, **extra))


async def chat(call: str, **extra: Any) -> Any:
    return await call_of("completion", messages=messages_of(call), temperature=0, seed=1, **extra)


async def chat_stream(call: str, **extra: Any) -> Any:
    return await collect(await chat(call, stream=True, **extra))


async def response(call: str, **extra: Any) -> Any:
    return await call_of("responses", input=prompt_of(call), **extra)


async def response_stream(call: str, **extra: Any) -> Any:
    return await collect(await response(call, stream=True, **extra))


async def embeddings(call: str, **extra: Any) -> Any:
    return await call_of("embedding", EMBEDDING_MODEL, input=[prompt_of(call)], **extra)


async def speech() -> Any:
    answer = await call_of("speech", voice="alloy", input=prompt_of("speech"))
    return answer.content


async def moderations() -> Any:
    # This function does not cut the provider's prefix off the model's name.
    method = getattr(litellm, f"{PREFIX}moderation")
    target = {"api_base": BASE_URL, "api_key": API_KEY, "custom_llm_provider": "openai"}
    return await settle(method(model=MODEL, input=prompt_of("moderations"), **target))


make_calls(
    {
        "chat": lambda: chat("chat"),
        "chat.stream": lambda: chat_stream("chat.stream"),
        "chat.stream.usage": lambda: chat_stream(
            "chat.stream.usage", stream_options={"include_usage": True}
        ),
        "chat.tools": lambda: chat("chat.tools", **TOOLS),
        "chat.tools.stream": lambda: chat_stream("chat.tools.stream", **TOOLS),
        "chat.json_schema": lambda: chat("chat.json_schema", response_format=CITY_FORMAT),
        "chat.n2": lambda: chat("chat.n2", n=2),
        "chat.logprobs": lambda: chat("chat.logprobs", logprobs=True, top_logprobs=2),
        "chat.reasoning": lambda: chat("chat.reasoning"),
        "chat.reasoning.stream": lambda: chat_stream("chat.reasoning.stream"),
        "responses": lambda: response("responses"),
        "responses.stream": lambda: response_stream("responses.stream"),
        "responses.tools": lambda: response("responses.tools", tools=[RESPONSES_WEATHER]),
        "responses.tools.stream": lambda: response_stream(
            "responses.tools.stream", tools=[RESPONSES_WEATHER]
        ),
        "embeddings": lambda: embeddings("embeddings"),
        "embeddings.base64": lambda: embeddings("embeddings.base64", encoding_format="base64"),
        "images": lambda: call_of("image_generation", prompt=prompt_of("images")),
        "speech": speech,
        "transcription": lambda: call_of(
            "transcription", file=RECORDING, prompt=prompt_of("transcription")
        ),
        "moderations": moderations,
        "completions": lambda: call_of(
            "text_completion", prompt=prompt_of("completions"), max_tokens=16
        ),
        "error.unknown_model": lambda: call_of(
            "completion", UNKNOWN_MODEL, messages=messages_of("error.unknown_model")
        ),
        "error.bad_request": lambda: chat("error.bad_request"),
        "error.bad_request.stream": lambda: chat_stream("error.bad_request.stream"),
        "error.bad_request.responses": lambda: response("error.bad_request.responses"),
        "error.bad_request.embeddings": lambda: embeddings("error.bad_request.embeddings"),
        "error.server": lambda: chat("error.server"),
        "error.server.stream": lambda: chat_stream("error.server.stream"),
        "error.rate_limit": lambda: chat("error.rate_limit"),
    }
)
