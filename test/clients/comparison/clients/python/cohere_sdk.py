"""Cohere's official library for Python: each call with what it hands to its user."""

import json
import os

import cohere

MODEL = os.environ["MODEL"]
CONNECTION = {"api_key": os.environ["API_KEY"], "base_url": os.environ["BASE_URL"]}
v1 = cohere.Client(**CONNECTION)
v2 = cohere.ClientV2(**CONNECTION)

DOCUMENTS = ["Grüße aus Lissabon", "a cat", "", "🌤️"]


def ranked(call, retries=0, **more):
    options = {"max_retries": retries}
    asked = {"model": MODEL, "query": f"Call {call}", "documents": DOCUMENTS, "request_options": options}
    return v2.rerank(**asked, **more).model_dump()


CALLS = {
    "rerank": ranked,
    "rerank.top_n": lambda call: ranked(call, top_n=1, max_tokens_per_doc=100),
    "rerank.v1": lambda call: v1.rerank(
        model=MODEL, query=f"Call {call}", documents=[{"text": "a"}, {"text": "b"}], return_documents=True
    ).model_dump(),
    "error.bad_request": ranked,
    "error.rate_limit": ranked,
    "error.server": ranked,
    "error.once": lambda call: ranked(call, retries=1),
}

for call in os.environ["CALLS"].split(","):
    try:
        outcome = {"call": call, "result": CALLS[call](call)}
    except Exception as error:
        told = {name: getattr(error, name, None) for name in ("status_code", "body")}
        outcome = {"call": call, "error": {"class": type(error).__name__, **told}}
    print(json.dumps(outcome, default=str), flush=True)
