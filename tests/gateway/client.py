"""The gateway through the client of OpenAI for Python: URL, TOKEN and a session's id are the arguments.

Prints `all is well` at the end; a wrong answer is an exception.
"""

import json
import sys

import openai

url, token, session = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key=token, max_retries=0)

names = [model.id for model in client.models.list()]
assert "work/m" in names, names
assert client.models.retrieve("work/m").id == "work/m"

# A model alone: the caller's tools, and nothing of linger's.
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "weather in Rome?"}]
first = client.chat.completions.create(model="work/m", messages=messages, tools=tools)
choice = first.choices[0]
assert choice.finish_reason == "tool_calls", first
call = choice.message.tool_calls[0]
assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Rome"}), first
assert first.usage.prompt_tokens > 0, first
messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
stream = client.chat.completions.create(model="work/m", messages=messages, tools=tools, stream=True, stream_options={"include_usage": True})
text, usage, reason = "", None, None
for chunk in stream:
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
assert (text, reason) == ("It is sunny.", "stop"), (text, reason)
assert usage and usage.total_tokens > 0, usage

# The same as a stream of calls.
stream = client.chat.completions.create(model="work/m", messages=[{"role": "user", "content": "weather in Rome?"}], tools=tools, stream=True)
calls = [call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or []]
assert [call.function.name for call in calls] == ["weather"], calls

# Responses.
response = client.responses.create(model="work/m", input="say hello", instructions="Be brief.")
assert (response.status, response.output_text) == ("completed", "hello there"), response
kinds, text = [], ""
with client.responses.stream(model="work/m", input="say hello") as events:
    for event in events:
        kinds.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    final = events.get_final_response()
assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
assert text == final.output_text == "hello there", final

# Structured output.
schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"], "additionalProperties": False}
shaped = client.chat.completions.create(
    model="work/m",
    messages=[{"role": "user", "content": "as json"}],
    response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}},
)
assert json.loads(shaped.choices[0].message.content) == {"answer": 42}, shaped

# linger's loop: the model's own tools run here, and the caller gets the last word.
agent = client.chat.completions.with_raw_response.create(model="work/m|bash", messages=[{"role": "user", "content": "run it"}])
assert agent.headers["x-linger-session"], agent.headers
assert agent.parse().choices[0].message.content == "The command said hi.", agent.parse()
stream = client.chat.completions.create(model="work/m|bash", messages=[{"role": "user", "content": "run it"}], stream=True)
text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
assert text == "I look.\n\nThe command said hi.", text

# linger's events between: the client's own loop skips them.
more = {"model": "work/m|bash", "extra_query": {"events": "all"}}
seen, text = [], ""
for chunk in client.chat.completions.create(messages=[{"role": "user", "content": "run it"}], stream=True, **more):
    seen += [chunk.event["kind"]] if "event" in chunk.model_extra else []
    text += "".join(choice.delta.content or "" for choice in chunk.choices)
assert text == "I look.\n\nThe command said hi." and "tool_finished" in seen, (text, seen)
with client.chat.completions.stream(messages=[{"role": "user", "content": "say hello"}], **more) as events:
    assert events.get_final_completion().choices[0].message.content == "hello there"
with client.responses.stream(input="say hello", **more) as events:
    assert events.get_final_response().output_text == "hello there"

# A session that is there.
bound = client.chat.completions.create(
    model="work/m", messages=[{"role": "user", "content": "say hello"}], extra_headers={"X-Linger-Session": session}
)
assert bound.choices[0].message.content == "hello there", bound


def fails(kind, **more):
    try:
        client.chat.completions.create(**{"model": "work/m", "messages": [{"role": "user", "content": "x"}], **more})
    except kind as error:
        return str(error)
    raise AssertionError(f"{more} is no {kind}")


assert "tools of linger" in fails(openai.BadRequestError, model="work/m|bash", tools=tools)
assert "data URL" in fails(
    openai.BadRequestError,
    messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}]}],
)
assert "unknown provider" in fails(openai.BadRequestError, model="nowhere/x")
client = openai.OpenAI(base_url=url + "/v1", api_key="lng_" + "x" * 43, max_retries=0)
assert "token" in fails(openai.AuthenticationError)
print("all is well")
