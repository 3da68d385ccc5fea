"""What the calls of the Python clients ask for."""

import pydantic

# Neither the servers nor the gateway have it.
UNKNOWN_MODEL = "no-such-model"


def prompt_of(call: str) -> str:
    """The text of the user: servers choose their answer by it."""
    return f"Call {call}"


def messages_of(call: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt_of(call)}]


class City(pydantic.BaseModel):
    """The structure that the model answers in."""

    city: str
    country: str


# The tool that the model is offered.
WEATHER_NAME = "get_weather"
WEATHER_DESCRIPTION = "The weather of a city."
WEATHER_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": WEATHER_NAME,
        "description": WEATHER_DESCRIPTION,
        "parameters": WEATHER_PARAMETERS,
    },
}
RESPONSES_WEATHER = {
    "type": "function",
    "name": WEATHER_NAME,
    "description": WEATHER_DESCRIPTION,
    "parameters": WEATHER_PARAMETERS,
    "strict": True,
}
CITY_FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "city",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
            "required": ["city", "country"],
            "additionalProperties": False,
        },
    },
}

# A recording: what is in it matters to no server of the comparison.
RECORDING = ("recording.wav", bytes(2_000), "audio/wav")
