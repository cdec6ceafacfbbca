"""A program that uses `contrib/python/linger.py`, while the daemon dies under it. Run by `it/clients.rs`.

Arguments: the directory of the library, and the program `linger`.
"""

import asyncio
import os
import signal
import sys

sys.path.insert(0, sys.argv[1])
import linger  # noqa: E402


def whole(notifications):
    """What a client was shown, whatever its deltas were cut into: durable events, and texts by stream. A gap, or what came twice,
    is an error."""
    durable, texts = [], {}
    for it in notifications:
        event = it["event"]
        if "seq" in event:
            assert event["seq"] == len(durable) + 1, (event["seq"], len(durable))
            durable.append(event)
        elif event["kind"].endswith("_delta"):
            stream = (event.get("message") or event.get("call_id"), event.get("block", 0))
            text = texts.get(stream, b"")
            assert event["offset"] == len(text), (stream, event, text)
            texts[stream] = text + event["text"].encode()
    return durable, texts


async def kill(daemon, both):
    status = await daemon.daemon_status()
    if both:
        # A daemon takes the place of a keeper that dies before it.
        os.kill(status["keeper"], signal.SIGSTOP)
    os.kill(status["pid"], signal.SIGKILL)
    if both:
        os.kill(status["keeper"], signal.SIGKILL)


async def turn(daemon, session, text, at_first_delta=None):
    """The events of a turn; something happens at its first delta."""
    events = []
    async for event in session.prompt(text):
        events.append(event)
        if at_first_delta and event["kind"] == "text_delta":
            await at_first_delta()
            at_first_delta = None
        if event["kind"] == "permission_requested":
            await answer(session, event)
    assert events[0]["kind"] == "prompt_accepted", events[0]
    assert events[-1]["kind"] == "turn_finished", events[-1]
    return events


async def answer(session, event):
    try:
        await session.answer({**event, "digest": "sha256:0"}, "allow_once")
        raise AssertionError("another digest was taken")
    except linger.WrongDigestError:
        pass
    assert [row["question"] for row in await session.questions()] == [event["permission"]]
    await session.answer(event, "allow_once")
    try:
        await session.answer(event, "reject_once")
        raise AssertionError("a second answer was taken")
    except linger.AlreadyAnsweredError as error:
        assert error.data["answer"] == "allow_once", error.data


def said(events):
    """The last words of the model."""
    messages = [event["content"] for event in events if event["kind"] == "message" and event["role"] == "assistant"]
    return messages[-1][-1]["text"]


async def main():
    async with await linger.connect(program=sys.argv[2]) as daemon:
        session = await daemon.create(name="py")
        seen, finished = [], asyncio.Semaphore(0)

        async def follow():
            async for it in session.attach():
                seen.append(it)
                if it["event"]["kind"] == "turn_finished":
                    finished.release()

        follower = asyncio.create_task(follow())
        events = await turn(daemon, session, "one", lambda: kill(daemon, both=False))
        assert said(events) == "begun again: ünï✓", said(events)
        assert any(event["kind"] == "message_superseded" for event in events), events
        events = await turn(daemon, session, "two")
        assert said(events) == "It said hi.", events
        events = await turn(daemon, session, "three", session.cancel)
        assert events[-1]["stop_reason"] == "cancelled", events[-1]
        events = await turn(daemon, session, "four", lambda: kill(daemon, both=True))
        assert said(events) == "done", events

        for _ in range(4):
            await finished.acquire()
        follower.cancel()
        again = []
        async for it in session.attach():
            if it["event"]["kind"] == "caught_up":
                break
            again.append(it)
        assert whole(seen) == whole(again)

        kinds = []
        async for it in daemon.events(sessions=[session.id], kinds=["turn_finished"]):
            if it["event"]["kind"] == "caught_up":
                break
            kinds.append(it["event"]["kind"])
        assert kinds == ["turn_finished"] * 4, kinds

        rows = await daemon.session_list(matching="py")
        assert [row["session"] for row in rows] == [session.id]
        for wrong, kind in ((daemon.session("nosuch").info(), linger.UnknownSessionError), (daemon.call("no/such"), linger.LingerError)):
            try:
                await wrong
                raise AssertionError("that was no error")
            except kind as error:
                assert str(error), error
        await daemon.daemon_stop(force=True)
    print("all is well")


asyncio.run(main())
