"""Another agent, made of the Python SDK of MCP, that works through `linger mcp serve --sessions`. Run by `it/mcp_sessions.rs`.

Arguments: the program `linger`, and the source of the answer to the session's question: `person`, `answer`, `none`, `edits` or
`speak`. With `edits` and `speak` it is a person, and the server has a token that may not answer this question, or none.
"""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult

LINGER, ANSWERER = sys.argv[1:3]


async def main():
    asked = []

    async def person(_context, params):
        asked.append(params.message)
        assert "echo hi" in params.message, params.message
        return ElicitResult(action="accept", content={"answer": "allow_once"})

    args = ["mcp", "serve", "--sessions"] + (["--answer"] if ANSWERER == "answer" else [])
    server = StdioServerParameters(command=LINGER, args=args, env=dict(os.environ))
    async with stdio_client(server) as (read, write):
        elicitation = {"elicitation_callback": person} if ANSWERER in ("person", "edits", "speak") else {}
        async with ClientSession(read, write, **elicitation) as session:
            hello = await session.initialize()
            assert "not instructions to you" in hello.instructions, hello
            await walk(session, asked)
    print("all is well")


async def walk(session, asked):
    async def call(tool, fails=False, **arguments):
        result = await session.call_tool(tool, arguments)
        text = result.content[0].text
        assert result.is_error == fails, text
        if fails:
            return text
        value = result.structured_content
        assert json.loads(text) == value
        return value

    names = {tool.name for tool in (await session.list_tools()).tools}
    assert ("session_answer" in names) == (ANSWERER == "answer"), names
    loose = await call("session_create", fails=True, mode="auto") if ANSWERER != "answer" else None
    assert loose is None or "only start sessions in the modes ask and plan" in loose, loose
    assert "unknown field `cwd`" in await call("session_create", fails=True, cwd="/tmp")
    made = await call("session_create", name="helper", mode="ask")
    prompted = await call("session_prompt", session="helper", prompt="go")
    assert prompted["session"] == made["session"], prompted
    waited = await call("session_wait", session="helper", timeout_s=30)
    if ANSWERER == "person":
        assert len(asked) == 1, asked
    else:
        assert waited["state"] == "waiting" and waited["answer"] is None, waited
        question = waited["questions"][0]
        assert question["action"] == "echo hi", question
        if ANSWERER in ("edits", "speak"):
            assert len(asked) == (1 if ANSWERER == "edits" else 0), asked
            elsewhere = await call("session_create", fails=True, directory="/")
            assert "outside the directory of the grant" in elsewhere and "linger token list" in elsewhere, elsewhere
        if ANSWERER != "answer":
            await call("session_cancel", session="helper")
            waited = await call("session_wait", session="helper", timeout_s=30)
            assert waited["stop_reason"] == "cancelled", waited
            return
        wrong = await call("session_answer", fails=True, question=question["question"], digest="sha256:0", answer="allow_once")
        assert wrong.startswith("error: "), wrong
        await call("session_answer", question=question["question"], digest=question["digest"], answer="allow_once")
        waited = await call("session_wait", session="helper", timeout_s=30)
    assert (waited["state"], waited["answer"], waited["questions"]) == ("idle", "It said hi.", []), waited
    log = await call("session_read", session="helper")
    kinds = [entry["kind"] for entry in log["entries"]]
    assert kinds == ["prompt", "question", "call", "result", "answer", "end"], log
    rest = await call("session_read", session="helper", after=log["entries"][-2]["seq"])
    assert rest["entries"] == log["entries"][-1:], rest
    rows = (await call("session_list"))["sessions"]
    assert [(row["name"], row["state"]) for row in rows] == [("helper", "idle")], rows
    uris = [str(resource.uri) for resource in (await session.list_resources()).resources]
    text = (await session.read_resource(uris[0])).contents[0].text
    assert "It said hi." in text and "echo hi" in text, text
    assert "no session is called 'none'" in await call("session_prompt", fails=True, session="none", prompt="x")
    assert "wrong arguments" in await call("session_prompt", fails=True, session="helper")
    assert "no running turn" in await call("session_cancel", fails=True, session="helper")


asyncio.run(main())
