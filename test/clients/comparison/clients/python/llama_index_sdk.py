"""LlamaIndex with its classes for OpenAI and compatible servers, synchronous or not (the first word of the command line)."""

import sys
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses
from program import API_KEY, BASE_URL, EMBEDDING_MODEL, MODEL, collect, make_calls, settle
from wanted import UNKNOWN_MODEL, WEATHER_DESCRIPTION, WEATHER_NAME, City, prompt_of

PREFIX = {"sync": "", "async": "a"}[sys.argv[1]]
SERVER = {"api_base": BASE_URL, "api_key": API_KEY}


def weather(city: str) -> str:
    return f"The weather in {city} is fine."


TOOL = FunctionTool.from_defaults(weather, name=WEATHER_NAME, description=WEATHER_DESCRIPTION)


def chat_model(**options: Any) -> OpenAILike:
    defaults = {
        "model": MODEL,
        "is_chat_model": True,
        "is_function_calling_model": True,
        "temperature": 0,
        **SERVER,
    }
    return OpenAILike(**{**defaults, **options})


def responses_model() -> OpenAILikeResponses:
    return OpenAILikeResponses(
        model=MODEL, is_function_calling_model=True, is_chat_model=True, **SERVER
    )


def message_of(call: str) -> ChatMessage:
    return ChatMessage(role="user", content=prompt_of(call))


async def made(model: Any, method: str, *words: Any, **extra: Any) -> Any:
    """What a method gives, or its asynchronous variant: an object or, when it streams, all that comes."""
    result = await settle(getattr(model, PREFIX + method)(*words, **extra))
    return await collect(result) if "stream" in method else result


async def chat(call: str, **options: Any) -> Any:
    return await made(chat_model(**options), "chat", [message_of(call)])


async def chat_stream(call: str, **options: Any) -> Any:
    return await made(chat_model(**options), "stream_chat", [message_of(call)])


async def tools(model: Any, method: str, call: str) -> Any:
    return await made(model, method, [TOOL], user_msg=prompt_of(call), tool_required=True)


async def embed(call: str) -> Any:
    model = OpenAIEmbedding(model_name=EMBEDDING_MODEL, **SERVER)
    method = model.aget_text_embedding if PREFIX else model.get_text_embedding
    return await settle(method(prompt_of(call)))


async def structured() -> Any:
    model = chat_model(should_use_structured_outputs=True).as_structured_llm(City)
    return await made(model, "chat", [message_of("chat.json_schema")])


def completions_model() -> OpenAILike:
    return chat_model(is_chat_model=False, is_function_calling_model=False, max_tokens=16)


make_calls(
    {
        "chat": lambda: chat("chat"),
        "chat.stream": lambda: chat_stream("chat.stream"),
        "chat.stream.usage": lambda: chat_stream(
            "chat.stream.usage", additional_kwargs={"stream_options": {"include_usage": True}}
        ),
        "chat.tools": lambda: tools(chat_model(), "chat_with_tools", "chat.tools"),
        "chat.tools.stream": lambda: tools(
            chat_model(), "stream_chat_with_tools", "chat.tools.stream"
        ),
        "chat.json_schema": structured,
        "chat.logprobs": lambda: chat("chat.logprobs", logprobs=True, top_logprobs=2),
        "chat.reasoning": lambda: chat("chat.reasoning"),
        "responses": lambda: made(responses_model(), "chat", [message_of("responses")]),
        "responses.stream": lambda: made(
            responses_model(), "stream_chat", [message_of("responses.stream")]
        ),
        "responses.tools": lambda: tools(responses_model(), "chat_with_tools", "responses.tools"),
        "embeddings": lambda: embed("embeddings"),
        "completions": lambda: made(completions_model(), "complete", prompt_of("completions")),
        "completions.stream": lambda: made(
            completions_model(), "stream_complete", prompt_of("completions.stream")
        ),
        "error.unknown_model": lambda: chat("error.unknown_model", model=UNKNOWN_MODEL),
        "error.bad_request": lambda: chat("error.bad_request"),
        "error.bad_request.stream": lambda: chat_stream("error.bad_request.stream"),
        "error.server": lambda: chat("error.server"),
        "error.rate_limit": lambda: chat("error.rate_limit"),
    }
)
