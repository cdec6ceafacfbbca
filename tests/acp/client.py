"""An editor made of the Python SDK of ACP: a turn with a question, a replay; and each message against the schema of ACP.

Arguments: the program `linger`, and the JSON Schema of ACP v1. Run by `it/acp.rs`.
"""

import asyncio
import json
import os
import sys

import acp
import jsonschema
from acp.schema import RequestPermissionResponse

LINGER, SCHEMA = sys.argv[1:3]


class Editor(acp.Client):
    """Says yes, and remembers what it is told."""

    def __init__(self):
        self.updates, self.asked = [], []

    async def request_permission(self, options, session_id, tool_call, **_):
        self.asked.append(tool_call.title)
        return RequestPermissionResponse(outcome={"outcome": "selected", "optionId": options[0].option_id})

    async def session_update(self, session_id, update, **_):
        self.updates.append(update.model_dump(by_alias=True, exclude_none=True))

    def on_connect(self, connection):
        pass

    def text(self, kind):
        return "".join(it["content"]["text"] for it in self.updates if it["sessionUpdate"] == kind)


async def walk():
    editor = Editor()
    async with acp.spawn_agent_process(editor, LINGER, "acp", env=dict(os.environ)) as (agent, _):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=os.getcwd(), mcp_servers=[])
        answer = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("go")])
        assert answer.stop_reason == "end_turn", answer
        assert editor.asked == ["echo hi"], editor.asked
        said = editor.text("agent_message_chunk")
        assert said == "I look.The command said hi.", said
        listed = await agent.list_sessions(cwd=os.getcwd())
        assert [it.session_id for it in listed.sessions] == [session.session_id], listed
        editor.updates.clear()
        await agent.load_session(session_id=session.session_id, cwd=os.getcwd(), mcp_servers=[])
        assert editor.text("agent_message_chunk") == said
        assert editor.text("user_message_chunk") == "go"
    return session.session_id


async def against_schema(session):
    """Every line of another turn, and of a replay, is a message of ACP."""
    with open(SCHEMA, encoding="utf-8") as file:
        schema = json.load(file)

    def check(name, value):
        jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{name}"}).validate(value)

    for key in ("anyOf", "oneOf", "title"):
        schema.pop(key, None)
    results = {1: "InitializeResponse", 2: "LoadSessionResponse", 3: "PromptResponse"}
    cwd = os.getcwd()
    requests = [
        (1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
        (2, "session/load", {"sessionId": session, "cwd": cwd, "mcpServers": []}),
        (3, "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "again"}]}),
    ]
    child = await asyncio.create_subprocess_exec(
        LINGER, "acp", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24
    )
    seen = set()

    def send(message):
        child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    for number, method, params in requests:
        send({"id": number, "method": method, "params": params})
        while True:
            message = json.loads(await child.stdout.readline())
            if message.get("method") == "session/update":
                check("SessionNotification", message["params"])
                seen.add(message["params"]["update"]["sessionUpdate"])
            elif message.get("method") == "session/request_permission":
                check("RequestPermissionRequest", message["params"])
                option = message["params"]["options"][0]["optionId"]
                send({"id": message["id"], "result": {"outcome": {"outcome": "selected", "optionId": option}}})
            else:
                assert message["id"] == number and "result" in message, message
                check(results[number], message["result"])
                break
    child.stdin.close()
    assert await child.wait() == 0
    wanted = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"}
    assert wanted <= seen, seen


asyncio.run(against_schema(asyncio.run(walk())))
print("all is well")
