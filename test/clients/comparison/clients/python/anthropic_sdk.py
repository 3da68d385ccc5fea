"""Anthropic's official library for Python: each call with what it hands to its user."""

import json
import os

import anthropic

MODEL = os.environ["MODEL"]
KEY = os.environ["API_KEY"]
client = anthropic.Anthropic(base_url=os.environ["BASE_URL"], api_key=KEY, max_retries=0)


def asking(call):
    content = f"Call {call}"
    return {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": content}]}


def create(call):
    return client.messages.create(**asking(call)).model_dump()


def events(call):
    seen = []
    try:
        for event in client.messages.create(**asking(call), stream=True):
            seen.append(event.model_dump())
    except Exception as error:
        return {"events": seen, "thrown": thrown(error)}
    return {"events": seen}


def helper(call):
    with client.messages.stream(**asking(call)) as stream:
        texts = list(stream.text_stream)
        return {"texts": texts, "final": stream.get_final_message().model_dump()}


def count(call):
    asked = asking(call)
    del asked["max_tokens"]
    return client.messages.count_tokens(**asked).model_dump()


def thrown(error):
    told = {"class": type(error).__name__, "status": getattr(error, "status_code", None)}
    return {**told, "body": getattr(error, "body", None), "request_id": getattr(error, "request_id", None)}


CALLS = {
    "message": create,
    "message.bearer": lambda call: anthropic.Anthropic(
        base_url=os.environ["BASE_URL"], api_key=None, auth_token=KEY, max_retries=0
    )
    .messages.create(**asking(call))
    .model_dump(),
    "stream": events,
    "stream.helper": helper,
    "stream.thinking": helper,
    "count_tokens": count,
    "models.list": lambda _: [each.model_dump() for each in client.models.list(limit=1)],
    "models.retrieve": lambda _: client.models.retrieve(MODEL).model_dump(),
    "error.bad_request": create,
    "error.overloaded": create,
    "error.rate_limit": create,
    "error.once": lambda call: client.with_options(max_retries=1).messages.create(**asking(call)).model_dump(),
    "error.event": events,
    "error.cut": events,
    "error.end": events,
}

for call in os.environ["CALLS"].split(","):
    try:
        outcome = {"call": call, "result": CALLS[call](call)}
    except Exception as error:
        outcome = {"call": call, "error": thrown(error)}
    print(json.dumps(outcome, default=str), flush=True)
