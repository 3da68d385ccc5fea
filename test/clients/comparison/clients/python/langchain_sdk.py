"""LangChain's `langchain-openai`, synchronous or not (the first word of the command line)."""

import sys
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from program import API_KEY, BASE_URL, EMBEDDING_MODEL, MODEL, collect, make_calls, settle
from wanted import UNKNOWN_MODEL, WEATHER_DESCRIPTION, WEATHER_NAME, City, prompt_of

IS_ASYNC = {"sync": False, "async": True}[sys.argv[1]]
SERVER = {"base_url": BASE_URL, "api_key": API_KEY}


def weather(city: str) -> str:
    return f"The weather in {city} is fine."


TOOL = StructuredTool.from_function(weather, name=WEATHER_NAME, description=WEATHER_DESCRIPTION)


def chat_model(**options: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": MODEL, "temperature": 0, "seed": 1, **SERVER, **options})


async def invoke(runnable: Any, call: str) -> Any:
    method = runnable.ainvoke if IS_ASYNC else runnable.invoke
    return await settle(method(prompt_of(call)))


async def stream(runnable: Any, call: str) -> Any:
    method = runnable.astream if IS_ASYNC else runnable.stream
    return await collect(method(prompt_of(call)))


async def generate(model: ChatOpenAI, call: str) -> Any:
    method = model.agenerate if IS_ASYNC else model.generate
    return await settle(method([[HumanMessage(prompt_of(call))]]))


async def embed(call: str) -> Any:
    # Without this the texts are cut into tokens by a vocabulary from elsewhere.
    model = OpenAIEmbeddings(model=EMBEDDING_MODEL, check_embedding_ctx_length=False, **SERVER)
    method = model.aembed_documents if IS_ASYNC else model.embed_documents
    return await settle(method([prompt_of(call)]))


def with_tools(**options: Any) -> Any:
    return chat_model(**options).bind_tools([TOOL], tool_choice="required")


def structured() -> Any:
    return chat_model().with_structured_output(City, method="json_schema", include_raw=True)


# The Responses API has no seed.
RESPONSES = {"use_responses_api": True, "seed": None}
COMPLETIONS = {"model": MODEL, "temperature": 0, "max_tokens": 16, **SERVER}

make_calls(
    {
        "chat": lambda: invoke(chat_model(), "chat"),
        "chat.stream": lambda: stream(chat_model(), "chat.stream"),
        "chat.stream.usage": lambda: stream(chat_model(stream_usage=True), "chat.stream.usage"),
        "chat.tools": lambda: invoke(with_tools(), "chat.tools"),
        "chat.tools.stream": lambda: stream(with_tools(), "chat.tools.stream"),
        "chat.json_schema": lambda: invoke(structured(), "chat.json_schema"),
        "chat.json_schema.stream": lambda: stream(structured(), "chat.json_schema.stream"),
        "chat.n2": lambda: generate(chat_model(n=2), "chat.n2"),
        "chat.logprobs": lambda: invoke(
            chat_model(logprobs=True, top_logprobs=2), "chat.logprobs"
        ),
        "chat.reasoning": lambda: invoke(chat_model(), "chat.reasoning"),
        "responses": lambda: invoke(chat_model(**RESPONSES), "responses"),
        "responses.stream": lambda: stream(chat_model(**RESPONSES), "responses.stream"),
        "responses.tools": lambda: invoke(with_tools(**RESPONSES), "responses.tools"),
        "responses.tools.stream": lambda: stream(with_tools(**RESPONSES), "responses.tools.stream"),
        "embeddings": lambda: embed("embeddings"),
        "completions": lambda: invoke(OpenAI(**COMPLETIONS), "completions"),
        "completions.stream": lambda: stream(OpenAI(**COMPLETIONS), "completions.stream"),
        "error.unknown_model": lambda: invoke(chat_model(model=UNKNOWN_MODEL), "error.unknown_model"),
        "error.unknown_model.stream": lambda: stream(
            chat_model(model=UNKNOWN_MODEL), "error.unknown_model.stream"
        ),
        "error.bad_request": lambda: invoke(chat_model(), "error.bad_request"),
        "error.bad_request.stream": lambda: stream(chat_model(), "error.bad_request.stream"),
        "error.bad_request.responses": lambda: invoke(
            chat_model(**RESPONSES), "error.bad_request.responses"
        ),
        "error.bad_request.embeddings": lambda: embed("error.bad_request.embeddings"),
        "error.server": lambda: invoke(chat_model(), "error.server"),
        "error.server.stream": lambda: stream(chat_model(), "error.server.stream"),
        "error.rate_limit": lambda: invoke(chat_model(), "error.rate_limit"),
    }
)
