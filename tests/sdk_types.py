#!/usr/bin/env python3
"""Holds what the tests sent and answered against the types of the vendors' own SDKs.

    python3 -m venv /tmp/sdk && /tmp/sdk/bin/pip install openai anthropic google-genai ollama
    LINGER_RECORD=/tmp/record cargo test -p linger-tests --test it
    /tmp/sdk/bin/python tests/sdk_types.py /tmp/record

Each line of the record is {"kind", "body"}, a request that the daemon sent, or {"kind", "stream"}, a response of the scripted
model. Prints each one that the types refuse, once, with where and why; exit status 1 if there was one, 2 if there was nothing
to look at. A field that a type does not know is a fault. Before it looks, it makes sure that it can see: each checker must
refuse a request with a fault planted in it.
"""

import json
import sys
import typing

import typing_extensions
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic._internal._generate_schema import GenerateSchema
from pydantic_core import core_schema


def whole_lists(self, kind):
    """pydantic looks into an Iterable only when somebody iterates; as a list it is looked through at once."""
    (item,) = typing_extensions.get_args(kind) or (typing.Any,)
    return core_schema.list_schema(self.generate_schema(item))


def any_file(self, kind):
    """Files, which have no schema, come in no request of ours."""
    return core_schema.any_schema()


GenerateSchema._iterable_schema = whole_lists
GenerateSchema._unknown_type_schema = any_file


def strict(kind, seen):
    """`kind`, with unknown fields forbidden in every dictionary that it leads to."""
    if id(kind) not in seen:
        seen[id(kind)] = kind
        parts = typing_extensions.get_args(kind)
        if typing_extensions.is_typeddict(kind):
            kind.__pydantic_config__ = ConfigDict(extra="forbid")
            parts = typing_extensions.get_type_hints(kind, include_extras=True).values()
        for part in parts:
            strict(part, seen)
    return kind


def params(kind):
    return TypeAdapter(strict(kind, {})).validate_python


def known(model, value, at=""):
    """Refuses fields of `value` that the class of the object `model`, or of one inside it, does not know."""
    if isinstance(model, BaseModel):
        names = {field.alias or name for name, field in type(model).model_fields.items()} | set(type(model).model_fields)
        for name, inner in value.items():
            if name not in names:
                raise ValueError(f"{at}{name}: {type(model).__name__} has no such field")
            known(getattr(model, name, None), inner, f"{at}{name}.")
    elif isinstance(model, (list, tuple)):
        for n, (one, inner) in enumerate(zip(model, value)):
            known(one, inner, f"{at}{n}.")


def event(kind):
    adapter = TypeAdapter(kind)

    def check(value):
        known(adapter.validate_python(value), value)

    return check


def openai():
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    chunk = event(ChatCompletionChunk)

    def check(value):
        # The field of compatible servers for thinking is not OpenAI's, and its SDK has no type for errors in a stream.
        if "error" not in value:
            for choice in value["choices"]:
                choice["delta"].pop("reasoning_content", None)
            chunk(value)

    validate = params(CompletionCreateParamsStreaming)

    def body(value):
        for message in value["messages"]:
            message.pop("reasoning_content", None)
        validate(value)

    return body, check


def responses():
    from openai.types.responses import ResponseStreamEvent
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    validate = params(ResponseCreateParamsStreaming)

    def body(value):
        for item in value["input"]:
            if item.get("role") == "assistant":
                # The SDK wants what only a stored answer has; no server does.
                item.update(id="msg_1", status="completed")
                for part in item["content"]:
                    part["annotations"] = []
        validate(value)

    return body, event(ResponseStreamEvent)


def anthropic():
    from anthropic.types import RawMessageStreamEvent
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    adapter = TypeAdapter(RawMessageStreamEvent)

    def check(value):
        if value["type"] not in ("ping", "error"):
            adapter.validate_python(value)

    return params(MessageCreateParamsStreaming), check


def gemini():
    from google.genai import types

    response = TypeAdapter(types.GenerateContentResponse)
    parts = {
        "contents": list[types.Content],
        "systemInstruction": types.Content,
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    adapters = {name: TypeAdapter(kind) for name, kind in parts.items()}

    def body(value):
        for name, part in value.items():
            if name not in adapters:
                raise ValueError(f"{name}: no such field")
            adapters[name].validate_json(json.dumps(part))

    def check(value):
        if "error" not in value:
            response.validate_json(json.dumps(value))

    return body, check


def ollama():
    from ollama._types import ChatRequest, ChatResponse, Message, Options

    def body(value):
        inner = ("tools", "messages")
        known(ChatRequest.model_validate(value | {"messages": []}), {k: v for k, v in value.items() if k not in inner})
        known(Options.model_validate(value["options"]), value["options"], "options.")
        for n, message in enumerate(value["messages"]):
            # The SDK has a class for what it then writes as a string.
            message = message | {"images": [{"value": image} for image in message.get("images", [])]}
            known(Message.model_validate(message), {k: v for k, v in message.items() if k != "images"}, f"messages.{n}.")

    def check(value):
        if "error" not in value:
            known(ChatResponse.model_validate(value), value)

    return body, check


MAKERS = {"openai": openai, "openai-responses": responses, "anthropic": anthropic, "gemini": gemini, "ollama": ollama}

# A fault in a request of each kind: a message of an unknown shape.
PLANTED = {
    "openai": {"model": "m", "stream": True, "messages": [{"role": "user", "contents": "x"}]},
    "openai-responses": {"model": "m", "stream": True, "input": [{"type": "function_call_output", "call": "x"}]},
    "anthropic": {"model": "m", "max_tokens": 1, "stream": True, "messages": [{"role": "user", "content": [{"type": "txt"}]}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"txt": "x"}]}]},
    "ollama": {"model": "m", "options": {}, "messages": [{"role": "user", "contents": "x"}]},
}


def refusal(check, value):
    """Where and why `check` refuses `value`, or None."""
    try:
        check(value)
    except ValidationError as error:
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
    except (ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def events(kind, stream):
    """The JSON values of a response."""
    lines = stream.splitlines()
    data = lines if kind == "ollama" else [line[6:] for line in lines if line.startswith("data: ")]
    return [json.loads(line) for line in data if line.strip() and line != "[DONE]"]


def main(paths):
    checkers = {kind: make() for kind, make in MAKERS.items()}
    blind = [kind for kind, value in PLANTED.items() if refusal(checkers[kind][0], value) is None]
    if blind:
        print(f"a planted fault is not seen: {', '.join(blind)}")
        return 2
    looked, refused = dict.fromkeys(MAKERS, 0), {}
    for path in paths:
        for number, line in enumerate(open(path, encoding="utf-8"), 1):
            record = json.loads(line)
            kind = record["kind"]
            body, event_check = checkers[kind]
            whole = [(body, record["body"])] if "body" in record else [(event_check, e) for e in events(kind, record["stream"])]
            for check, value in whole:
                looked[kind] += 1
                why = refusal(check, value)
                if why:
                    refused.setdefault((kind, why), f"{path}:{number}")
    for (kind, why), where in refused.items():
        print(f"{where}: {kind}: {why}")
    print("looked at " + ", ".join(f"{count} of {kind}" for kind, count in looked.items()))
    return 1 if refused else 0 if all(looked.values()) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
