"""A client of linger: sessions of coding agents that outlive their terminal.

    import asyncio, linger

    async def main():
        async with await linger.connect() as daemon:
            session = await daemon.create(model="demo")
            async for event in session.prompt("say: hello"):
                if event["kind"] == "text_delta":
                    print(event["text"], end="", flush=True)
                elif event["kind"] == "permission_requested":
                    await session.answer(event, "allow_once")

    asyncio.run(main())

Python 3.11 or newer, standard library only. The daemon may end and come back at any time: a stream reads on at its cursor, so
nothing is lost and nothing comes twice; a request is sent again with its idempotency key, so it takes effect once. A stream has
a connection of its own and reads only as its program does: one that is not read holds a position, and no memory.

No request carries a provider's key, and sessions get the variables of `ENVIRONMENT` alone, unless `env` says otherwise.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import stat
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, Unpack

__all__ = ["connect", "Linger", "Session", "LingerError", "ConnectionLost"]

# The versions of the protocol that this file speaks.
PROTOCOL = (1, 1)

# The variables that a session's tools get, if they are set: none of them holds a secret.
ENVIRONMENT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR", "EDITOR", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "JAVA_HOME", "VIRTUAL_ENV", "NVM_DIR",
    "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS",
)

# The longest line that is read, in bytes: several times what a message of a client may have.
MAX_LINE = 1 << 26

# How long a lost daemon is dialled before it is started, and how long in all, in seconds: its keeper needs a moment.
KEEPER, PATIENCE = 0.5, 15.0

# The pause between two tries, in seconds.
PAUSE = 0.05

# So many idle connections are kept for requests; each takes a place at the daemon.
IDLE = 2

# So often a connection may end with nothing read before a request or a stream fails: each is over a new one.
RESENDS = 3

# Errors of a daemon that is ending, or has all the connections that it takes: another try may succeed.
ENDING, TOO_MUCH = -31017, -31015

# Notices without a number after which a session sends nothing more.
LAST = ("removed", "damaged")

DOCTOR = {"hint": "`linger doctor` says what is wrong"}


class LingerError(Exception):
    """A refusal of the daemon. Each code has a class of its own: `UnknownSessionError`, `NotAllowedError` …"""

    code: int = 0
    _classes: dict[int, type[LingerError]] = {}

    def __init__(self, message: str, code: int = 0, data: dict[str, Any] | None = None):
        super().__init__(message)
        self.code, self.data = code or self.code, data or {}
        # What to do next, where the daemon says so.
        self.hint: str | None = self.data.get("hint")

    def __init_subclass__(cls) -> None:
        if cls.code:
            LingerError._classes[cls.code] = cls

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\nhint: {self.hint}" if self.hint else text

    @classmethod
    def _of(cls, error: dict[str, Any]) -> LingerError:
        kind = cls._classes.get(error["code"], LingerError)
        return kind(error["message"], error["code"], error.get("data"))


class ConnectionLost(LingerError):
    """The daemon cannot be reached, or does not come back."""


class _Hangup(Exception):
    """A connection ended."""


def socket_path() -> str:
    """Where the daemon's socket is: `LINGER_SOCKET`, or in the state directory."""
    named = os.environ.get("LINGER_SOCKET")
    if named:
        return os.path.abspath(named)
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "linger", "lingerd.sock")


def _check(directory: str) -> None:
    """Refuses a directory that others can enter: whoever put a socket there is not the user's daemon."""
    info = os.lstat(directory)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise ConnectionLost(f"{directory} is not a directory of yours that is closed to others", data=DOCTOR)


class _Connection:
    """One socket: lines out, lines in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer, self._ids = reader, writer, itertools.count(1)

    def send(self, method: str, params: Any) -> int:
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        self._writer.write(json.dumps(message).encode() + b"\n")
        return number

    async def read(self) -> dict[str, Any]:
        try:
            # Lines end at LF, and nowhere else.
            line = await self._reader.readline()
        except OSError as error:
            raise _Hangup from error
        except ValueError as error:
            raise LingerError(f"the daemon sent a line of more than {MAX_LINE} bytes") from error
        if not line.endswith(b"\n"):
            raise _Hangup
        message: dict[str, Any] = json.loads(line)
        code = message.get("error", {}).get("code")
        if code == ENDING or (code == TOO_MUCH and message.get("id") is None):
            raise _Hangup(message["error"]["message"])
        return message

    async def answer(self, number: int) -> Any:
        """The result of a request; what comes before it is left out."""
        while True:
            message = await self.read()
            if message.get("id") == number:
                return _result(message)

    def close(self) -> None:
        self._writer.close()


def _result(message: dict[str, Any]) -> Any:
    if "error" in message:
        raise LingerError._of(message["error"])
    return message["result"]


class _Core:
    def __init__(self, socket: str, client: str, program: str | None):
        self.socket, self.client, self.program = socket, client, program
        self._idle: list[_Connection] = []
        self._closed = False

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that no stream has. Work goes on at the daemon."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _dial(self, wait: float = KEEPER) -> _Connection:
        """A connection that has said hello. Starts the daemon if it does not come back by itself in `wait` seconds."""
        if self._closed:
            raise ConnectionLost("this client was closed")
        clock = asyncio.get_running_loop().time
        began, started = clock(), False
        while True:
            try:
                return await self._hello()
            except (_Hangup, FileNotFoundError, ConnectionError) as error:
                why = str(error) or "the connection ended"
            except OSError as error:
                raise ConnectionLost(f"cannot connect to the daemon at {self.socket}: {error.strerror}", data=DOCTOR) from error
            if clock() - began > PATIENCE:
                raise ConnectionLost(f"cannot reach the daemon at {self.socket}: {why}", data=DOCTOR)
            if self.program and not started and clock() - began >= wait:
                started = True
                await self._start(self.program)
            else:
                await asyncio.sleep(PAUSE)

    async def _hello(self) -> _Connection:
        _check(os.path.dirname(self.socket))
        connection = _Connection(*await asyncio.open_unix_connection(self.socket, limit=MAX_LINE))
        try:
            hello = connection.send("daemon/hello", {"client": self.client, "protocol": PROTOCOL})
            self.welcome: DaemonHelloResult = await connection.answer(hello)
            return connection
        except BaseException:
            connection.close()
            raise

    async def _start(self, program: str) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                program, "daemon", "start",
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConnectionLost(f"there is no daemon, and `{program}` cannot be started: {error.strerror}") from error
        _, said = await child.communicate()
        if child.returncode:
            raise ConnectionLost(f"the daemon cannot be started: {said.decode(errors='replace').strip()}")

    async def call(self, method: str, params: Any = None) -> Any:
        """A request and its result; sent again after a loss. One that changes something takes effect once."""
        params, losses = _keyed(method, params), 0
        while True:
            connection = self._idle.pop() if self._idle else await self._dial()
            try:
                result = await connection.answer(connection.send(method, params))
            except _Hangup as error:
                connection.close()
                # The others are as old.
                while self._idle:
                    self._idle.pop().close()
                losses += 1
                if losses > RESENDS:
                    raise ConnectionLost(f"the daemon ended {losses} times before it answered {method}", data=DOCTOR) from error
                continue
            except LingerError:
                self._keep(connection)
                raise
            except BaseException:
                # Given up: its answer may still come.
                connection.close()
                raise
            self._keep(connection)
            return result

    def _keep(self, connection: _Connection) -> None:
        if self._closed or len(self._idle) >= IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    async def create(
        self, cwd: str | None = None, model: str | None = None, mode: Mode | None = None, name: str | None = None, **more: Any
    ) -> Session:
        """A new session; in this process's directory, with its variables (`ENVIRONMENT`), unless `cwd` and `env` say otherwise.
        `more` is as in `SessionCreateParams`."""
        given = {"model": model, "mode": mode, "name": name}
        params = {**more, **{key: value for key, value in given.items() if value is not None}, "cwd": os.path.abspath(cwd or ".")}
        params.setdefault("env", {name: os.environ[name] for name in ENVIRONMENT if name in os.environ})
        made: SessionCreateResult = await self.call("session/create", params)
        return self.session(made["session"])

    def session(self, id: str) -> Session:
        """A session that is there, by its id."""
        return Session(self, id)

    async def events(
        self, after: str | None = None, kinds: Iterable[str] | None = None, sessions: Iterable[str] | None = None
    ) -> AsyncIterator[AnyNotification]:
        """What happens in all sessions, or some; without `kinds` about sessions, turns and questions. `after` is the `cursor`
        of what was handled last, or "now"."""
        ask: dict[str, Any] = {}
        for name, some in (("kinds", kinds), ("sessions", sessions)):
            if some is not None:
                ask[name] = list(some)
        async with aclosing(self._stream("events/subscribe", ask, after)) as stream:
            async for it in stream:
                yield it

    async def _stream(
        self, method: str, ask: dict[str, Any], after: str | None, first: tuple[str, Any] | None = None, answers: list[Any] | None = None
    ) -> AsyncGenerator[Any, None]:
        """Notifications after a cursor, over as many connections as it takes. `first` is a request that is sent once the
        stream stands, again until it has its answer, which goes to `answers`."""
        seqs: dict[str | None, int] = {}
        caught_up, losses = False, 0
        while True:
            connection = await self._dial()
            try:
                attach = connection.send(method, {**ask, **({} if after is None else {"after": after})})
                request = connection.send(*first) if first and not answers else 0
                while True:
                    message = await connection.read()
                    if message.get("id") == attach:
                        begin = _result(message)["cursor"]
                        # Lost before its first event, a stream must not skip what came meanwhile.
                        after = begin if after == "now" else after
                    elif request and message.get("id") == request and answers is not None:
                        answers.append(_result(message))
                        yield None
                    elif "method" in message:
                        it, losses = message["params"], 0
                        event, after = it["event"], it["cursor"]
                        seq, session = event.get("seq"), it.get("session")
                        if seq is not None and seq <= seqs.get(session, 0) or event["kind"] == "caught_up" and caught_up:
                            continue
                        if seq is not None:
                            seqs[session] = seq
                        caught_up = caught_up or event["kind"] == "caught_up"
                        yield it
                        if seq is None and event.get("code") in LAST and method == "session/attach":
                            return
            except _Hangup as error:
                losses += 1
                if losses > RESENDS:
                    raise ConnectionLost(f"the daemon ended {losses} times before it sent anything", data=DOCTOR) from error
            finally:
                connection.close()


def _keyed(method: str, params: Any) -> Any:
    params = dict(params or {})
    if method in KEYED:
        params.setdefault("key", uuid.uuid4().hex)
    return params


class Session:
    """A session. Nothing of it lives here: it goes on without this program, and any other can follow it."""

    def __init__(self, daemon: _Core, id: str):
        self.daemon, self.id = daemon, id

    def __repr__(self) -> str:
        return f"<linger session {self.id}>"

    async def info(self) -> Info:
        """Its row of `session/list`: state, model, mode, questions that wait, cost."""
        rows: list[Info] = await self.daemon.call("session/list", {"matching": self.id})
        for row in rows:
            if row["session"] == self.id:
                return row
        raise UnknownSessionError(f"there is no session '{self.id}'")

    async def attach(self, after: str | None = None, deltas: bool = True, person: bool = False) -> AsyncIterator[Notification]:
        """All events after a cursor, from the beginning without one, and those to come. Each has the `cursor` to go on from
        another time, and with `answered` it is a question of the past."""
        async with aclosing(self.daemon._stream("session/attach", self._attach(deltas, person), after)) as stream:
            async for it in stream:
                yield it

    async def prompt(self, content: PromptContent, when: When = "queue", *, deltas: bool = True, **more: Any) -> AsyncIterator[Event]:
        """Gives it a prompt, and has the events of the turn that answers it, to `turn_finished`. The prompt is given once,
        however often the daemon dies. Breaking off ends nothing: `cancel` does. `more` is as in `SessionPromptParams`."""
        params = _keyed("session/prompt", {**more, "session": self.id, "content": content, "when": when})
        cursor = (await self.info())["cursor"]
        answers: list[Prompted] = []
        early: list[Any] = []
        turn: str | None = None
        stream = self.daemon._stream("session/attach", self._attach(deltas, False), cursor, ("session/prompt", params), answers)
        async with aclosing(stream):
            async for it in stream:
                early.append(it)
                if not answers:
                    continue
                fresh, early = [one["event"] for one in early if one is not None], []
                for event in fresh:
                    mine, kind = event.get("prompt") == answers[0]["prompt"], event["kind"]
                    if mine and kind in ("turn_started", "message"):
                        turn = turn or event.get("turn")
                    if kind != "caught_up" and (turn or mine):
                        yield event
                    if turn and kind == "turn_finished" and event["turn"] == turn or mine and kind == "prompt_unqueued":
                        return

    async def answer(
        self, question: str | Event | PendingQuestion, answer: str, *, value: Any = None, reason: str | None = None
    ) -> None:
        """Answers a question: by its event or row, then only if it is still what that shows; or by its id. The names of the
        answers are in its `options`; a form takes `accept` with its fields as `value`, or `decline`. If somebody was first,
        that is an `AlreadyAnsweredError`."""
        params: dict[str, Any] = {"answer": answer}
        if isinstance(question, str):
            params["question"] = question
        else:
            row: Any = question
            params["question"] = row.get("question") or row["permission"]
            params["digest"] = row["asked"]["digest"] if "asked" in row else row["digest"]
        if value is not None:
            params["value"] = value
        if reason is not None:
            params["reason"] = reason
        await self.daemon.call("question/answer", params)

    async def questions(self) -> list[PendingQuestion]:
        """What waits for an answer, in this session and its children."""
        rows: list[PendingQuestion] = await self.daemon.call("question/list", {"session": self.id})
        return rows

    async def cancel(self, background: bool = False) -> None:
        """Cancels the running turn; with `background` its commands in the background too."""
        await self.daemon.call("session/cancel", {"session": self.id, "background": background})

    async def resume(self) -> None:
        """Resumes a turn that is offered, or starts queued prompts."""
        await self.daemon.call("session/continue", {"session": self.id})

    async def set(self, **changes: Any) -> None:
        """Changes model, mode, effort, name …, as in `SessionSetParams`."""
        await self.daemon.call("session/set", {**changes, "session": self.id})

    def _attach(self, deltas: bool, person: bool) -> dict[str, Any]:
        return {"session": self.id, "deltas": deltas, "person": person}


async def connect(socket: str | None = None, *, client: str = "linger.py", program: str | None = "linger") -> Linger:
    """The user's daemon, at `socket` or where it usually is; `client` is our name for others. If there is none, `program`
    starts it; with None that is an error."""
    daemon = Linger(socket or socket_path(), client, program)
    daemon._keep(await daemon._dial(wait=0))
    return daemon


# types: begin (made from the schema)

class MemoryAddParams(TypedDict):
    """`memory/add`: writes a note that did not exist."""

    cwd: str
    scope: NotRequired[Scope2]
    text: str
    name: NotRequired[str | None]


class McpAddParams(TypedDict):
    """`mcp/add`: puts a server into the configuration; one of that name is an error."""

    server: str
    command: NotRequired[str | None]
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    cwd: NotRequired[str | None]
    url: NotRequired[str | None]


AfterCrash: TypeAlias = "Literal['again', 'join'] | str"


class AfterPermission(TypedDict):
    """A row of `permission/list`, of which these two fields count."""

    at: int
    permission: QuestionId


class AfterQuestion(TypedDict):
    """A row of `question/list`, of which these two fields count."""

    at: int
    question: QuestionId


class AlwaysRule(TypedDict):
    """A rule that an `allow_always` or `reject_always` answer added to the configuration: a row of `permission/rules`."""

    workspace: str
    rule: str
    refuses: NotRequired[bool]
    at: NotRequired[int | None]


class PermissionAnswerParams(TypedDict):
    """`permission/answer`: decides one permission; the first answer wins."""

    permission: QuestionId
    decision: str
    reason: NotRequired[str | None]
    digest: NotRequired[str | None]
    rules: NotRequired[list[str]]
    key: NotRequired[str | None]


class QuestionAnswerParams(TypedDict):
    """`question/answer`: answers one question; the first answer wins."""

    question: QuestionId
    answer: str
    value: NotRequired[Any]
    reason: NotRequired[str | None]
    digest: NotRequired[str | None]
    rules: NotRequired[list[str]]
    key: NotRequired[str | None]


class Answered(TypedDict):
    """The result of `permission/answer`; a second answer gets the error `already answered`."""

    outcome: str


class AnyNotification(TypedDict):
    """The `params` of an `events/event` notification."""

    session: NotRequired[SessionId | None]
    cursor: Cursor
    event: Event


class Artifact(TypedDict):
    """An artifact: a row of `artifact/list`."""

    id: ArtifactId
    name: str
    content_type: str
    size: int
    sha256: str
    created_at: int
    by: str


ArtifactId: TypeAlias = "str"


Asks: TypeAlias = "Literal['schema', 'again', 'go_on', 'ended', 'check', 'mode', 'child', 'output'] | str"


class SessionAttachParams(TypedDict):
    """`session/attach`: send the session's events after a cursor, and all that follow."""

    session: SessionId
    after: NotRequired[Cursor | None]
    deltas: NotRequired[bool | None]
    person: NotRequired[bool]
    env: NotRequired[dict[str, str]]


class Attachable(TypedDict):
    """The answer of `mcp/resource` and `mcp/prompt`."""

    content: list[ContentBlock]


class SessionAttachResult(TypedDict):
    """The result of `session/attach`; events follow it."""

    cursor: Cursor
    missing_env: NotRequired[list[str]]


class Background(TypedDict):
    """A command that runs in the background."""

    background: BackgroundId
    command: str
    started_at: int


BackgroundId: TypeAlias = "str"


class Before(TypedDict):
    """A row of `session/list`, of which these two fields count."""

    updated_at: int
    session: SessionId


class BeforeArtifact(TypedDict):
    """A row of `artifact/list`, of which these two fields count."""

    created_at: int
    id: ArtifactId


class ArtifactBeginParams(TypedDict):
    """`artifact/begin`: begins to put an artifact here."""

    name: NotRequired[str | None]
    content_type: NotRequired[str | None]
    size: NotRequired[int | None]


class ArtifactBeginResult(TypedDict):
    """The result of `artifact/begin`."""

    upload: UploadId


class Behind(TypedDict):
    """The process that a face speaks for, as `daemon/hello` says it: a connection with it may do less, never more."""

    pid: NotRequired[int | None]
    user: NotRequired[int | None]


class SessionBinParams(TypedDict):
    """`session/bin`: puts a session into the bin, where it stays for 30 days."""

    session: SessionId
    force: NotRequired[bool]
    key: NotRequired[str | None]


BlobId: TypeAlias = "str"


Blocks: TypeAlias = "Literal['call', 'turn', 'nothing']"


class Budget(TypedDict):
    """The limits of a session. When a sum over all its turns reaches one, the turn asks before its next step; each answer to go on raises the limit by its own size. In requests 0 takes a limit away, and an absent one stays."""

    max_cost_micros: NotRequired[int | None]
    max_tokens: NotRequired[int | None]
    max_ms: NotRequired[int | None]
    max_steps: NotRequired[int | None]


By: TypeAlias = "Literal['day', 'model', 'session']"


CallId: TypeAlias = "str"


Can: TypeAlias = "Literal['observe', 'speak', 'steer', 'answer_edits', 'answer_commands', 'administer']"


class SessionCancelParams(TypedDict):
    """`session/cancel`: stops the session's turn."""

    session: SessionId
    background: NotRequired[bool]
    key: NotRequired[str | None]


ChangeKind: TypeAlias = "Literal['create', 'edit', 'delete'] | str"


class DaemonCheckResult(TypedDict):
    """The result of `daemon/check`, which reads what is stored for some seconds at most and changes nothing."""

    complete: NotRequired[bool]
    repairable: NotRequired[bool]
    damage: NotRequired[list[Damage]]


# The state of the files of a workspace at a moment: an event.
Checkpoint = TypedDict("Checkpoint", {
    "checkpoint": "str",
    "root": "str",
    "call_id": "CallId",
    "since": "NotRequired[str | None]",
    "changed": "NotRequired[int]",
    "files": "NotRequired[list[str]]",
    "from": "NotRequired[int | None]",
    "certain": "NotRequired[bool]",
    "others": "NotRequired[list[str]]",
    "modes": "NotRequired[dict[str, int] | None]",
})


ChildStatus: TypeAlias = "Literal['started', 'working', 'waiting', 'finished'] | str"


class ChildUpdate(TypedDict):
    """How a child gets on: an event of its parent, and a row of what its parent waits for."""

    child: SessionId
    call_id: CallId
    agent: str
    background: NotRequired[bool]
    status: ChildStatus
    doing: NotRequired[str]
    questions: NotRequired[list[QuestionId]]
    steps: NotRequired[int]
    usage: NotRequired[Usage]
    stop_reason: NotRequired[StopReason | None]


class SessionCompactParams(TypedDict):
    """`session/compact`: has the model write a summary that stands for older messages in the context."""

    session: SessionId
    focus: NotRequired[str | None]
    key: NotRequired[str | None]


class CompactionRow(TypedDict):
    """A row of `session/compaction`: what was replaced in the context, and by what."""

    seq: int
    at: int
    through: MessageId
    messages: int
    summary: str
    tokens_before: int
    tokens_after: int
    undone: NotRequired[bool]


class SessionCompactionParams(TypedDict):
    """`session/compaction`: the compactions of a session's conversation, the latest first."""

    session: SessionId


class CompletionCancelParams(TypedDict):
    """`completion/cancel`: asks no more. The end of its connection does the same."""

    completion: CompletionId


class TextCompletionEvent(TypedDict):
    """A piece of the answer's text."""

    kind: Literal["text"]
    block: int
    text: str


class ThinkingCompletionEvent(TypedDict):
    """A piece of the answer's thinking."""

    kind: Literal["thinking"]
    block: int
    text: str


class NativeCompletionEvent(TypedDict):
    """An event of OpenAI's Responses, as the provider sent it."""

    kind: Literal["native"]
    data: str


class CompletedCompletionEvent(TypedDict):
    """The answer is whole."""

    kind: Literal["completed"]
    content: list[ContentBlock]
    stop_reason: StopReason
    usage: Usage


class FailedCompletionEvent(TypedDict):
    """There is no answer, or no more of it."""

    kind: Literal["failed"]
    message: str
    hint: str
    status: int
    code: NotRequired[str]
    retry_after_ms: NotRequired[int | None]


CompletionEvent: TypeAlias = "TextCompletionEvent | ThinkingCompletionEvent | NativeCompletionEvent | CompletedCompletionEvent | FailedCompletionEvent"


CompletionId: TypeAlias = "str"


class CompletionMessage(TypedDict):
    """A message of such a conversation."""

    role: Role
    content: list[ContentBlock]


class CompletionNotification(TypedDict):
    """The `params` of a `completion/event` notification."""

    completion: CompletionId
    event: CompletionEvent


class CompletionTool(TypedDict):
    """A tool of the caller's."""

    name: str
    description: NotRequired[str]
    input_schema: Any


class ConfigGetResult(TypedDict):
    """The result of `config/get`."""

    file: str
    settings: NotRequired[Any]
    error: NotRequired[str | None]
    waiting: NotRequired[Waiting | None]
    warnings: NotRequired[list[str]]
    text: NotRequired[Text | None]


class ConfigConfirmParams(TypedDict):
    """`config/confirm`: puts the changes that wait into force. Sent again it does nothing more."""

    digest: str


class TrustConfirmParams(TypedDict):
    """`trust/confirm`: trusts what waits."""

    workspace: str
    digest: str


class Confirmed(TypedDict):
    """The result of `config/confirm`, `config/set` and `config/write`."""

    confirmed: NotRequired[list[str]]


class TextContentBlock(TypedDict):
    """Plain text, usually Markdown."""

    type: Literal["text"]
    text: str


class ThinkingContentBlock(TypedDict):
    """A model's thinking before its answer."""

    type: Literal["thinking"]
    text: str
    native: NotRequired[Any]


class ImageContentBlock(TypedDict):
    """An image that a user sent, or a tool read."""

    type: Literal["image"]
    media_type: str
    data: NotRequired[str]
    blob: NotRequired[BlobId]
    bytes: NotRequired[int]


class ResourceLinkContentBlock(TypedDict):
    """Something that lies elsewhere, which a user or a tool points to; a model reads its name and address."""

    type: Literal["resource_link"]
    uri: str
    name: str
    media_type: NotRequired[str | None]
    description: NotRequired[str | None]


class ResourceContentBlock(TypedDict):
    """A text that is here, and where it is from; a model reads both."""

    type: Literal["resource"]
    uri: str
    media_type: NotRequired[str | None]
    text: str


class ToolUseContentBlock(TypedDict):
    """The model's request to run a tool."""

    type: Literal["tool_use"]
    call_id: CallId
    name: str
    input: Any
    native: NotRequired[Any]


class CutToolUseContentBlock(TypedDict):
    """A request to run a tool that broke off while the model wrote it: it never runs, and no model reads it."""

    type: Literal["cut_tool_use"]
    call_id: CallId
    name: str
    text: str


class ToolResultContentBlock(TypedDict):
    """The answer to a tool call."""

    type: Literal["tool_result"]
    call_id: CallId
    is_error: NotRequired[bool]
    content: list[ContentBlock]


class HostedContentBlock(TypedDict):
    """A call of a provider's own tool, which ran there, or its result."""

    type: Literal["hosted"]
    tool: HostedTool
    part: HostedPart
    text: str
    native: NotRequired[Any]


class OpaqueContentBlock(TypedDict):
    """Something that only its provider understands; kept, and given back unchanged."""

    type: Literal["opaque"]
    native: Any


ContentBlock: TypeAlias = "TextContentBlock | ThinkingContentBlock | ImageContentBlock | ResourceLinkContentBlock | ResourceContentBlock | ToolUseContentBlock | CutToolUseContentBlock | ToolResultContentBlock | HostedContentBlock | OpaqueContentBlock"


class SessionContinueParams(TypedDict):
    """`session/continue`: resumes the turn, or starts what waits for the user."""

    session: SessionId
    prompt: NotRequired[PromptId | None]
    key: NotRequired[str | None]


class SessionCreateParams(TypedDict):
    """`session/create`: a new session in a directory."""

    cwd: str
    model: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    effort: NotRequired[Effort]
    patience: NotRequired[Patience | None]
    fallback: NotRequired[list[str] | None]
    unattended: NotRequired[Unattended | None]
    budget: NotRequired[Budget]
    additional_directories: NotRequired[list[str]]
    mcp_servers: NotRequired[list[SessionServer]]
    tools: NotRequired[list[str] | None]
    agent: NotRequired[str | None]
    allow: NotRequired[list[str]]
    system: NotRequired[str | None]
    name: NotRequired[str | None]
    one_shot: NotRequired[bool]
    env: NotRequired[dict[str, str]]
    login_env: NotRequired[bool]
    umask: NotRequired[int | None]
    key: NotRequired[str | None]


class SessionCreateResult(TypedDict):
    """The result of `session/create`."""

    session: SessionId
    model: str
    mode: Mode
    warning: NotRequired[str | None]


Cursor: TypeAlias = "str"


class Damage(TypedDict):
    """A piece of damage."""

    what: Damaged
    session: NotRequired[SessionId | None]
    file: NotRequired[str | None]
    at: int
    text: str
    hint: NotRequired[str | None]
    carried: NotRequired[int]
    left: NotRequired[list[Left]]
    lost: NotRequired[bool]


Damaged: TypeAlias = "Literal['in_use', 'database', 'newer', 'wal', 'session', 'unwritten', 'blob'] | str"


Decision: TypeAlias = "Literal['allow_once', 'allow_session', 'allow_always', 'reject_once', 'reject_always', 'cancelled']"


class Delegated(TypedDict):
    """The purpose of a child: part of its `session_created`."""

    call: CallId
    depth: int
    agent: str
    worktree: NotRequired[Worktree | None]
    bound_by: NotRequired[str | None]


class Delta(TypedDict):
    """A piece of a message that is being streamed."""

    message: MessageId
    block: int
    offset: int
    text: str


class SessionDiffParams(TypedDict):
    """`session/diff`: what the turns of a session changed in files, those of its children too."""

    session: SessionId
    turn: NotRequired[TurnId | None]
    stat: NotRequired[bool]


class DiffChild(TypedDict):
    """A child whose turns changed a file."""

    session: SessionId
    agent: str


class SessionDiffResult(TypedDict):
    """The result of `session/diff`."""

    files: list[FileDiff]
    missing: NotRequired[list[str]]


Effort: TypeAlias = "Literal['auto', 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']"


Empty: TypeAlias = "dict[str, Any]"


class SessionEnvResult(TypedDict):
    """The result of `session/env`: the names of the variables of a session's tools."""

    variables: list[str]
    secret: list[str]
    missing: list[str]


class SessionCreatedEvent(TypedDict):
    """The session came to be; always `seq` 1."""

    kind: Literal["session_created"]
    cwd: str
    model: str
    mode: Mode
    name: NotRequired[str | None]
    parent: NotRequired[SessionId | None]
    delegated: NotRequired[Delegated | None]
    effort: NotRequired[Effort]
    setup: NotRequired[PrefixFingerprint | None]
    tools: NotRequired[list[str] | None]
    one_shot: NotRequired[bool]
    agent: NotRequired[Role2 | None]
    allow: NotRequired[list[str]]
    system: NotRequired[str | None]
    env: NotRequired[dict[str, str]]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ForkedEvent(TypedDict):
    """The session goes on from a point of another one: the events before this one are that session's."""

    origin: Origin
    cwd: str
    model: str
    mode: Mode
    name: NotRequired[str | None]
    title: NotRequired[str | None]
    effort: NotRequired[Effort]
    tools: NotRequired[list[str] | None]
    agent: NotRequired[Role2 | None]
    system: NotRequired[str | None]
    additional_directories: NotRequired[list[str]]
    mcp_servers: NotRequired[list[SessionServer]]
    budget: NotRequired[Budget]
    unattended: NotRequired[Unattended]
    patience: NotRequired[Patience | None]
    fallback: NotRequired[list[str] | None]
    context_tokens: NotRequired[int | None]
    started_at: NotRequired[int | None]
    before_turn: NotRequired[int]
    counts: IdCounts
    kind: Literal["forked"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class RewoundEvent(TypedDict):
    """The session went back to before one of its prompts."""

    to: int
    prompt: PromptId
    branch: SessionId
    files: NotRequired[bool]
    context_tokens: NotRequired[int | None]
    by: NotRequired[str | None]
    process: NotRequired[Process | None]
    kind: Literal["rewound"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class UncompactedEvent(TypedDict):
    """A compaction was taken back: from now on the model reads the messages again that it had replaced."""

    compacted: int
    messages: int
    tokens: int
    by: NotRequired[str | None]
    process: NotRequired[Process | None]
    kind: Literal["uncompacted"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class SessionChangedEvent(TypedDict):
    """Something about the session is different from now on; absent fields stay as they were."""

    kind: Literal["session_changed"]
    model: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    name: NotRequired[str | None]
    effort: NotRequired[Effort | None]
    instructions: NotRequired[list[Instruction] | None]
    skills: NotRequired[list[Skill] | None]
    memory: NotRequired[str | None]
    agent: NotRequired[Role2 | None]
    setup: NotRequired[PrefixFingerprint | None]
    stands_in_for: NotRequired[str | None]
    patience: NotRequired[Patience | None]
    fallback: NotRequired[list[str] | None]
    unattended: NotRequired[Unattended | None]
    budget: NotRequired[Budget | None]
    additional_directories: NotRequired[list[str] | None]
    tools: NotRequired[list[str] | None]
    mcp_servers: NotRequired[list[SessionServer] | None]
    binned: NotRequired[bool | None]
    by_retention: NotRequired[bool]
    cwd: NotRequired[str | None]
    moved: NotRequired[Moved | None]
    title: NotRequired[str | None]
    title_cost: NotRequired[ModelCost | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class PromptAcceptedEvent(TypedDict):
    """A prompt is stored and will start a turn or join one."""

    kind: Literal["prompt_accepted"]
    prompt: PromptId
    content: list[ContentBlock]
    when: When
    by: NotRequired[str | None]
    process: NotRequired[Process | None]
    compact: NotRequired[bool]
    schema: NotRequired[Any]
    until: NotRequired[Until | None]
    command: NotRequired[str | None]
    child: NotRequired[SessionId | None]
    runs: NotRequired[list[str]]
    limit: NotRequired[SkillLimit | None]
    awaited: NotRequired[bool]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class PromptUnqueuedEvent(TypedDict):
    """A prompt that waited for its turn was taken back; it never becomes a message."""

    kind: Literal["prompt_unqueued"]
    prompt: PromptId
    by: NotRequired[str | None]
    process: NotRequired[Process | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class PromptDraftedEvent(TypedDict):
    """A prompt that waited when a turn was cancelled is a draft from now on: it runs only when it is sent again."""

    kind: Literal["prompt_drafted"]
    prompt: PromptId
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class DraftSentEvent(TypedDict):
    """A draft was sent again: it is queued behind the prompts that wait already."""

    kind: Literal["draft_sent"]
    prompt: PromptId
    by: NotRequired[str | None]
    process: NotRequired[Process | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class TurnStartedEvent(TypedDict):
    """A turn began."""

    kind: Literal["turn_started"]
    prompt: PromptId
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class MessageEvent(TypedDict):
    """A message entered the history, whole."""

    kind: Literal["message"]
    message: MessageId
    role: Role
    content: list[ContentBlock]
    interrupted: NotRequired[bool]
    cut: NotRequired[bool]
    paused: NotRequired[bool]
    prompt: NotRequired[PromptId | None]
    asks: NotRequired[Asks | None]
    model: NotRequired[str | None]
    usage: NotRequired[Usage | None]
    times: NotRequired[Times | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class MessageSupersededEvent(TypedDict):
    """An interrupted message is out of the context: its step is being repeated."""

    kind: Literal["message_superseded"]
    message: MessageId
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class CommandStartedEvent(TypedDict):
    """A command line of the prompt's command is about to run: as a call of `bash` that no model made. Its permission, start, output and end follow like those of any call."""

    kind: Literal["command_started"]
    call_id: CallId
    command: str
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class CheckStartedEvent(TypedDict):
    """The turn would end, and the check of its prompt is about to run: as a call of `bash` that no model made. Its permission, start, output and end follow like those of any call."""

    kind: Literal["check_started"]
    call_id: CallId
    command: str
    failed: int
    tries: int
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ChildUpdatedEvent(TypedDict):
    """A child, which a call of `delegate` started, is further than before."""

    child: SessionId
    call_id: CallId
    agent: str
    background: NotRequired[bool]
    status: ChildStatus
    doing: NotRequired[str]
    questions: NotRequired[list[QuestionId]]
    steps: NotRequired[int]
    usage: NotRequired[Usage]
    stop_reason: NotRequired[StopReason | None]
    kind: Literal["child_updated"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ToolStartedEvent(TypedDict):
    """A tool call is about to run."""

    kind: Literal["tool_started"]
    call_id: CallId
    tool: str
    tool_kind: NotRequired[ToolKind]
    action: str
    locations: NotRequired[list[Location]]
    input: NotRequired[Any]
    after_crash: NotRequired[AfterCrash]
    limit: NotRequired[SkillLimit | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ToolFinishedEvent(TypedDict):
    """A tool call has its result; it may never have started."""

    kind: Literal["tool_finished"]
    call_id: CallId
    is_error: NotRequired[bool]
    outcome: Outcome
    content: list[ContentBlock]
    output: NotRequired[list[OutputSegment]]
    file: NotRequired[str | None]
    blob: NotRequired[BlobId | None]
    diff: NotRequired[str | None]
    changes: NotRequired[list[FileChange]]
    locations: NotRequired[list[Location]]
    exit: NotRequired[Exit | None]
    model_cost: NotRequired[ModelCost | None]
    ms: int
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


# A checkpoint of the workspace was taken, before a call that may change anything or after one that did.
CheckpointEvent = TypedDict("CheckpointEvent", {
    "checkpoint": "str",
    "root": "str",
    "call_id": "CallId",
    "since": "NotRequired[str | None]",
    "changed": "NotRequired[int]",
    "files": "NotRequired[list[str]]",
    "from": "NotRequired[int | None]",
    "certain": "NotRequired[bool]",
    "others": "NotRequired[list[str]]",
    "modes": "NotRequired[dict[str, int] | None]",
    "kind": "Literal['checkpoint']",
    "seq": "NotRequired[int | None]",
    "at": "int",
    "turn": "NotRequired[TurnId | None]",
})


class MergedEvent(TypedDict):
    """The work of a child in its git worktree was merged into the directory of this session."""

    child: SessionId
    agent: str
    branch: str
    directory: str
    before: str
    commit: str
    files: list[str]
    count: int
    by: NotRequired[str | None]
    process: NotRequired[Process | None]
    kind: Literal["merged"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class WorktreeChangedEvent(TypedDict):
    """The session's git worktree is another, or something became of it."""

    path: str
    branch: str
    base: str
    status: NotRequired[WorktreeStatus]
    kind: Literal["worktree_changed"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class UndoStartedEvent(TypedDict):
    """Changes of files are about to be undone, or made again after that."""

    kind: Literal["undo_started"]
    redo: NotRequired[bool]
    step: NotRequired[TurnId | None]
    call: NotRequired[CallId | None]
    file: NotRequired[str | None]
    files: NotRequired[list[str]]
    changes: list[FileChange]
    uncertain: NotRequired[list[UncertainChange]]
    by: NotRequired[str | None]
    process: NotRequired[Process | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class UndoneEvent(TypedDict):
    """Changes of files were undone, or made again after that."""

    kind: Literal["undone"]
    redo: NotRequired[bool]
    step: NotRequired[TurnId | None]
    changes: list[FileChange]
    failed: NotRequired[list[NotRestored]]
    uncertain: NotRequired[list[UncertainChange]]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class PlanEvent(TypedDict):
    """The model's plan for its task, as a whole; it takes the place of the plan before it."""

    kind: Literal["plan"]
    entries: list[PlanEntry]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class BackgroundStartedEvent(TypedDict):
    """A command was started in the background: it goes on when its call and its turn are over."""

    kind: Literal["background_started"]
    background: BackgroundId
    call_id: CallId
    command: str
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class BackgroundEndedEvent(TypedDict):
    """A command in the background has ended."""

    kind: Literal["background_ended"]
    background: BackgroundId
    exit: NotRequired[Exit | None]
    reason: NotRequired[str | None]
    output: NotRequired[str]
    file: NotRequired[str | None]
    blob: NotRequired[BlobId | None]
    ms: int
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class PermissionRequestedEvent(TypedDict):
    """A tool call needs a user's permission."""

    kind: Literal["permission_requested"]
    permission: QuestionId
    call_id: CallId
    tool: str
    action: str
    input: Any
    cwd: str
    digest: str
    rule: NotRequired[str | None]
    why: NotRequired[str | None]
    position: NotRequired[QuestionPosition | None]
    grant: str
    grants: NotRequired[list[str]]
    options: list[Decision]
    locations: NotRequired[list[Location]]
    changes: NotRequired[list[FileChange]]
    about: NotRequired[Subject | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class PermissionResolvedEvent(TypedDict):
    """A permission has its decision."""

    kind: Literal["permission_resolved"]
    permission: QuestionId
    decision: Decision
    by: str
    process: NotRequired[Process | None]
    reason: NotRequired[str | None]
    rules: NotRequired[list[str]]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class QuestionAskedEvent(TypedDict):
    """Something waits for a person that is no permission; it may belong to the daemon's own log and to no session."""

    kind: Literal["question_asked"]
    question: QuestionId
    asked: Question
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class QuestionResolvedEvent(TypedDict):
    """A question has its answer, or is withdrawn."""

    kind: Literal["question_resolved"]
    question: QuestionId
    answer: NotRequired[str | None]
    value: NotRequired[Any]
    by: str
    process: NotRequired[Process | None]
    reason: NotRequired[str | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ConfigConfirmedEvent(TypedDict):
    """Settings are confirmed that widen what may happen; in the daemon's own log alone."""

    kind: Literal["config_confirmed"]
    settings: Any
    changes: NotRequired[list[str]]
    by: NotRequired[str | None]
    workspace: NotRequired[str | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class TurnFinishedEvent(TypedDict):
    """A turn ended; nothing more belongs to it."""

    kind: Literal["turn_finished"]
    prompt: NotRequired[PromptId | None]
    stop_reason: StopReason
    detail: NotRequired[str | None]
    hint: NotRequired[str | None]
    until_at: NotRequired[int | None]
    answer: NotRequired[Any]
    usage: Usage
    session_usage: NotRequired[Usage | None]
    context_tokens: NotRequired[int | None]
    context_window: NotRequired[int | None]
    steps: int
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class CompactionStartedEvent(TypedDict):
    """The model is asked for a summary that is to stand for older messages in the context."""

    kind: Literal["compaction_started"]
    trigger: Trigger
    prompt: NotRequired[PromptId | None]
    through: MessageId
    messages: int
    tokens: int
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class CompactedEvent(TypedDict):
    """From now on a summary stands for older messages in the context; the messages themselves stay in the log."""

    kind: Literal["compacted"]
    prompt: NotRequired[PromptId | None]
    through: MessageId
    messages: int
    summary: str
    tokens_before: int
    tokens_after: int
    model: NotRequired[str | None]
    usage: NotRequired[Usage | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class CompactionFailedEvent(TypedDict):
    """There is no summary, and the context is as it was."""

    kind: Literal["compaction_failed"]
    prompt: NotRequired[PromptId | None]
    reason: str
    tokens: int
    model: NotRequired[str | None]
    usage: NotRequired[Usage | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class TrimmedEvent(TypedDict):
    """From now on the output of older calls, what images there are, or what a provider had wanted back of its model's messages is left out of the context; it stays in the log."""

    kind: Literal["trimmed"]
    calls: list[CallId]
    images: NotRequired[list[MessageId]]
    native: NotRequired[list[MessageId]]
    tokens_before: int
    tokens_after: int
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class LostEvent(TypedDict):
    """Stands in the place of an event that could not be read any more when damage was repaired; each of those that are missing in a row has one."""

    kind: Literal["lost"]
    first: int
    last: int
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class NoticeEvent(TypedDict):
    """Something a user should know."""

    kind: Literal["notice"]
    level: Level
    code: NotRequired[NoticeCode | None]
    text: str
    until_at: NotRequired[int | None]
    since_at: NotRequired[int | None]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class TextDeltaEvent(TypedDict):
    """A piece of a message's text."""

    message: MessageId
    block: int
    offset: int
    text: str
    kind: Literal["text_delta"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ThinkingDeltaEvent(TypedDict):
    """A piece of a message's thinking."""

    message: MessageId
    block: int
    offset: int
    text: str
    kind: Literal["thinking_delta"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ToolCallDeltaEvent(TypedDict):
    """A piece of the arguments of a call that the model writes; the first one tells that the call is coming. The pieces add up to `input` of the `tool_use` as compact JSON, or to the text of a `cut_tool_use`."""

    kind: Literal["tool_call_delta"]
    call_id: CallId
    name: str
    message: MessageId
    block: int
    offset: int
    text: str
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class HostedDeltaEvent(TypedDict):
    """A piece of what is said of a tool that a provider runs itself."""

    kind: Literal["hosted_delta"]
    tool: HostedTool
    part: HostedPart
    message: MessageId
    block: int
    offset: int
    text: str
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class ToolOutputDeltaEvent(TypedDict):
    """A piece of a tool's output; a jump in `offset` marks what was dropped."""

    kind: Literal["tool_output_delta"]
    call_id: CallId
    offset: int
    text: str
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


class CaughtUpEvent(TypedDict):
    """Everything that was there when the client attached has been sent."""

    kind: Literal["caught_up"]
    seq: NotRequired[int | None]
    at: int
    turn: NotRequired[TurnId | None]


Event: TypeAlias = "SessionCreatedEvent | ForkedEvent | RewoundEvent | UncompactedEvent | SessionChangedEvent | PromptAcceptedEvent | PromptUnqueuedEvent | PromptDraftedEvent | DraftSentEvent | TurnStartedEvent | MessageEvent | MessageSupersededEvent | CommandStartedEvent | CheckStartedEvent | ChildUpdatedEvent | ToolStartedEvent | ToolFinishedEvent | CheckpointEvent | MergedEvent | WorktreeChangedEvent | UndoStartedEvent | UndoneEvent | PlanEvent | BackgroundStartedEvent | BackgroundEndedEvent | PermissionRequestedEvent | PermissionResolvedEvent | QuestionAskedEvent | QuestionResolvedEvent | ConfigConfirmedEvent | TurnFinishedEvent | CompactionStartedEvent | CompactedEvent | CompactionFailedEvent | TrimmedEvent | LostEvent | NoticeEvent | TextDeltaEvent | ThinkingDeltaEvent | ToolCallDeltaEvent | HostedDeltaEvent | ToolOutputDeltaEvent | CaughtUpEvent"


class TokenExchangeParams(TypedDict):
    """`token/exchange`: gives a token for a code, once."""

    code: str


class Exit(TypedDict):
    """How the process of a call ended by itself: with a code, or by a signal."""

    code: NotRequired[int | None]
    signal: NotRequired[int | None]


class PermissionExplainParams(TypedDict):
    """`permission/explain`: whether a call would run."""

    call: str
    session: NotRequired[SessionId | None]
    cwd: NotRequired[str | None]


class PermissionExplainResult(TypedDict):
    """The result of `permission/explain`."""

    verdict: ToolDecision
    by: str
    place: NotRequired[str | None]
    mode: Mode
    cwd: str
    path: NotRequired[str | None]


class FileChange(TypedDict):
    """A change of one file."""

    path: str
    kind: ChangeKind
    before: NotRequired[BlobId | None]
    after: NotRequired[BlobId | None]
    before_type: NotRequired[FileType | None]
    after_type: NotRequired[FileType | None]
    before_mode: NotRequired[int | None]
    after_mode: NotRequired[int | None]
    directories: NotRequired[list[int]]
    bytes: NotRequired[int]


class FileDiff(TypedDict):
    """How one file differs from what it was before the turns."""

    path: str
    kind: ChangeKind
    added: int
    removed: int
    diff: NotRequired[str | None]
    note: NotRequired[str | None]
    uncertain: NotRequired[bool]
    child: NotRequired[DiffChild | None]


FileType: TypeAlias = "Literal['file', 'executable', 'link', 'directory'] | str"


class ArtifactFinishParams(TypedDict):
    """`artifact/finish`: makes an artifact of what was written; it is on disk when this is answered."""

    upload: UploadId
    sha256: NotRequired[str | None]


class McpFinishLoginParams(TypedDict):
    """`mcp/finish_login`: what the browser brought to `redirect`."""

    login: str
    server: str
    cwd: NotRequired[str | None]
    session: NotRequired[SessionId | None]
    code: str
    state: str
    issuer: NotRequired[str | None]


class SessionForkParams(TypedDict):
    """`session/fork`: a new session that goes on from a point of another one."""

    session: SessionId
    at: NotRequired[str | None]
    name: NotRequired[str | None]
    cwd: NotRequired[str | None]
    key: NotRequired[str | None]


class SessionForkResult(TypedDict):
    """The result of `session/fork`."""

    session: SessionId
    origin: Origin
    model: str
    mode: Mode
    text: NotRequired[str | None]


class Forked(TypedDict):
    """The beginning of a fork: everything that it has not from the events before."""

    origin: Origin
    cwd: str
    model: str
    mode: Mode
    name: NotRequired[str | None]
    title: NotRequired[str | None]
    effort: NotRequired[Effort]
    tools: NotRequired[list[str] | None]
    agent: NotRequired[Role2 | None]
    system: NotRequired[str | None]
    additional_directories: NotRequired[list[str]]
    mcp_servers: NotRequired[list[SessionServer]]
    budget: NotRequired[Budget]
    unattended: NotRequired[Unattended]
    patience: NotRequired[Patience | None]
    fallback: NotRequired[list[str] | None]
    context_tokens: NotRequired[int | None]
    started_at: NotRequired[int | None]
    before_turn: NotRequired[int]
    counts: IdCounts


class FoundMessage(TypedDict):
    """A message that was found."""

    session: SessionId
    name: NotRequired[str | None]
    cwd: str
    seq: int
    at: int
    role: Role
    snippet: str


class SessionSearchResult(TypedDict):
    """The result of `session/search`."""

    rows: list[FoundMessage]
    behind: NotRequired[int]


class BlobGetParams(TypedDict):
    """`blob/get`: the bytes of an image or of a whole output, piece by piece."""

    blob: BlobId
    offset: NotRequired[int | None]
    length: NotRequired[int | None]


class ConfigGetParams(TypedDict):
    """`config/get`: what is in force, and what waits."""

    text: NotRequired[bool]


class TrustGetParams(TypedDict):
    """`trust/get`: what the files of a workspace set, and what of it waits."""

    cwd: str


class McpPromptParams(TypedDict):
    """`mcp/prompt`: what a server's prompt says, as blocks for a prompt of the session."""

    session: SessionId
    server: str
    prompt: str
    arguments: NotRequired[dict[str, str]]
    text: NotRequired[str]


class Grant(TypedDict):
    """The rights of a connection with a token."""

    name: str
    can: list[Can]
    sessions: NotRequired[list[SessionId] | None]
    directory: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    expires_at: int


class DaemonHelloParams(TypedDict):
    """`daemon/hello`: agrees on a protocol version; the first thing a client says."""

    client: str
    protocol: list[int]
    token: NotRequired[str | None]
    behind: NotRequired[Behind | None]
    gateway: NotRequired[RunningGateway | None]


HostedPart: TypeAlias = "Literal['call', 'result', 'error'] | str"


HostedTool: TypeAlias = "Literal['web_search', 'code_execution'] | str"


class IdCounts(TypedDict):
    """How many turns, messages, calls, prompts and commands in the background a session had."""

    turns: int
    messages: int
    calls: int
    prompts: int
    background: NotRequired[int]


class Info(TypedDict):
    """A row of `session/list`."""

    session: SessionId
    name: NotRequired[str | None]
    cwd: str
    model: str
    tools: NotRequired[list[str] | None]
    additional_directories: NotRequired[list[str]]
    mode: Mode
    unattended: NotRequired[Unattended]
    budget: NotRequired[Budget]
    pauses_at: NotRequired[Budget]
    worked_ms: NotRequired[int]
    effort: NotRequired[Effort]
    state: State
    provider_wait: NotRequired[ProviderWait | None]
    stop_reason: NotRequired[StopReason | None]
    queued: int
    drafts: NotRequired[int]
    permissions: NotRequired[list[QuestionId]]
    questions: NotRequired[list[QuestionId]]
    background: NotRequired[list[Background]]
    title: NotRequired[str | None]
    parent: NotRequired[SessionId | None]
    origin: NotRequired[Origin | None]
    delegated: NotRequired[Delegated | None]
    children: NotRequired[list[ChildUpdate]]
    one_shot: NotRequired[bool]
    binned_at: NotRequired[int | None]
    by_retention: NotRequired[bool]
    agent: NotRequired[str | None]
    usage: Usage
    context_tokens: NotRequired[int | None]
    context_window: NotRequired[int | None]
    size: NotRequired[int]
    created_at: int
    updated_at: int
    cursor: Cursor
    turn_cursor: Cursor
    left: NotRequired[LastRead | None]
    damaged: NotRequired[str | None]
    unwritten: NotRequired[str | None]


class Instance(TypedDict):
    """One process of a server, or one connection to it."""

    cwd: NotRequired[str | None]
    pid: NotRequired[int | None]
    memory: NotRequired[int | None]
    name: str
    protocol: str
    calls: int


class Instruction(TypedDict):
    """An instruction file (`AGENTS.md` and its kin) as it was read."""

    path: str
    bytes: int
    cut: NotRequired[int]
    digest: str


class Item(TypedDict):
    """A skill, a command or an agent."""

    name: str
    description: NotRequired[str | None]
    path: str
    scope: Scope
    status: Status2
    hidden_by: NotRequired[str | None]
    problems: NotRequired[list[Problem]]
    text: NotRequired[str | None]


# A provider and its key; never the key itself.
KeyInfo = TypedDict("KeyInfo", {
    "provider": "str",
    "source": "KeySource",
    "from": "NotRequired[str | None]",
    "at": "NotRequired[str | None]",
    "elsewhere": "NotRequired[str | None]",
    "default": "bool",
})


KeySource: TypeAlias = "Literal['command', 'daemon', 'client', 'keychain', 'none', 'missing'] | str"


class SessionRestoreParams(TypedDict):
    """`session/restore`: takes a session out of the bin."""

    session: SessionId
    key: NotRequired[str | None]


class DaemonKeysParams(TypedDict):
    """`daemon/keys`: brings provider keys, which stay in the daemon's memory. It has no idempotency key: sent again it is the same, and after a restart it has to have its effect again."""

    keys: NotRequired[dict[str, str]]
    workspace_keys: NotRequired[dict[str, dict[str, str]]]


class LastRead(TypedDict):
    """How far a person at a terminal has read a session."""

    seq: int
    cursor: Cursor
    at: int


class Left(TypedDict):
    """A session that was not carried over whole."""

    session: SessionId
    events: int
    of: NotRequired[int]
    text: str


Level: TypeAlias = "Literal['info', 'warning', 'error']"


class SessionListParams(TypedDict):
    """`session/list`: sessions, the latest first."""

    matching: NotRequired[str | None]
    cwd: NotRequired[str | None]
    bin: NotRequired[bool]
    lasting: NotRequired[bool]
    limit: NotRequired[int | None]
    before: NotRequired[Before | None]


class UsageListParams(TypedDict):
    """`usage/list`: what was paid for, summed up."""

    since: NotRequired[int | None]
    by: NotRequired[By]


class List3(TypedDict):
    """`skill/list`, `command/list`, `agent/list`, `tool/files`, `mcp/files`: what there is for sessions in a directory."""

    cwd: str
    path: NotRequired[str | None]
    text: NotRequired[bool]


class MemoryListParams(TypedDict):
    """`memory/list`: the notes that sessions in a directory have."""

    cwd: str
    text: NotRequired[bool]


class McpListParams(TypedDict):
    """`mcp/list`: the servers of the user's configuration, of a workspace and of a session."""

    session: NotRequired[SessionId | None]
    cwd: NotRequired[str | None]


class PermissionListParams(TypedDict):
    """`permission/list`: the permissions that wait, of one session or of all."""

    session: NotRequired[SessionId | None]
    after: NotRequired[AfterPermission | None]


class QuestionListParams(TypedDict):
    """`question/list`: the questions that wait, of one session or of all and the daemon; the oldest first."""

    session: NotRequired[SessionId | None]
    after: NotRequired[AfterQuestion | None]


class ArtifactListParams(TypedDict):
    """`artifact/list`: the artifacts, the latest first."""

    limit: NotRequired[int | None]
    before: NotRequired[BeforeArtifact | None]


class KeyListResult(TypedDict):
    """The result of `key/list`."""

    keys: list[KeyInfo]
    no_keychain: NotRequired[str | None]


class Location(TypedDict):
    """A place that a tool call is about."""

    path: str
    line: NotRequired[int | None]


class LogLine(TypedDict):
    """A line of `mcp/logs`."""

    at: int
    text: str


class McpFinishLoginResult(TypedDict):
    """The answer of `mcp/finish_login`."""

    no_keychain: NotRequired[str | None]


class McpLogoutResult(TypedDict):
    """The answer of `mcp/logout`."""

    removed: bool


class McpLoginParams(TypedDict):
    """`mcp/login`: begins a login at a server with an address. A person opens the page that is answered in a browser, which then goes to `redirect` with what `mcp/finish_login` takes."""

    server: str
    cwd: NotRequired[str | None]
    session: NotRequired[SessionId | None]
    redirect: str


class McpLoginResult(TypedDict):
    """The answer of `mcp/login`."""

    login: str
    page: str


class McpLogsResult(TypedDict):
    """The answer of `mcp/logs`: what a server wrote to standard error, and what it logged; the latest 500 lines."""

    lines: list[LogLine]


class SessionMergeParams(TypedDict):
    """`session/merge`: merges what a child did in its worktree into the directory of its parent."""

    session: SessionId
    key: NotRequired[str | None]


class Merged(TypedDict):
    """The result of `session/merge`, and an event of the parent."""

    child: SessionId
    agent: str
    branch: str
    directory: str
    before: str
    commit: str
    files: list[str]
    count: int
    by: NotRequired[str | None]
    process: NotRequired[Process | None]


MessageId: TypeAlias = "str"


class TokenMintParams(TypedDict):
    """`token/mint`: makes a token. Only a process that the daemon did not start may, and none with a token."""

    name: str
    can: NotRequired[list[Can] | None]
    sessions: NotRequired[list[SessionId] | None]
    directory: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    days: NotRequired[int | None]
    once: NotRequired[bool]


class Minted(TypedDict):
    """The result of `token/mint` and `token/exchange`."""

    id: TokenId
    token: str
    grant: Grant


Mode: TypeAlias = "Literal['ask', 'edit', 'auto', 'plan']"


class ModeInfo(TypedDict):
    """A row of `mode/list`."""

    mode: Mode
    description: str


class Model(TypedDict):
    """A row of `model/list`."""

    model: str
    kind: str
    base_url: NotRequired[str | None]
    ready: bool
    missing: NotRequired[str | None]
    default: bool
    problem: NotRequired[str | None]
    contacted: NotRequired[bool]
    context_window: NotRequired[int | None]
    max_output: NotRequired[int | None]
    input_price: NotRequired[float | None]
    output_price: NotRequired[float | None]
    cache_read_price: NotRequired[float | None]
    cache_write_price: NotRequired[float | None]
    dearer_above: NotRequired[int | None]
    efforts: NotRequired[list[Effort]]
    hosted_tools: NotRequired[list[HostedTool]]


class ModelCost(TypedDict):
    """The cost of asking a model beside the conversation: for a title, or by a tool."""

    model: str
    usage: Usage


class ModelListParams(TypedDict):
    """`model/list`: the models that can be used."""

    all: NotRequired[bool]
    known: NotRequired[bool]
    model: NotRequired[str | None]


# A directory that has another name.
Moved = TypedDict("Moved", {
    "from": "str",
    "to": "str",
})


class Named(TypedDict):
    """A request that names a session and nothing else: `session/detach`."""

    session: SessionId


class Named2(TypedDict):
    """Names a server."""

    server: str
    cwd: NotRequired[str | None]
    session: NotRequired[SessionId | None]


class NamedArtifact(TypedDict):
    """A request that names an artifact and nothing else: `artifact/get` and `artifact/delete`."""

    id: ArtifactId


class NotRestored(TypedDict):
    """A file that could not be put back."""

    path: str
    reason: str


class Note(TypedDict):
    """Something to remember in later sessions."""

    scope: Scope2
    name: str
    about: str
    path: str
    bytes: int
    text: NotRequired[str | None]


NoticeCode: TypeAlias = "Literal['resumed', 'paused', 'continued', 'offered', 'unconfigured', 'retry', 'reached', 'fallback', 'key_missing', 'unconfirmed', 'key_pending', 'removed', 'key_found', 'damaged', 'rebuilt', 'unknown_model', 'rule_not_stored', 'config_waits', 'agent', 'files', 'storage', 'server_failed', 'hook_failed', 'no_checkpoint', 'output_schema'] | str"


class Notification(TypedDict):
    """The `params` of a `session/event` notification."""

    session: SessionId
    cursor: Cursor
    answered: NotRequired[bool]
    event: Event


class Offered(TypedDict):
    """`mcp/resources` and `mcp/prompts`: those of all servers, or of one."""

    session: NotRequired[SessionId | None]
    cwd: NotRequired[str | None]
    env: NotRequired[dict[str, str]]
    server: NotRequired[str | None]


class Origin(TypedDict):
    """Where a fork left its origin."""

    session: SessionId
    seq: int


class SessionRestoreResult(TypedDict):
    """The result of `session/restore`."""

    name: NotRequired[str | None]


Outcome: TypeAlias = "Literal['ran', 'invalid', 'denied', 'timed_out', 'cancelled', 'unknown']"


class OutputSegment(TypedDict):
    """Where a block of a tool's result stands in the stream of its output."""

    block: int
    offset: int


Patience: TypeAlias = "str | int"


class Pending(TypedDict):
    """A permission that waits."""

    permission: QuestionId
    session: SessionId
    call: CallId
    tool: str
    action: str
    input: Any
    cwd: str
    digest: str
    grant: str
    grants: NotRequired[list[str]]
    why: NotRequired[str | None]
    position: NotRequired[QuestionPosition | None]
    at: int


class PendingQuestion(TypedDict):
    """A question that waits: a row of `question/list`."""

    question: QuestionId
    session: NotRequired[SessionId | None]
    parent: NotRequired[SessionId | None]
    parent_name: NotRequired[str | None]
    kind: QuestionKind
    blocks: Blocks
    call: NotRequired[CallId | None]
    about: NotRequired[Subject | None]
    text: NotRequired[str]
    options: NotRequired[list[QuestionOption]]
    schema: NotRequired[Any]
    permission: NotRequired[QuestionId]
    tool: NotRequired[str]
    action: NotRequired[str]
    input: NotRequired[Any]
    cwd: NotRequired[str]
    grant: NotRequired[str]
    grants: NotRequired[list[str]]
    why: NotRequired[str | None]
    position: NotRequired[QuestionPosition | None]
    digest: str
    at: int


class Piece(TypedDict):
    """A piece of a blob."""

    data: str
    size: int
    next: NotRequired[int | None]


class PlanEntry(TypedDict):
    """One entry of a plan."""

    content: str
    status: NotRequired[PlanStatus]


PlanStatus: TypeAlias = "Literal['in_progress', 'completed', 'pending']"


class PrefixFingerprint(TypedDict):
    """The constant part of a session's requests: all but the conversation. While it stays the same, each request begins like the one before, and a provider's prompt cache hits."""

    kind: str
    hosted_tools: NotRequired[list[HostedTool]]
    digest: str


class Problem(TypedDict):
    """Something that is wrong with a file."""

    line: int
    level: Level
    text: str


class Process(TypedDict):
    """The process at the other end of a connection."""

    pid: int
    family: bool


class SessionPromptParams(TypedDict):
    """`session/prompt`: gives the session something to do; answers once the prompt is on disk."""

    session: SessionId
    content: PromptContent
    when: NotRequired[When | None]
    schema: NotRequired[Any]
    until: NotRequired[Until | None]
    expand: NotRequired[bool]
    awaited: NotRequired[bool]
    env: NotRequired[dict[str, str]]
    key: NotRequired[str | None]


class PromptArgument(TypedDict):
    """An argument of a `ServerPrompt`."""

    name: str
    about: str
    required: bool


PromptContent: TypeAlias = "str | list[ContentBlock]"


PromptId: TypeAlias = "str"


class PromptRow(TypedDict):
    """A row of `session/prompts`."""

    prompt: PromptId
    message: MessageId
    at: int
    text: str


class Prompted(TypedDict):
    """The result of `session/prompt` and `session/compact`."""

    prompt: PromptId
    seq: int


class SessionPromptsParams(TypedDict):
    """`session/prompts`: the prompts that a session can go back to, the latest first."""

    session: SessionId
    limit: NotRequired[int | None]


class ProviderWait(TypedDict):
    """A wait for a provider that cannot answer. The turn tries again by itself."""

    reason: str
    since_at: int
    until_at: int


class SessionPruneParams(TypedDict):
    """`session/prune`: deletes sessions that were not used for a while."""

    older_than_ms: int
    dry_run: NotRequired[bool]
    force: NotRequired[bool]
    into_bin: NotRequired[bool]
    bin: NotRequired[bool]
    key: NotRequired[str | None]


class SessionPruneResult(TypedDict):
    """The result of `session/prune`."""

    sessions: list[Info]
    count: int
    size: int


class Question(TypedDict):
    """A question, whole."""

    kind: QuestionKind
    blocks: Blocks
    call: NotRequired[CallId | None]
    about: NotRequired[Subject | None]
    text: NotRequired[str]
    options: NotRequired[list[QuestionOption]]
    schema: NotRequired[Any]
    permission: NotRequired[QuestionId]
    tool: NotRequired[str]
    action: NotRequired[str]
    input: NotRequired[Any]
    cwd: NotRequired[str]
    grant: NotRequired[str]
    grants: NotRequired[list[str]]
    why: NotRequired[str | None]
    position: NotRequired[QuestionPosition | None]
    digest: str


QuestionId: TypeAlias = "str"


QuestionKind: TypeAlias = "Literal['permission', 'choice', 'form'] | str"


class QuestionOption(TypedDict):
    """One of the possible answers."""

    name: str
    label: str


class QuestionPosition(TypedDict):
    """The place of a permission among those that the calls of one answer of a model ask together."""

    number: int
    of: int
    first: QuestionId


class ArtifactReadParams(TypedDict):
    """`artifact/read`: its bytes, piece by piece."""

    id: ArtifactId
    offset: NotRequired[int | None]
    length: NotRequired[int | None]


class McpResourceParams(TypedDict):
    """`mcp/resource`: what a resource has, as blocks for a prompt."""

    session: SessionId
    server: str
    uri: str


class SessionRedoParams(TypedDict):
    """`session/redo`: makes the changes again that were undone last."""

    session: SessionId
    force: NotRequired[bool]
    key: NotRequired[str | None]


class SessionRemoveParams(TypedDict):
    """`session/remove`: deletes a session and everything that was stored for it."""

    session: SessionId
    force: NotRequired[bool]
    key: NotRequired[str | None]


class KeyRemoveParams(TypedDict):
    """`key/remove`: takes a provider's keys out of the keychain, for whatever place they are. Sent again it removes nothing."""

    provider: str


class MemoryRemoveParams(TypedDict):
    """`memory/remove`: removes a note."""

    cwd: str
    scope: NotRequired[Scope2]
    name: str


class PermissionRemoveParams(TypedDict):
    """`permission/remove`: takes a rule of `permission/rules` out of the configuration."""

    rule: str
    workspace: NotRequired[str | None]


class Removed(TypedDict):
    """The result of `session/remove` and `session/bin`."""

    children: NotRequired[int]
    worktrees: NotRequired[list[Worktree]]


class KeyRemoveResult(TypedDict):
    """The result of `key/remove`."""

    removed: bool
    now: NotRequired[KeyInfo | None]


class Resource(TypedDict):
    """A resource that a prompt can name as `@SERVER:URI`: a row of `mcp/resources`."""

    server: str
    uri: str
    name: str
    about: str
    is_template: NotRequired[bool]


class Restored(TypedDict):
    """The result of `session/undo` and `session/redo`."""

    step: NotRequired[TurnId | None]
    changes: list[FileChange]
    failed: NotRequired[list[NotRestored]]
    uncertain: NotRequired[list[UncertainChange]]


class TrustRevokeParams(TypedDict):
    """`trust/revoke`: trusts nothing of a workspace any more."""

    cwd: str


class TokenRevokeParams(TypedDict):
    """`token/revoke`: ends a token, and at once each connection that has it."""

    id: TokenId


class TrustRevokeResult(TypedDict):
    """The result of `trust/revoke`."""

    workspace: str
    revoked: bool


class SessionRewindParams(TypedDict):
    """`session/rewind`: a session goes on from before one of its prompts; what it leaves stays, as a fork."""

    session: SessionId
    to: NotRequired[PromptId | None]
    files: NotRequired[bool]
    uncertain: NotRequired[Uncertain | None]
    force: NotRequired[bool]
    key: NotRequired[str | None]


class SessionRewindResult(TypedDict):
    """The result of `session/rewind`."""

    branch: SessionId
    to: int
    prompt: PromptId
    text: NotRequired[str]
    changes: NotRequired[list[FileChange]]


class Rewound(TypedDict):
    """A session went back: the events between `to` and this one are no part of its conversation any more."""

    to: int
    prompt: PromptId
    branch: SessionId
    files: NotRequired[bool]
    context_tokens: NotRequired[int | None]
    by: NotRequired[str | None]
    process: NotRequired[Process | None]


Role: TypeAlias = "Literal['user', 'assistant']"


class Role2(TypedDict):
    """The agent of a session: the file that it was made from."""

    name: str
    path: str
    digest: str


class PermissionRemoveResult(TypedDict):
    """The result of `permission/remove`."""

    removed: list[AlwaysRule]


class RunningGateway(TypedDict):
    """A gateway that runs."""

    pid: int
    listen: str
    url: NotRequired[str | None]
    version: str
    started_at: int


Scope: TypeAlias = "Literal['user', 'workspace', 'named'] | str"


Scope2: TypeAlias = "Literal['user', 'workspace'] | str"


Scope3: TypeAlias = "Literal['user', 'workspace', 'session'] | str"


class SessionSearchParams(TypedDict):
    """`session/search`: the messages that have these words."""

    text: str
    cwd: NotRequired[str | None]
    limit: NotRequired[int | None]


# A configured server: a row of `mcp/list`.
Server = TypedDict("Server", {
    "server": "str",
    "target": "str",
    "scope": "Scope3",
    "required": "bool",
    "state": "State2",
    "instances": "list[Instance]",
    "tools": "NotRequired[list[ServerTool] | None]",
    "problems": "NotRequired[list[str]]",
    "error": "NotRequired[str | None]",
    "waits_for": "NotRequired[list[str]]",
    "from": "NotRequired[str | None]",
    "session": "NotRequired[SessionId | None]",
})


class ServerPrompt(TypedDict):
    """A prompt that a server has ready: a row of `mcp/prompts`."""

    server: str
    prompt: str
    about: str
    arguments: NotRequired[list[PromptArgument]]


class ServerTool(TypedDict):
    """A tool of a server."""

    name: str
    tool: str
    about: str


SessionId: TypeAlias = "str"


class SessionServer(TypedDict):
    """An MCP server of one session, which a client brings for it: a program, or an address of Streamable HTTP."""

    server: str
    command: NotRequired[str | None]
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    url: NotRequired[str | None]
    headers: NotRequired[dict[str, str]]


class SessionSetParams(TypedDict):
    """`session/set`: changes a session from its next step on; absent fields stay."""

    session: SessionId
    model: NotRequired[str | None]
    mode: NotRequired[Mode | None]
    effort: NotRequired[Effort | None]
    patience: NotRequired[Patience | None]
    fallback: NotRequired[list[str] | None]
    unattended: NotRequired[Unattended | None]
    budget: NotRequired[Budget]
    cwd: NotRequired[str | None]
    add_directories: NotRequired[list[str]]
    remove_directories: NotRequired[list[str]]
    mcp_servers: NotRequired[list[SessionServer] | None]
    tools: NotRequired[list[str] | None]
    name: NotRequired[str | None]
    key: NotRequired[str | None]


class KeySetParams(TypedDict):
    """`key/set`: puts a provider's key into the keychain, for the place where the provider is now. It has no idempotency key: sent again it is the same."""

    provider: str
    secret: str


class ConfigSetParams(TypedDict):
    """`config/set`: sets one key in the file; what that widens is confirmed."""

    name: str
    value: str


Signal: TypeAlias = "Literal['bell', 'osc9', 'osc777'] | str"


class Skill(TypedDict):
    """A skill that a session's model is told of."""

    name: str
    path: str
    digest: str


class SkillLimit(TypedDict):
    """The limits of a turn that has read a skill."""

    skill: str
    allowed: list[str]


class CompletionStartParams(TypedDict):
    """`completion/start`: ask a model, and send what it answers as notifications."""

    model: NotRequired[str | None]
    system: NotRequired[str]
    messages: NotRequired[list[CompletionMessage]]
    tools: NotRequired[list[CompletionTool]]
    schema: NotRequired[Any]
    max_tokens: NotRequired[int | None]
    effort: NotRequired[Effort]
    tool_choice: NotRequired[ToolChoice]
    forced_tool: NotRequired[str | None]
    parallel_tool_calls: NotRequired[bool | None]
    stop: NotRequired[list[str]]
    temperature: NotRequired[float | None]
    top_p: NotRequired[float | None]
    seed: NotRequired[int | None]
    frequency_penalty: NotRequired[float | None]
    presence_penalty: NotRequired[float | None]
    responses: NotRequired[str | None]


class CompletionStartResult(TypedDict):
    """The result of `completion/start`; pieces follow it."""

    completion: CompletionId
    model: str
    ignored: NotRequired[list[str]]
    native: NotRequired[bool]


State: TypeAlias = "Literal['idle', 'running', 'waiting', 'offered']"


State2: TypeAlias = "Literal['idle', 'starting', 'running', 'failed', 'waiting', 'needs_login', 'untrusted', 'left_out'] | str"


class DaemonStatusResult(TypedDict):
    """The result of `daemon/status`."""

    version: str
    protocol: list[int]
    pid: int
    keeper: NotRequired[int | None]
    restarts: NotRequired[int]
    started_at: int
    socket: str
    database: str
    log: str
    log_error: NotRequired[str | None]
    config: str
    config_error: NotRequired[str | None]
    config_warnings: NotRequired[list[str]]
    model: NotRequired[str | None]
    sessions: int
    running: int
    permissions: int
    questions: NotRequired[int]
    tokens: NotRequired[int]
    connections: int
    damage: NotRequired[list[Damage]]
    storage: NotRequired[Storage | None]
    gateway: NotRequired[RunningGateway | None]
    proxies: NotRequired[list[str]]


Status2: TypeAlias = "Literal['active', 'waits', 'hidden', 'broken'] | str"


class DaemonStopParams(TypedDict):
    """`daemon/stop`: ends the daemon; running turns continue when it starts again."""

    force: NotRequired[bool]
    now: NotRequired[bool]
    key: NotRequired[str | None]


StopReason: TypeAlias = "Literal['end_turn', 'max_tokens', 'max_steps', 'refusal', 'cancelled', 'error'] | str"


class Storage(TypedDict):
    """The space that is taken on the disk, in bytes."""

    database: int
    unused: int
    wal: int
    blobs: int
    log: int
    free: int


Subject: TypeAlias = "Literal['configuration', 'circles', 'budget', 'workspace', 'plan', 'check'] | str"


class EventsSubscribeParams(TypedDict):
    """`events/subscribe`: send the events of all sessions after a cursor, and all that follow."""

    sessions: NotRequired[list[SessionId] | None]
    kinds: NotRequired[list[str] | None]
    after: NotRequired[Cursor | None]


class EventsSubscribeResult(TypedDict):
    """The result of `events/subscribe`; events follow it."""

    cursor: Cursor


class Sum(TypedDict):
    """The usage of some answers, added up."""

    day: NotRequired[str | None]
    model: NotRequired[str | None]
    session: NotRequired[SessionId | None]
    name: NotRequired[str | None]
    answers: int
    usage: Usage


class UsageListResult(TypedDict):
    """The result of `usage/list`."""

    rows: list[Sum]
    total: Sum
    left_out: NotRequired[int]


class McpTestParams(TypedDict):
    """`mcp/test`: starts a server and asks for its tools."""

    server: str
    cwd: str
    env: NotRequired[dict[str, str]]


class Text(TypedDict):
    """The text of the file."""

    text: str
    digest: str


class Times(TypedDict):
    """How long a provider took for an answer, in milliseconds from when the request was sent."""

    first_byte_ms: int
    total_ms: int


TokenId: TypeAlias = "str"


class TokenRow(TypedDict):
    """A row of `token/list`."""

    id: TokenId
    grant: Grant
    created_at: int
    used_at: NotRequired[int | None]
    code_until: NotRequired[int | None]


class Tool(TypedDict):
    """A row of `tool/list`."""

    name: str
    description: str
    input_schema: Any
    read_only: bool
    kind: NotRequired[ToolKind]
    effect: NotRequired[ToolEffect]
    verdict: NotRequired[ToolVerdict | None]
    server: NotRequired[str | None]
    file: NotRequired[str | None]


ToolChoice: TypeAlias = "Literal['auto', 'none', 'required']"


ToolDecision: TypeAlias = "Literal['allow', 'ask', 'deny']"


ToolEffect: TypeAlias = "Literal['reads', 'writes', 'runs', 'network', 'asks', 'unknown']"


ToolKind: TypeAlias = "Literal['read', 'edit', 'delete', 'move', 'search', 'execute', 'think', 'fetch', 'other']"


class ToolVerdict(TypedDict):
    """The verdict of rules and mode on a plain call: within the workspace, to a host or with a command that no rule names."""

    verdict: ToolDecision
    by: str


class ToolListParams(TypedDict):
    """`tool/list`: the tools of a session, or without one those of a new session in a directory."""

    session: NotRequired[SessionId | None]
    cwd: NotRequired[str | None]


Trigger: TypeAlias = "Literal['asked', 'full', 'too_long'] | str"


class Trusted(TypedDict):
    """A row of `trust/list`: a workspace of which something is trusted."""

    workspace: str
    trusts: list[str]


TurnId: TypeAlias = "str"


Unattended: TypeAlias = "str"


Uncertain: TypeAlias = "Literal['undo', 'keep', 'ask']"


# A change of a file while a command ran, which an editor or another program may have made.
UncertainChange = TypedDict("UncertainChange", {
    "path": "str",
    "kind": "ChangeKind",
    "call_id": "CallId",
    "at": "NotRequired[int | None]",
    "from": "NotRequired[int | None]",
    "to": "int",
})


class SessionUncompactParams(TypedDict):
    """`session/uncompact`: takes back the latest compaction, while the messages fit the model."""

    session: SessionId
    key: NotRequired[str | None]


class Uncompacted(TypedDict):
    """A compaction was taken back: the model reads the messages again that it had replaced."""

    compacted: int
    messages: int
    tokens: int
    by: NotRequired[str | None]
    process: NotRequired[Process | None]


class SessionUndoParams(TypedDict):
    """`session/undo`: puts files back to what they were before the model's tools changed them."""

    session: SessionId
    call: NotRequired[CallId | None]
    file: NotRequired[str | None]
    files: NotRequired[list[str]]
    uncertain: NotRequired[Uncertain | None]
    force: NotRequired[bool]
    key: NotRequired[str | None]


class SessionUnqueueParams(TypedDict):
    """`session/unqueue`: takes back a prompt that waits for its turn, or a draft."""

    session: SessionId
    prompt: NotRequired[PromptId | None]
    key: NotRequired[str | None]


class SessionUnqueueResult(TypedDict):
    """The result of `session/unqueue`."""

    prompt: PromptId


class Until(TypedDict):
    """A check of the work of a turn: a command that the daemon runs when the turn would end, by permission like one of `bash`."""

    command: str
    tries: NotRequired[int | None]


UploadId: TypeAlias = "str"


class Usage(TypedDict):
    """Tokens, as the provider counted them, and what they cost; of one step, or the sum over some."""

    input_tokens: NotRequired[int]
    output_tokens: NotRequired[int]
    cached_tokens: NotRequired[int]
    cache_write_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]
    cost_micros: NotRequired[int | None]
    cost_at_least: NotRequired[bool]


class Waiting(TypedDict):
    """Changes that wait."""

    digest: str
    question: NotRequired[QuestionId | None]
    changes: list[str]


class DaemonHelloResult(TypedDict):
    """The result of `daemon/hello`."""

    protocol: int
    version: str
    grant: NotRequired[Grant | None]
    env: list[str]
    env_deny: NotRequired[list[str]]
    keys: list[str]
    workspace_keys: NotRequired[dict[str, list[str]]]
    signals: NotRequired[list[Signal]]
    config_error: NotRequired[str | None]
    config_stale: NotRequired[bool]
    config_warnings: NotRequired[list[str]]
    damage: NotRequired[list[str]]


When: TypeAlias = "Literal['queue', 'steer', 'interrupt']"


class TrustGetResult(TypedDict):
    """The result of `trust/get`."""

    workspace: str
    file: str
    settings: NotRequired[Any]
    error: NotRequired[str | None]
    problems: NotRequired[list[str]]
    waiting: NotRequired[Waiting | None]


class Worktree(TypedDict):
    """The git worktree of a child."""

    path: str
    branch: str
    base: str
    status: NotRequired[WorktreeStatus]


WorktreeStatus: TypeAlias = "Literal['kept', 'merged', 'removed'] | str"


class ConfigWriteParams(TypedDict):
    """`config/write`: replaces the text of the file; what that widens is confirmed."""

    text: str
    digest: str
    dry_run: NotRequired[bool]


class ArtifactWriteParams(TypedDict):
    """`artifact/write`: the next piece."""

    upload: UploadId
    offset: int
    data: str


class ArtifactWriteResult(TypedDict):
    """The result of `artifact/write`."""

    size: int


class AlreadyAnsweredError(LingerError):
    code = -31001


class UnknownSessionError(LingerError):
    code = -31002


class UnknownPermissionError(LingerError):
    code = -31003


class UnknownCursorError(LingerError):
    code = -31004


class WrongDigestError(LingerError):
    code = -31005


class NotAllowedError(LingerError):
    code = -31006


class NoModelError(LingerError):
    code = -31007


class UnknownProviderError(LingerError):
    code = -31008


class KeyMissingError(LingerError):
    code = -31009


class BadConfigError(LingerError):
    code = -31010


class NoWorkspaceError(LingerError):
    code = -31011


class BadNameError(LingerError):
    code = -31012


class BusyError(LingerError):
    code = -31013


class IdleError(LingerError):
    code = -31014


class TooMuchError(LingerError):
    code = -31015


class StorageError(LingerError):
    code = -31016


class EndingError(LingerError):
    code = -31017


class VersionError(LingerError):
    code = -31018


class BadPromptError(LingerError):
    code = -31019


class NotAttachedError(LingerError):
    code = -31020


class DamagedError(LingerError):
    code = -31021


class BadKeyError(LingerError):
    code = -31022


class UnknownBlobError(LingerError):
    code = -31023


class NoKeychainError(LingerError):
    code = -31024


class NotAKeyError(LingerError):
    code = -31025


class BadSchemaError(LingerError):
    code = -31026


class UnknownQuestionError(LingerError):
    code = -31027


class UnknownOptionError(LingerError):
    code = -31028


class BadValueError(LingerError):
    code = -31030


class UnknownServerError(LingerError):
    code = -31029


class ServerFailedError(LingerError):
    code = -31051


class BadRuleError(LingerError):
    code = -31040


class UnknownMessageError(LingerError):
    code = -31070


class BinnedError(LingerError):
    code = -31060


class FileChangedError(LingerError):
    code = -31050


class UncertainError(LingerError):
    code = -31052


class UnauthorizedError(LingerError):
    code = -31080


class UnknownTokenError(LingerError):
    code = -31081


class UnknownArtifactError(LingerError):
    code = -31082


class InternalError(LingerError):
    code = -31099


# Methods that take an idempotency key.
KEYED = frozenset({
    "daemon/stop",
    "session/create",
    "session/prompt",
    "session/cancel",
    "session/continue",
    "session/compact",
    "session/unqueue",
    "session/undo",
    "session/redo",
    "session/fork",
    "session/rewind",
    "session/uncompact",
    "session/merge",
    "session/set",
    "session/bin",
    "session/restore",
    "session/remove",
    "session/prune",
    "permission/answer",
    "question/answer",
})


class Methods:
    """Each method with its params and its result."""

    async def call(self, method: str, params: Any = None) -> Any:
        raise NotImplementedError

    async def daemon_hello(self, **params: Unpack[DaemonHelloParams]) -> DaemonHelloResult:
        result: DaemonHelloResult = await self.call("daemon/hello", params)
        return result

    async def daemon_keys(self, **params: Unpack[DaemonKeysParams]) -> Empty:
        result: Empty = await self.call("daemon/keys", params)
        return result

    async def daemon_status(self) -> DaemonStatusResult:
        result: DaemonStatusResult = await self.call("daemon/status")
        return result

    async def daemon_stop(self, **params: Unpack[DaemonStopParams]) -> Empty:
        result: Empty = await self.call("daemon/stop", params)
        return result

    async def daemon_check(self) -> DaemonCheckResult:
        result: DaemonCheckResult = await self.call("daemon/check")
        return result

    async def model_list(self, **params: Unpack[ModelListParams]) -> list[Model]:
        result: list[Model] = await self.call("model/list", params)
        return result

    async def mode_list(self) -> list[ModeInfo]:
        result: list[ModeInfo] = await self.call("mode/list")
        return result

    async def tool_list(self, **params: Unpack[ToolListParams]) -> list[Tool]:
        result: list[Tool] = await self.call("tool/list", params)
        return result

    async def session_create(self, **params: Unpack[SessionCreateParams]) -> SessionCreateResult:
        result: SessionCreateResult = await self.call("session/create", params)
        return result

    async def session_list(self, **params: Unpack[SessionListParams]) -> list[Info]:
        result: list[Info] = await self.call("session/list", params)
        return result

    async def session_attach(self, **params: Unpack[SessionAttachParams]) -> SessionAttachResult:
        result: SessionAttachResult = await self.call("session/attach", params)
        return result

    async def session_detach(self, **params: Unpack[Named]) -> Empty:
        result: Empty = await self.call("session/detach", params)
        return result

    async def session_env(self, **params: Unpack[Named]) -> SessionEnvResult:
        result: SessionEnvResult = await self.call("session/env", params)
        return result

    async def session_prompt(self, **params: Unpack[SessionPromptParams]) -> Prompted:
        result: Prompted = await self.call("session/prompt", params)
        return result

    async def session_cancel(self, **params: Unpack[SessionCancelParams]) -> Empty:
        result: Empty = await self.call("session/cancel", params)
        return result

    async def session_continue(self, **params: Unpack[SessionContinueParams]) -> Empty:
        result: Empty = await self.call("session/continue", params)
        return result

    async def session_compact(self, **params: Unpack[SessionCompactParams]) -> Prompted:
        result: Prompted = await self.call("session/compact", params)
        return result

    async def session_unqueue(self, **params: Unpack[SessionUnqueueParams]) -> SessionUnqueueResult:
        result: SessionUnqueueResult = await self.call("session/unqueue", params)
        return result

    async def session_undo(self, **params: Unpack[SessionUndoParams]) -> Restored:
        result: Restored = await self.call("session/undo", params)
        return result

    async def session_redo(self, **params: Unpack[SessionRedoParams]) -> Restored:
        result: Restored = await self.call("session/redo", params)
        return result

    async def session_diff(self, **params: Unpack[SessionDiffParams]) -> SessionDiffResult:
        result: SessionDiffResult = await self.call("session/diff", params)
        return result

    async def session_fork(self, **params: Unpack[SessionForkParams]) -> SessionForkResult:
        result: SessionForkResult = await self.call("session/fork", params)
        return result

    async def session_rewind(self, **params: Unpack[SessionRewindParams]) -> SessionRewindResult:
        result: SessionRewindResult = await self.call("session/rewind", params)
        return result

    async def session_prompts(self, **params: Unpack[SessionPromptsParams]) -> list[PromptRow]:
        result: list[PromptRow] = await self.call("session/prompts", params)
        return result

    async def session_compaction(self, **params: Unpack[SessionCompactionParams]) -> list[CompactionRow]:
        result: list[CompactionRow] = await self.call("session/compaction", params)
        return result

    async def session_uncompact(self, **params: Unpack[SessionUncompactParams]) -> Uncompacted:
        result: Uncompacted = await self.call("session/uncompact", params)
        return result

    async def session_merge(self, **params: Unpack[SessionMergeParams]) -> Merged:
        result: Merged = await self.call("session/merge", params)
        return result

    async def session_set(self, **params: Unpack[SessionSetParams]) -> Empty:
        result: Empty = await self.call("session/set", params)
        return result

    async def session_bin(self, **params: Unpack[SessionBinParams]) -> Removed:
        result: Removed = await self.call("session/bin", params)
        return result

    async def session_restore(self, **params: Unpack[SessionRestoreParams]) -> SessionRestoreResult:
        result: SessionRestoreResult = await self.call("session/restore", params)
        return result

    async def session_remove(self, **params: Unpack[SessionRemoveParams]) -> Removed:
        result: Removed = await self.call("session/remove", params)
        return result

    async def session_prune(self, **params: Unpack[SessionPruneParams]) -> SessionPruneResult:
        result: SessionPruneResult = await self.call("session/prune", params)
        return result

    async def events_subscribe(self, **params: Unpack[EventsSubscribeParams]) -> EventsSubscribeResult:
        result: EventsSubscribeResult = await self.call("events/subscribe", params)
        return result

    async def events_unsubscribe(self) -> Empty:
        result: Empty = await self.call("events/unsubscribe")
        return result

    async def session_search(self, **params: Unpack[SessionSearchParams]) -> SessionSearchResult:
        result: SessionSearchResult = await self.call("session/search", params)
        return result

    async def completion_start(self, **params: Unpack[CompletionStartParams]) -> CompletionStartResult:
        result: CompletionStartResult = await self.call("completion/start", params)
        return result

    async def completion_cancel(self, **params: Unpack[CompletionCancelParams]) -> Empty:
        result: Empty = await self.call("completion/cancel", params)
        return result

    async def usage_list(self, **params: Unpack[UsageListParams]) -> UsageListResult:
        result: UsageListResult = await self.call("usage/list", params)
        return result

    async def blob_get(self, **params: Unpack[BlobGetParams]) -> Piece:
        result: Piece = await self.call("blob/get", params)
        return result

    async def artifact_begin(self, **params: Unpack[ArtifactBeginParams]) -> ArtifactBeginResult:
        result: ArtifactBeginResult = await self.call("artifact/begin", params)
        return result

    async def artifact_write(self, **params: Unpack[ArtifactWriteParams]) -> ArtifactWriteResult:
        result: ArtifactWriteResult = await self.call("artifact/write", params)
        return result

    async def artifact_finish(self, **params: Unpack[ArtifactFinishParams]) -> Artifact:
        result: Artifact = await self.call("artifact/finish", params)
        return result

    async def artifact_get(self, **params: Unpack[NamedArtifact]) -> Artifact:
        result: Artifact = await self.call("artifact/get", params)
        return result

    async def artifact_read(self, **params: Unpack[ArtifactReadParams]) -> Piece:
        result: Piece = await self.call("artifact/read", params)
        return result

    async def artifact_list(self, **params: Unpack[ArtifactListParams]) -> list[Artifact]:
        result: list[Artifact] = await self.call("artifact/list", params)
        return result

    async def artifact_delete(self, **params: Unpack[NamedArtifact]) -> Empty:
        result: Empty = await self.call("artifact/delete", params)
        return result

    async def key_list(self) -> KeyListResult:
        result: KeyListResult = await self.call("key/list")
        return result

    async def key_set(self, **params: Unpack[KeySetParams]) -> KeyInfo:
        result: KeyInfo = await self.call("key/set", params)
        return result

    async def key_remove(self, **params: Unpack[KeyRemoveParams]) -> KeyRemoveResult:
        result: KeyRemoveResult = await self.call("key/remove", params)
        return result

    async def config_get(self, **params: Unpack[ConfigGetParams]) -> ConfigGetResult:
        result: ConfigGetResult = await self.call("config/get", params)
        return result

    async def config_confirm(self, **params: Unpack[ConfigConfirmParams]) -> Confirmed:
        result: Confirmed = await self.call("config/confirm", params)
        return result

    async def config_set(self, **params: Unpack[ConfigSetParams]) -> Confirmed:
        result: Confirmed = await self.call("config/set", params)
        return result

    async def config_write(self, **params: Unpack[ConfigWriteParams]) -> Confirmed:
        result: Confirmed = await self.call("config/write", params)
        return result

    async def trust_get(self, **params: Unpack[TrustGetParams]) -> TrustGetResult:
        result: TrustGetResult = await self.call("trust/get", params)
        return result

    async def trust_confirm(self, **params: Unpack[TrustConfirmParams]) -> Confirmed:
        result: Confirmed = await self.call("trust/confirm", params)
        return result

    async def trust_list(self) -> list[Trusted]:
        result: list[Trusted] = await self.call("trust/list")
        return result

    async def trust_revoke(self, **params: Unpack[TrustRevokeParams]) -> TrustRevokeResult:
        result: TrustRevokeResult = await self.call("trust/revoke", params)
        return result

    async def token_mint(self, **params: Unpack[TokenMintParams]) -> Minted:
        result: Minted = await self.call("token/mint", params)
        return result

    async def token_exchange(self, **params: Unpack[TokenExchangeParams]) -> Minted:
        result: Minted = await self.call("token/exchange", params)
        return result

    async def token_list(self) -> list[TokenRow]:
        result: list[TokenRow] = await self.call("token/list")
        return result

    async def token_revoke(self, **params: Unpack[TokenRevokeParams]) -> Empty:
        result: Empty = await self.call("token/revoke", params)
        return result

    async def skill_list(self, **params: Unpack[List3]) -> list[Item]:
        result: list[Item] = await self.call("skill/list", params)
        return result

    async def command_list(self, **params: Unpack[List3]) -> list[Item]:
        result: list[Item] = await self.call("command/list", params)
        return result

    async def agent_list(self, **params: Unpack[List3]) -> list[Item]:
        result: list[Item] = await self.call("agent/list", params)
        return result

    async def tool_files(self, **params: Unpack[List3]) -> list[Item]:
        result: list[Item] = await self.call("tool/files", params)
        return result

    async def mcp_files(self, **params: Unpack[List3]) -> list[Item]:
        result: list[Item] = await self.call("mcp/files", params)
        return result

    async def memory_list(self, **params: Unpack[MemoryListParams]) -> list[Note]:
        result: list[Note] = await self.call("memory/list", params)
        return result

    async def memory_add(self, **params: Unpack[MemoryAddParams]) -> Note:
        result: Note = await self.call("memory/add", params)
        return result

    async def memory_remove(self, **params: Unpack[MemoryRemoveParams]) -> Empty:
        result: Empty = await self.call("memory/remove", params)
        return result

    async def mcp_list(self, **params: Unpack[McpListParams]) -> list[Server]:
        result: list[Server] = await self.call("mcp/list", params)
        return result

    async def mcp_add(self, **params: Unpack[McpAddParams]) -> Empty:
        result: Empty = await self.call("mcp/add", params)
        return result

    async def mcp_remove(self, **params: Unpack[Named2]) -> Empty:
        result: Empty = await self.call("mcp/remove", params)
        return result

    async def mcp_restart(self, **params: Unpack[Named2]) -> Empty:
        result: Empty = await self.call("mcp/restart", params)
        return result

    async def mcp_logs(self, **params: Unpack[Named2]) -> McpLogsResult:
        result: McpLogsResult = await self.call("mcp/logs", params)
        return result

    async def mcp_test(self, **params: Unpack[McpTestParams]) -> Server:
        result: Server = await self.call("mcp/test", params)
        return result

    async def mcp_login(self, **params: Unpack[McpLoginParams]) -> McpLoginResult:
        result: McpLoginResult = await self.call("mcp/login", params)
        return result

    async def mcp_finish_login(self, **params: Unpack[McpFinishLoginParams]) -> McpFinishLoginResult:
        result: McpFinishLoginResult = await self.call("mcp/finish_login", params)
        return result

    async def mcp_logout(self, **params: Unpack[Named2]) -> McpLogoutResult:
        result: McpLogoutResult = await self.call("mcp/logout", params)
        return result

    async def mcp_resources(self, **params: Unpack[Offered]) -> list[Resource]:
        result: list[Resource] = await self.call("mcp/resources", params)
        return result

    async def mcp_resource(self, **params: Unpack[McpResourceParams]) -> Attachable:
        result: Attachable = await self.call("mcp/resource", params)
        return result

    async def mcp_prompts(self, **params: Unpack[Offered]) -> list[ServerPrompt]:
        result: list[ServerPrompt] = await self.call("mcp/prompts", params)
        return result

    async def mcp_prompt(self, **params: Unpack[McpPromptParams]) -> Attachable:
        result: Attachable = await self.call("mcp/prompt", params)
        return result

    async def permission_list(self, **params: Unpack[PermissionListParams]) -> list[Pending]:
        result: list[Pending] = await self.call("permission/list", params)
        return result

    async def permission_answer(self, **params: Unpack[PermissionAnswerParams]) -> Answered:
        result: Answered = await self.call("permission/answer", params)
        return result

    async def permission_explain(self, **params: Unpack[PermissionExplainParams]) -> PermissionExplainResult:
        result: PermissionExplainResult = await self.call("permission/explain", params)
        return result

    async def permission_rules(self) -> list[AlwaysRule]:
        result: list[AlwaysRule] = await self.call("permission/rules")
        return result

    async def permission_remove(self, **params: Unpack[PermissionRemoveParams]) -> PermissionRemoveResult:
        result: PermissionRemoveResult = await self.call("permission/remove", params)
        return result

    async def question_list(self, **params: Unpack[QuestionListParams]) -> list[PendingQuestion]:
        result: list[PendingQuestion] = await self.call("question/list", params)
        return result

    async def question_answer(self, **params: Unpack[QuestionAnswerParams]) -> Answered:
        result: Answered = await self.call("question/answer", params)
        return result

# types: end


class Linger(_Core, Methods):
    """A daemon. Each method of the protocol is a method here: `await daemon.session_list(limit=5)`."""

    async def __aenter__(self) -> Linger:
        return self
