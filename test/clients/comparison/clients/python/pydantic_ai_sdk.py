"""Pydantic AI: agents on the Chat Completions API and on the Responses API."""

from typing import Any

from openai import AsyncOpenAI
from program import API_KEY, BASE_URL, EMBEDDING_MODEL, MODEL, collect, make_calls
from pydantic_ai import Agent, Embedder, NativeOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from wanted import UNKNOWN_MODEL, City, prompt_of

provider = OpenAIProvider(openai_client=AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY))
chat_model = OpenAIChatModel(MODEL, provider=provider)
unknown_model = OpenAIChatModel(UNKNOWN_MODEL, provider=provider)
responses_model = OpenAIResponsesModel(MODEL, provider=provider)


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"The weather in {city} is fine."


def agent_of(model: Any, **options: Any) -> Agent:
    return Agent(model, model_settings={"temperature": 0}, **options)


async def run(agent: Agent, call: str) -> Any:
    result = await agent.run(prompt_of(call))
    return {"output": result.output, "messages": result.all_messages(), "usage": result.usage}


async def run_events(agent: Agent, call: str) -> Any:
    """All events of a run with a stream from the model."""
    async with agent.run_stream_events(prompt_of(call)) as events:
        return await collect(events)


async def embed(call: str) -> Any:
    embedder = Embedder(OpenAIEmbeddingModel(EMBEDDING_MODEL, provider=provider))
    return await embedder.embed_documents([prompt_of(call)])


make_calls(
    {
        "chat": lambda: run(agent_of(chat_model), "chat"),
        "chat.stream": lambda: run_events(agent_of(chat_model), "chat.stream"),
        "chat.tools": lambda: run(agent_of(chat_model, tools=[get_weather]), "chat.tools"),
        "chat.tools.stream": lambda: run_events(
            agent_of(chat_model, tools=[get_weather]), "chat.tools.stream"
        ),
        "chat.json_schema": lambda: run(
            agent_of(chat_model, output_type=NativeOutput(City)), "chat.json_schema"
        ),
        "chat.reasoning": lambda: run(agent_of(chat_model), "chat.reasoning"),
        "responses": lambda: run(agent_of(responses_model), "responses"),
        "responses.stream": lambda: run_events(agent_of(responses_model), "responses.stream"),
        "responses.tools": lambda: run(
            agent_of(responses_model, tools=[get_weather]), "responses.tools"
        ),
        "embeddings": lambda: embed("embeddings"),
        "error.unknown_model": lambda: run(agent_of(unknown_model), "error.unknown_model"),
        "error.bad_request": lambda: run(agent_of(chat_model), "error.bad_request"),
        "error.bad_request.stream": lambda: run_events(
            agent_of(chat_model), "error.bad_request.stream"
        ),
        "error.bad_request.responses": lambda: run(
            agent_of(responses_model), "error.bad_request.responses"
        ),
        "error.server": lambda: run(agent_of(chat_model), "error.server"),
        "error.rate_limit": lambda: run(agent_of(chat_model), "error.rate_limit"),
    }
)
