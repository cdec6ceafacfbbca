/**
 * A client of linger: sessions of coding agents that outlive their terminal.
 *
 *     import { connect } from "./linger.ts";
 *
 *     const daemon = await connect();
 *     const session = await daemon.create({ model: "demo" });
 *     for await (const event of session.prompt("say: hello")) {
 *       if (event.kind === "text_delta") process.stdout.write(event.text);
 *       else if (event.kind === "permission_requested") await session.answer(event, "allow_once");
 *     }
 *     daemon.close();
 *
 * Node.js alone, 22.18 or newer as it is (older ones after `tsc`); no dependencies. The daemon may end and come back at any time:
 * a stream reads on at its cursor, so nothing is lost and nothing comes twice; a request is sent again with its idempotency key,
 * so it takes effect once. A stream has a connection of its own and reads only as its program does: one that is not read holds a
 * position, and no memory.
 *
 * No request carries a provider's key, and sessions get the variables of `ENVIRONMENT` alone, unless `env` says otherwise.
 */

import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { lstat } from "node:fs/promises";
import { connect as dial, type Socket } from "node:net";
import { homedir } from "node:os";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** The versions of the protocol that this file speaks. */
export const PROTOCOL = [1, 1];

/** The variables that a session's tools get, if they are set: none of them holds a secret. */
export const ENVIRONMENT = [
  "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSH_AUTH_SOCK",
  "XDG_RUNTIME_DIR", "EDITOR", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "JAVA_HOME", "VIRTUAL_ENV", "NVM_DIR",
  "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS",
];

/** The longest line that is read, in bytes: several times what a message of a client may have. */
const MAX_LINE = 1 << 26;

/** How long a lost daemon is dialled before it is started, and how long in all, in milliseconds: its keeper needs a moment. */
const KEEPER = 500;
const PATIENCE = 15_000;

/** The pause between two tries, in milliseconds. */
const PAUSE = 50;

/** So many idle connections are kept for requests; each takes a place at the daemon. */
const IDLE = 2;

/** So often a connection may end with nothing read before a request or a stream fails: each is over a new one. */
const RESENDS = 3;

/** Errors of a daemon that is ending, or has all the connections that it takes: another try may succeed. */
const ENDING = -31017;
const TOO_MUCH = -31015;

/** Notices without a number after which a session sends nothing more. */
const LAST = ["removed", "damaged"];

const DOCTOR = "`linger doctor` says what is wrong";

/** The name of an error: `UnknownSession`, `NotAllowed` …; `Other` for JSON-RPC's own codes. */
export type ErrorName = (typeof ERRORS)[keyof typeof ERRORS] | "ConnectionLost" | "Other";

/** A refusal of the daemon, or, as `ConnectionLost`, a daemon that cannot be reached. */
export class LingerError extends Error {
  readonly code: number;
  readonly kind: ErrorName;
  /** What to do next, where the daemon says so. */
  readonly hint: string | undefined;
  /** What else belongs to the error; `AlreadyAnswered` has `answer`, `by` and `at`. */
  readonly data: Record<string, unknown>;

  constructor(message: string, code: number, data: Record<string, unknown> = {}, kind?: ErrorName) {
    super(message);
    this.name = "LingerError";
    this.code = code;
    this.data = data;
    this.kind = kind ?? (ERRORS as Record<number, ErrorName>)[code] ?? "Other";
    this.hint = typeof data.hint === "string" ? data.hint : undefined;
  }
}

function lost(message: string): LingerError {
  return new LingerError(message, 0, { hint: DOCTOR }, "ConnectionLost");
}

/** A connection ended. */
class Hangup extends Error {}

/** Where the daemon's socket is: `LINGER_SOCKET`, or in the state directory. */
export function socketPath(): string {
  if (process.env.LINGER_SOCKET) return resolve(process.env.LINGER_SOCKET);
  const state = process.env.XDG_STATE_HOME ?? "";
  return join(isAbsolute(state) ? state : join(homedir(), ".local", "state"), "linger", "lingerd.sock");
}

/** Refuses a directory that others can enter: whoever put a socket there is not the user's daemon. */
async function check(directory: string): Promise<void> {
  const info = await lstat(directory);
  if (!info.isDirectory() || info.uid !== process.geteuid?.() || (info.mode & 0o077) !== 0) {
    throw lost(`${directory} is not a directory of yours that is closed to others`);
  }
}

interface Incoming {
  id?: number | null;
  method?: string;
  params?: AnyNotification & Notification;
  result?: any;
  error?: { code: number; message: string; data?: Record<string, unknown> };
}

/** One socket: lines out, lines in. */
class Connection {
  private readonly socket: Socket;
  private readonly chunks: AsyncIterator<Buffer>;
  private readonly lines: string[] = [];
  private parts: Buffer[] = [];
  private size = 0;
  private last = 0;

  constructor(socket: Socket) {
    this.socket = socket;
    // Reads as the program does: what it does not take stays with the daemon.
    this.chunks = socket[Symbol.asyncIterator]();
    socket.on("error", () => {});
  }

  static open(path: string): Promise<Connection> {
    return new Promise((done, fail) => {
      const socket = dial(path);
      socket.once("error", fail);
      socket.once("connect", () => {
        socket.off("error", fail);
        done(new Connection(socket));
      });
    });
  }

  send(method: string, params: object): number {
    this.last += 1;
    this.socket.write(`${JSON.stringify({ jsonrpc: "2.0", id: this.last, method, params })}\n`);
    return this.last;
  }

  async read(): Promise<Incoming> {
    while (this.lines.length === 0) await this.more();
    const message: Incoming = JSON.parse(this.lines.shift() as string);
    const code = message.error?.code;
    if (code === ENDING || (code === TOO_MUCH && message.id == null)) throw new Hangup(message.error?.message);
    return message;
  }

  /** Lines end at LF, and nowhere else. */
  private async more(): Promise<void> {
    const next = await this.chunks.next().catch(() => ({ done: true as const, value: undefined }));
    if (next.done) throw new Hangup("the connection ended");
    let rest = next.value;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      this.lines.push(Buffer.concat([...this.parts, rest.subarray(0, end)]).toString());
      rest = rest.subarray(end + 1);
      this.parts = [];
      this.size = 0;
    }
    this.parts.push(rest);
    this.size += rest.length;
    if (this.size > MAX_LINE) throw lost(`the daemon sent a line of more than ${MAX_LINE} bytes`);
  }

  /** The result of a request; what comes before it is left out. */
  async answer(id: number): Promise<any> {
    for (;;) {
      const message = await this.read();
      if (message.id === id) return result(message);
    }
  }

  close(): void {
    this.socket.destroy();
  }
}

function result(message: Incoming): any {
  if (message.error) throw new LingerError(message.error.message, message.error.code, message.error.data);
  return message.result;
}

function keyed(method: string, params: object): object {
  return KEYED.has(method) ? { key: randomUUID(), ...params } : params;
}

export interface ConnectOptions {
  /** The socket; where it usually is when absent. */
  socket?: string;
  /** Our name for others. */
  client?: string;
  /** The program that starts the daemon if there is none; with null that is an error. */
  program?: string | null;
}

/** The user's daemon. */
export async function connect(options: ConnectOptions = {}): Promise<Linger> {
  const daemon = new Linger(options);
  await daemon.call("daemon/status");
  return daemon;
}

/** A daemon. Each method of the protocol can be called: `await daemon.call("session/list", { limit: 5 })`. */
export class Linger {
  readonly socket: string;
  private readonly client: string;
  private readonly program: string | null;
  private idle: Connection[] = [];
  private closed = false;
  private reached = false;

  constructor(options: ConnectOptions) {
    this.socket = options.socket ?? socketPath();
    this.client = options.client ?? "linger.ts";
    this.program = options.program === undefined ? "linger" : options.program;
  }

  /** Closes the connections that no stream has. Work goes on at the daemon. */
  close(): void {
    this.closed = true;
    this.idle.splice(0).forEach((connection) => connection.close());
  }

  /** A connection that has said hello. Starts the daemon if it does not come back by itself. */
  private async dial(): Promise<Connection> {
    if (this.closed) throw lost("this client was closed");
    const began = Date.now();
    const wait = this.reached ? KEEPER : 0;
    for (let started = false; ; ) {
      let why: string;
      try {
        return await this.hello();
      } catch (error) {
        const code = (error as NodeJS.ErrnoException).code;
        if (!(error instanceof Hangup) && typeof code !== "string") throw error;
        why = (error as Error).message;
        if (typeof code === "string" && !["ENOENT", "ECONNREFUSED", "ECONNRESET", "EPIPE"].includes(code)) {
          throw lost(`cannot connect to the daemon at ${this.socket}: ${why}`);
        }
      }
      const past = Date.now() - began;
      if (past > PATIENCE) throw lost(`cannot reach the daemon at ${this.socket}: ${why}`);
      if (this.program !== null && !started && past >= wait) {
        started = true;
        await this.start(this.program);
      } else {
        await sleep(PAUSE);
      }
    }
  }

  private async hello(): Promise<Connection> {
    await check(dirname(this.socket));
    const connection = await Connection.open(this.socket);
    try {
      await connection.answer(connection.send("daemon/hello", { client: this.client, protocol: PROTOCOL }));
      this.reached = true;
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  private start(program: string): Promise<void> {
    return new Promise((done, fail) => {
      execFile(program, ["daemon", "start"], (error, _, said) => {
        if (!error) done();
        else fail(lost(`the daemon cannot be started: ${said.trim() || error.message}`));
      });
    });
  }

  /** A request and its result; sent again after a loss. One that changes something takes effect once. */
  async call<M extends keyof Methods>(method: M, params?: Methods[M]["params"]): Promise<Methods[M]["result"]> {
    const sent = keyed(method, params ?? {});
    for (let losses = 0; ; ) {
      const connection = this.idle.pop() ?? (await this.dial());
      try {
        const answer = await connection.answer(connection.send(method, sent));
        this.keep(connection);
        return answer;
      } catch (error) {
        if (error instanceof LingerError) {
          this.keep(connection);
          throw error;
        }
        connection.close();
        if (!(error instanceof Hangup)) throw error;
        // The others are as old.
        this.idle.splice(0).forEach((other) => other.close());
        losses += 1;
        if (losses > RESENDS) throw lost(`the daemon ended ${losses} times before it answered ${method}`);
      }
    }
  }

  private keep(connection: Connection): void {
    if (this.closed || this.idle.length >= IDLE) connection.close();
    else this.idle.push(connection);
  }

  /** A new session; in this process's directory, with its variables (`ENVIRONMENT`), unless `cwd` and `env` say otherwise. */
  async create(params: Partial<SessionCreateParams> = {}): Promise<Session> {
    const set = ENVIRONMENT.filter((name) => process.env[name] !== undefined);
    const env = Object.fromEntries(set.map((name) => [name, process.env[name] as string]));
    const made = await this.call("session/create", { env, ...params, cwd: resolve(params.cwd ?? ".") });
    return this.session(made.session);
  }

  /** A session that is there, by its id. */
  session(id: string): Session {
    return new Session(this, id);
  }

  /**
   * What happens in all sessions, or some; without `kinds` about sessions, turns and questions. `after` is the `cursor` of what
   * was handled last, or "now".
   */
  async *events(params: EventsSubscribeParams = {}): AsyncGenerator<AnyNotification, void, void> {
    const { after, ...ask } = params;
    for await (const it of this.stream("events/subscribe", ask, after ?? undefined)) if (it) yield it;
  }

  /**
   * Notifications after a cursor, over as many connections as it takes. `first` is a request that is sent once the stream stands,
   * again until it has its answer, which goes to `first.answer`; then comes one `undefined`.
   * @internal
   */
  async *stream(
    method: string, ask: object, after?: string, first?: { method: string; params: object; answer?: any },
  ): AsyncGenerator<(AnyNotification & Notification) | undefined, void, void> {
    const seqs = new Map<string | undefined | null, number>();
    let caughtUp = false;
    for (let losses = 0; ; ) {
      const connection = await this.dial();
      try {
        const attach = connection.send(method, after === undefined ? ask : { ...ask, after });
        const request = first && first.answer === undefined ? connection.send(first.method, first.params) : 0;
        for (;;) {
          const message = await connection.read();
          if (message.id === attach) {
            const begin = result(message).cursor;
            // Lost before its first event, a stream must not skip what came meanwhile.
            if (after === "now") after = begin;
          } else if (first && request !== 0 && message.id === request) {
            first.answer = result(message);
            yield undefined;
          } else if (message.params) {
            const it = message.params;
            losses = 0;
            after = it.cursor;
            const seq = it.event.seq ?? undefined;
            const isEnd = it.event.kind === "caught_up";
            if ((seq !== undefined && seq <= (seqs.get(it.session) ?? 0)) || (isEnd && caughtUp)) continue;
            if (seq !== undefined) seqs.set(it.session, seq);
            caughtUp ||= isEnd;
            yield it;
            const last = it.event.kind === "notice" && LAST.includes(it.event.code ?? "");
            if (last && seq === undefined && method === "session/attach") return;
          }
        }
      } catch (error) {
        if (!(error instanceof Hangup)) throw error;
        losses += 1;
        if (losses > RESENDS) throw lost(`the daemon ended ${losses} times before it sent anything`);
      } finally {
        connection.close();
      }
    }
  }
}

/** A session. Nothing of it lives here: it goes on without this program, and any other can follow it. */
export class Session {
  readonly daemon: Linger;
  readonly id: string;

  constructor(daemon: Linger, id: string) {
    this.daemon = daemon;
    this.id = id;
  }

  /** Its row of `session/list`: state, model, mode, questions that wait, cost. */
  async info(): Promise<Info> {
    const rows = await this.daemon.call("session/list", { matching: this.id });
    const row = rows.find((row) => row.session === this.id);
    if (!row) throw new LingerError(`there is no session '${this.id}'`, -31002);
    return row;
  }

  /**
   * All events after a cursor, from the beginning without one, and those to come. Each has the `cursor` to go on from another
   * time, and with `answered` it is a question of the past.
   */
  async *attach(options: Omit<SessionAttachParams, "session"> = {}): AsyncGenerator<Notification, void, void> {
    const { after, ...ask } = options;
    const stream = this.daemon.stream("session/attach", { ...ask, session: this.id }, after ?? undefined);
    for await (const it of stream) if (it) yield it;
  }

  /**
   * Gives it a prompt, and has the events of the turn that answers it, to `turn_finished`. The prompt is given once, however often
   * the daemon dies. Breaking off ends nothing: `cancel` does.
   */
  async *prompt(
    content: PromptContent, options: Partial<SessionPromptParams> & { deltas?: boolean } = {},
  ): AsyncGenerator<Event, void, void> {
    const { deltas = true, ...more } = options;
    const params = keyed("session/prompt", { ...more, session: this.id, content });
    const first: { method: string; params: object; answer?: Prompted } = { method: "session/prompt", params };
    const { cursor } = await this.info();
    let early: Array<Event> = [];
    let turn: string | null | undefined;
    for await (const it of this.daemon.stream("session/attach", { session: this.id, deltas }, cursor, first)) {
      if (it) early.push(it.event);
      if (!first.answer) continue;
      const fresh = early;
      early = [];
      for (const event of fresh) {
        const mine = "prompt" in event && event.prompt === first.answer.prompt;
        if (mine && (event.kind === "turn_started" || event.kind === "message")) turn ??= event.turn;
        if (event.kind !== "caught_up" && (turn || mine)) yield event;
        if (turn && event.kind === "turn_finished" && event.turn === turn) return;
        if (mine && event.kind === "prompt_unqueued") return;
      }
    }
  }

  /**
   * Answers a question: by its event or row, then only if it is still what that shows; or by its id. The names of the answers are
   * in its `options`; a form takes `accept` with its fields as `value`, or `decline`. If somebody was first, that is an error of
   * kind `AlreadyAnswered`.
   */
  async answer(
    question: string | PermissionRequestedEvent | QuestionAskedEvent | PendingQuestion, answer: string,
    more: { value?: unknown; reason?: string } = {},
  ): Promise<void> {
    const asked: { question: string; digest?: string } =
      typeof question === "string" ? { question }
      : "asked" in question ? { question: question.question, digest: question.asked.digest }
      : "question" in question ? { question: question.question, digest: question.digest }
      : { question: question.permission, digest: question.digest };
    await this.daemon.call("question/answer", { ...asked, answer, ...more });
  }

  /** What waits for an answer, in this session and its children. */
  questions(): Promise<Array<PendingQuestion>> {
    return this.daemon.call("question/list", { session: this.id });
  }

  /** Cancels the running turn; with `background` its commands in the background too. */
  async cancel(background = false): Promise<void> {
    await this.daemon.call("session/cancel", { session: this.id, background });
  }

  /** Resumes a turn that is offered, or starts queued prompts. */
  async resume(): Promise<void> {
    await this.daemon.call("session/continue", { session: this.id });
  }

  /** Changes model, mode, effort, name … */
  async set(changes: Omit<SessionSetParams, "session">): Promise<void> {
    await this.daemon.call("session/set", { ...changes, session: this.id });
  }
}

// types: begin (made from the schema)

/** `memory/add`: writes a note that did not exist. */
export interface MemoryAddParams {
  /** A directory of a workspace, absolute. */
  cwd: string;
  /** The subject. */
  scope?: Scope2;
  /** Its text; the first line says what it is about. */
  text: string;
  /** Its name; made of its first words when absent. */
  name?: string | null;
}

/** `mcp/add`: puts a server into the configuration; one of that name is an error. */
export interface McpAddParams {
  /** Its name. */
  server: string;
  /** The program. */
  command?: string | null;
  /** Its arguments. */
  args?: Array<string>;
  /** Its variables. */
  env?: Record<string, string>;
  /** Its directory. */
  cwd?: string | null;
  /** The address, in place of a program. */
  url?: string | null;
}

/** The effect of a restart on a tool call that had started. */
export type AfterCrash = "again" | "join" | (string & {});

/** A row of `permission/list`, of which these two fields count. */
export interface AfterPermission {
  /** When it was asked, in Unix milliseconds. */
  at: number;
  /** Orders rows of the same time. */
  permission: QuestionId;
}

/** A row of `question/list`, of which these two fields count. */
export interface AfterQuestion {
  /** When it was asked, in Unix milliseconds. */
  at: number;
  /** Orders rows of the same time. */
  question: QuestionId;
}

/** A rule that an `allow_always` or `reject_always` answer added to the configuration: a row of `permission/rules`. */
export interface AlwaysRule {
  /** The root of the workspace in which it holds. */
  workspace: string;
  /** As the configuration has it, such as `bash(make)`. */
  rule: string;
  /** Whether it refuses. */
  refuses?: boolean;
  /** When it was added, in Unix milliseconds; absent if the daemon's log does not say. */
  at?: number | null;
}

/** `permission/answer`: decides one permission; the first answer wins. */
export interface PermissionAnswerParams {
  /** The permission to decide. */
  permission: QuestionId;
  /** The decision: any but `cancelled`. */
  decision: string;
  /** A word to the model, mostly with `reject_once`. */
  reason?: string | null;
  /** The digest that was shown; an answer to something else is refused. */
  digest?: string | null;
  /** The rules that a lasting decision adds, in place of those that were shown. */
  rules?: Array<string>;
  /** Idempotency key. */
  key?: string | null;
}

/** `question/answer`: answers one question; the first answer wins. */
export interface QuestionAnswerParams {
  /** The question to answer. */
  question: QuestionId;
  /** The name of an option. */
  answer: string;
  /** The fields of a form that is accepted. */
  value?: unknown;
  /** A word with it; for a permission that is refused, one to the model. */
  reason?: string | null;
  /** The digest that was shown; an answer to something else is refused. */
  digest?: string | null;
  /** The rules that a lasting decision about a call adds, in place of those that were shown. */
  rules?: Array<string>;
  /** Idempotency key. */
  key?: string | null;
}

/** The result of `permission/answer`; a second answer gets the error `already answered`. */
export interface Answered {
  /** Always `won`. */
  outcome: string;
}

/** The `params` of an `events/event` notification. */
export interface AnyNotification {
  /** The session that the event belongs to; absent for `caught_up`. */
  session?: SessionId | null;
  /** Where to read on from after this event. It is none of `session/attach`. */
  cursor: Cursor;
  /** The event itself. */
  event: Event;
}

/** An artifact: a row of `artifact/list`. */
export interface Artifact {
  /** Its id, a UUID. */
  id: ArtifactId;
  /** The name of the file. */
  name: string;
  /** Such as `text/plain`; as it was said, and nothing to rely on. */
  content_type: string;
  /** Its bytes. */
  size: number;
  /** Their SHA-256, in hexadecimal digits. */
  sha256: string;
  /** When it was put here, in Unix milliseconds. */
  created_at: number;
  /** The client that put it here, or the name of its token's grant. */
  by: string;
}

/** An artifact: a UUID. */
export type ArtifactId = string;

/** A request of the daemon to a model in the user's place. */
export type Asks = "schema" | "again" | "go_on" | "ended" | "check" | "mode" | "child" | "output" | (string & {});

/** `session/attach`: send the session's events after a cursor, and all that follow. */
export interface SessionAttachParams {
  /** The session to follow. */
  session: SessionId;
  /** Where to read on from; from the beginning when absent. */
  after?: Cursor | null;
  /** Whether deltas are sent; true when absent. */
  deltas?: boolean | null;
  /** Whether a person reads along: while one does, the daemon sends no notification about the session, and it keeps how far they read (`left` of the session's row). From a process that the daemon started, or with a token that answers nothing, it means nothing. */
  person?: boolean;
  /** Values of secret variables that the session was created with, and of those by which a program finds the desktop (`DISPLAY`, `WAYLAND_DISPLAY`, `DBUS_SESSION_BUS_ADDRESS`, `XAUTHORITY`, `XDG_RUNTIME_DIR`), for notifications; others are ignored. */
  env?: Record<string, string>;
}

/** The answer of `mcp/resource` and `mcp/prompt`. */
export interface Attachable {
  /** Text that begins with its source, and images. */
  content: Array<ContentBlock>;
}

/** The result of `session/attach`; events follow it. */
export interface SessionAttachResult {
  /** The end of the log at this moment. */
  cursor: Cursor;
  /** Secret variables of its tools whose values the daemon lacks since it was restarted; `env` of an attach or a prompt brings them. */
  missing_env?: Array<string>;
}

/** A command that runs in the background. */
export interface Background {
  /** Its handle. */
  background: BackgroundId;
  /** The command line. */
  command: string;
  /** When it was started, in Unix milliseconds. */
  started_at: number;
}

/** A command in the background; unique within its session: `b1`, `b2` and so on. */
export type BackgroundId = string;

/** A row of `session/list`, of which these two fields count. */
export interface Before {
  /** When it last changed, in Unix milliseconds; notices between turns do not count. */
  updated_at: number;
  /** Orders rows of the same time. */
  session: SessionId;
}

/** A row of `artifact/list`, of which these two fields count. */
export interface BeforeArtifact {
  /** When it was put here, in Unix milliseconds. */
  created_at: number;
  /** Orders rows of the same time. */
  id: ArtifactId;
}

/** `artifact/begin`: begins to put an artifact here. */
export interface ArtifactBeginParams {
  /** The name of the file, without directories; `artifact` when absent. */
  name?: string | null;
  /** Such as `image/png`; `application/octet-stream` when absent. */
  content_type?: string | null;
  /** How many bytes will come, if that is known: what does not fit is refused before it is sent. */
  size?: number | null;
}

/** The result of `artifact/begin`. */
export interface ArtifactBeginResult {
  /** The upload that takes the pieces; it belongs to the connection. */
  upload: UploadId;
}

/** The process that a face speaks for, as `daemon/hello` says it: a connection with it may do less, never more. */
export interface Behind {
  /** Its process; absent if the face cannot find it. */
  pid?: number | null;
  /** Its user, if only that is known: a process of another user's, such as a proxy. A process of the daemon's own user that cannot be found, and one of which nothing is known, counts as one that the daemon started. */
  user?: number | null;
}

/** `session/bin`: puts a session into the bin, where it stays for 30 days. */
export interface SessionBinParams {
  /** The session to put into the bin. */
  session: SessionId;
  /** Also while a turn is running; it is cancelled first. */
  force?: boolean;
  /** Idempotency key. */
  key?: string | null;
}

/** Bytes that are stored once for all sessions: `sha256:` and their hash in hexadecimal digits. */
export type BlobId = string;

/** The work that waits for the answer to a question. */
export type Blocks = "call" | "turn" | "nothing";

/** The limits of a session. When a sum over all its turns reaches one, the turn asks before its next step; each answer to go on raises the limit by its own size. In requests 0 takes a limit away, and an absent one stays. */
export interface Budget {
  /** The cost of its models, in millionths of a US dollar, at most. */
  max_cost_micros?: number | null;
  /** Tokens of requests and answers together. */
  max_tokens?: number | null;
  /** How long its turns may run, in milliseconds, without the time that they wait for a person. */
  max_ms?: number | null;
  /** The most steps of each turn, if that is less than the configuration's; the turn then ends. */
  max_steps?: number | null;
}

/** The key of the rows of `usage/list`. */
export type By = "day" | "model" | "session";

/** A tool call; unique within its session, given by the daemon and not by the provider. */
export type CallId = string;

/** One thing that a grant allows. */
export type Can = "observe" | "speak" | "steer" | "answer_edits" | "answer_commands" | "administer";

/** `session/cancel`: stops the session's turn. */
export interface SessionCancelParams {
  /** The session whose turn is stopped. */
  session: SessionId;
  /** Also end its commands in the background. */
  background?: boolean;
  /** Idempotency key. */
  key?: string | null;
}

/** A kind of change of a file. */
export type ChangeKind = "create" | "edit" | "delete" | (string & {});

/** The result of `daemon/check`, which reads what is stored for some seconds at most and changes nothing. */
export interface DaemonCheckResult {
  /** Whether everything was read. */
  complete?: boolean;
  /** Whether `lingerd --recover` could save something. */
  repairable?: boolean;
  /** Damage, the files that were set aside, and their outcome. */
  damage?: Array<Damage>;
}

/** The state of the files of a workspace at a moment: an event. */
export interface Checkpoint {
  /** Its name: that of a tree of git. */
  checkpoint: string;
  /** The directory. */
  root: string;
  /** The call that it was taken for, before it ran or after it. */
  call_id: CallId;
  /** The checkpoint before the call, if this one is of after it; then they differ. */
  since?: string | null;
  /** How many files differ from that one. */
  changed?: number;
  /** The first 20 of these, relative to `root`. */
  files?: Array<string>;
  /** When the call began to run, in Unix milliseconds; of a checkpoint after it. */
  from?: number | null;
  /** Whether the differences are surely the call's: it ended by itself, it was short, and no command of another session ran meanwhile. Others may be of an editor or another program, which `session/undo` asks about. */
  certain?: boolean;
  /** Files that another session wrote meanwhile, relative to `root`: they differ too, are not in `changed`, and are no change of the call. */
  others?: Array<string>;
  /** The modes before the call of the files that differ and of directories above them, relative to `root`, where they are not 0644, or 0755 for directories and for what may be executed; absent if none of them is known. */
  modes?: Record<string, number> | null;
}

/** How far a child is. */
export type ChildStatus = "started" | "working" | "waiting" | "finished" | (string & {});

/** How a child gets on: an event of its parent, and a row of what its parent waits for. */
export interface ChildUpdate {
  /** The child's session. */
  child: SessionId;
  /** The call of `delegate` that started it. */
  call_id: CallId;
  /** The name of its agent. */
  agent: string;
  /** Whether the call had its result at once, so that what the child says comes in a prompt. */
  background?: boolean;
  /** How far it is. */
  status: ChildStatus;
  /** Its present work, in one line. */
  doing?: string;
  /** Its questions that wait for an answer, and those of its own children. */
  questions?: Array<QuestionId>;
  /** Steps of its task so far, those of its own children among them. */
  steps?: number;
  /** Tokens of its task so far, those of its own children among them; the sums of its parent have them too. */
  usage?: Usage;
  /** How its task ended. */
  stop_reason?: StopReason | null;
}

/** `session/compact`: has the model write a summary that stands for older messages in the context. */
export interface SessionCompactParams {
  /** The session to compact. */
  session: SessionId;
  /** The topic that the summary should keep in view. */
  focus?: string | null;
  /** Idempotency key: sent twice, it happens once. */
  key?: string | null;
}

/** A row of `session/compaction`: what was replaced in the context, and by what. */
export interface CompactionRow {
  /** The number of its `compacted`. */
  seq: number;
  /** When, in Unix milliseconds. */
  at: number;
  /** The last message that it replaces; all before it are too. */
  through: MessageId;
  /** How many messages it replaces; an earlier summary counts as one. */
  messages: number;
  /** The summary that the model reads in their place. */
  summary: string;
  /** About how many tokens the context had. */
  tokens_before: number;
  /** About how many it had then. */
  tokens_after: number;
  /** Whether it was taken back: the model reads the messages. */
  undone?: boolean;
}

/** `session/compaction`: the compactions of a session's conversation, the latest first. */
export interface SessionCompactionParams {
  /** The session whose compactions are listed. */
  session: SessionId;
}

/** `completion/cancel`: asks no more. The end of its connection does the same. */
export interface CompletionCancelParams {
  /** From the result of `completion/start`. */
  completion: CompletionId;
}

/** A piece of the answer's text. */
export interface TextCompletionEvent {
  kind: "text";
  /** The block of the answer that it belongs to. */
  block: number;
  /** The piece. */
  text: string;
}

/** A piece of the answer's thinking. */
export interface ThinkingCompletionEvent {
  kind: "thinking";
  /** The block of the answer that it belongs to. */
  block: number;
  /** The piece. */
  text: string;
}

/** An event of OpenAI's Responses, as the provider sent it. */
export interface NativeCompletionEvent {
  kind: "native";
  /** The text of a JSON object. */
  data: string;
}

/** The answer is whole. */
export interface CompletedCompletionEvent {
  kind: "completed";
  /** The answer: it begins with the pieces. A call has the provider's name for it, or one of the daemon's. */
  content: Array<ContentBlock>;
  /** Why the model stopped. */
  stop_reason: StopReason;
  /** The tokens and the cost. */
  usage: Usage;
}

/** There is no answer, or no more of it. */
export interface FailedCompletionEvent {
  kind: "failed";
  /** One line for people. */
  message: string;
  /** The next thing to do about it. */
  hint: string;
  /** The kind of failure, as an HTTP status. */
  status: number;
  /** OpenAI's word for it, such as `rate_limit_exceeded`; `provider_failed` if it has none. */
  code?: string;
  /** How long the provider asks to wait before the next request, in milliseconds. */
  retry_after_ms?: number | null;
}

/** A piece of a completion. After `completed` or `failed` nothing comes. */
export type CompletionEvent = TextCompletionEvent | ThinkingCompletionEvent | NativeCompletionEvent | CompletedCompletionEvent | FailedCompletionEvent;

/** A completion without a session; unique within its connection. */
export type CompletionId = string;

/** A message of such a conversation. */
export interface CompletionMessage {
  /** The author. */
  role: Role;
  /** The content: an image has its bytes in `data`. */
  content: Array<ContentBlock>;
}

/** The `params` of a `completion/event` notification. */
export interface CompletionNotification {
  /** From the result of `completion/start`. */
  completion: CompletionId;
  /** A piece of the answer, or its end. */
  event: CompletionEvent;
}

/** A tool of the caller's. */
export interface CompletionTool {
  /** As the model calls it. */
  name: string;
  /** The description for the model. */
  description?: string;
  /** JSON Schema of its arguments. */
  input_schema: unknown;
}

/** The result of `config/get`. */
export interface ConfigGetResult {
  /** The file; it may be missing. */
  file: string;
  /** The settings of the file that are in force, with its tables and keys; what is absent has its default. Absent if the file was never valid. */
  settings?: unknown;
  /** The error of the file as it is now. */
  error?: string | null;
  /** The changes of the file that wait until a person confirms them. */
  waiting?: Waiting | null;
  /** Valid settings without effect, or with a surprising one, a line each: such as a rule that never matches. */
  warnings?: Array<string>;
  /** The text of the file, if it was asked for. */
  text?: Text | null;
}

/** `config/confirm`: puts the changes that wait into force. Sent again it does nothing more. */
export interface ConfigConfirmParams {
  /** The hash of the changes that were shown; others are refused. */
  digest: string;
}

/** `trust/confirm`: trusts what waits. */
export interface TrustConfirmParams {
  /** The root of the workspace. */
  workspace: string;
  /** The hash of the changes that were shown; others are refused. */
  digest: string;
}

/** The result of `config/confirm`, `config/set` and `config/write`. */
export interface Confirmed {
  /** The confirmed changes, a line each; empty if nothing widens. */
  confirmed?: Array<string>;
}

/** Plain text, usually Markdown. */
export interface TextContentBlock {
  type: "text";
  /** The text, UTF-8 without NUL. */
  text: string;
}

/** A model's thinking before its answer. */
export interface ThinkingContentBlock {
  type: "thinking";
  /** The readable part; may be empty when the provider hides it. */
  text: string;
  /** Data that the provider wants back unchanged (a signature, encrypted reasoning), in the provider's own form. */
  native?: unknown;
}

/** An image that a user sent, or a tool read. */
export interface ImageContentBlock {
  type: "image";
  /** Such as `image/png`. */
  media_type: string;
  /** The bytes in base64. */
  data?: string;
  /** Their name. */
  blob?: BlobId;
  /** How many there are; what a client says here is not looked at. */
  bytes?: number;
}

/** Something that lies elsewhere, which a user or a tool points to; a model reads its name and address. */
export interface ResourceLinkContentBlock {
  type: "resource_link";
  /** Where it is: `file:///home/u/p/a.rs`, or an address of an MCP server's own. */
  uri: string;
  /** The name of a file, or a title. */
  name: string;
  /** Such as `text/plain`, if it is known. */
  media_type?: string | null;
  /** A description in a few words. */
  description?: string | null;
}

/** A text that is here, and where it is from; a model reads both. */
export interface ResourceContentBlock {
  type: "resource";
  /** Where it is from. */
  uri: string;
  /** Such as `text/plain`, if it is known. */
  media_type?: string | null;
  /** The whole content. */
  text: string;
}

/** The model's request to run a tool. */
export interface ToolUseContentBlock {
  type: "tool_use";
  /** The daemon's name for the call. */
  call_id: CallId;
  /** The tool. */
  name: string;
  /** The arguments: an object, or whatever the model wrote instead (the call then fails, and says so). */
  input: unknown;
  /** The provider's own identifier and, where they are not canonical JSON, the arguments as it wrote them. */
  native?: unknown;
}

/** A request to run a tool that broke off while the model wrote it: it never runs, and no model reads it. */
export interface CutToolUseContentBlock {
  type: "cut_tool_use";
  /** The daemon's name for it. */
  call_id: CallId;
  /** The tool. */
  name: string;
  /** The beginning of the arguments, as JSON. */
  text: string;
}

/** The answer to a tool call. */
export interface ToolResultContentBlock {
  type: "tool_result";
  /** The call that is answered. */
  call_id: CallId;
  /** Whether the call failed, was denied or did not run. */
  is_error?: boolean;
  /** The result as the model reads it. */
  content: Array<ContentBlock>;
}

/** A call of a provider's own tool, which ran there, or its result. */
export interface HostedContentBlock {
  type: "hosted";
  /** The provider's own tool. */
  tool: HostedTool;
  /** Which of the two it is. */
  part: HostedPart;
  /** For people, and for models of other providers: the query or code, or the sources or output; cut if it is long. */
  text: string;
  /** Data that the provider wants back unchanged, in the provider's own form; absent if it was cut. */
  native?: unknown;
}

/** Something that only its provider understands; kept, and given back unchanged. */
export interface OpaqueContentBlock {
  type: "opaque";
  /** The block in the provider's own form. */
  native: unknown;
}

/** One piece of a message. */
export type ContentBlock = TextContentBlock | ThinkingContentBlock | ImageContentBlock | ResourceLinkContentBlock | ResourceContentBlock | ToolUseContentBlock | CutToolUseContentBlock | ToolResultContentBlock | HostedContentBlock | OpaqueContentBlock;

/** `session/continue`: resumes the turn, or starts what waits for the user. */
export interface SessionContinueParams {
  /** The session that goes on. */
  session: SessionId;
  /** Send only this draft; when absent, all of them. */
  prompt?: PromptId | null;
  /** Idempotency key. */
  key?: string | null;
}

/** `session/create`: a new session in a directory. */
export interface SessionCreateParams {
  /** The working directory, absolute, or `~` and `~/DIR` for the home directory of the daemon's user; it must exist. */
  cwd: string;
  /** `provider/model`, or a provider alone for its default model; the configuration's default when absent. */
  model?: string | null;
  /** The permission mode; the configuration's default when absent. */
  mode?: Mode | null;
  /** How hard the model thinks; the configuration's default for the model when absent. */
  effort?: Effort;
  /** How long a turn waits while its provider cannot answer; the provider's when absent. */
  patience?: Patience | null;
  /** The models that stand in, in order, while the session's own cannot answer; the configuration's of that model when absent. */
  fallback?: Array<string> | null;
  /** How a question that no person answers is treated; the configuration's default when absent. */
  unattended?: Unattended | null;
  /** The sums at which it asks before it goes on. */
  budget?: Budget;
  /** Directories beside `cwd` in which its file tools may do what they may in `cwd`, absolute; at most 32. */
  additional_directories?: Array<string>;
  /** MCP servers of this session alone, at most 16, with those of the configuration and of its workspace. They take a process of the user's own. */
  mcp_servers?: Array<SessionServer>;
  /** The only tools that the session has, and of those that its provider runs; `mcp__NAME__*` is all of a server. All tools when absent. */
  tools?: Array<string> | null;
  /** The name of the agent that the session is (`agent/list`). */
  agent?: string | null;
  /** Rules of calls that run in this session without asking, as `permissions.allow` has them; at most 64. Like a mode that asks less, they take a process of the user. */
  allow?: Array<string>;
  /** Text that is added to the system prompt, at most 16 KiB. */
  system?: string | null;
  /** A name, unique among sessions. */
  name?: string | null;
  /** Whether it is for one prompt, as `linger run` makes them: lists can leave it out while it has no name. */
  one_shot?: boolean;
  /** Variables for the session's tools; what looks like a secret is left out unless the configuration passes it, and is in the daemon's memory alone. */
  env?: Record<string, string>;
  /** Whether its tools get, beside `env`, the login variables of the daemon's own user (`HOME`, `PATH`, `USER`, `LANG` …): for a client on another machine, whose own would be wrong. */
  login_env?: boolean;
  /** The file mode creation mask of the session's commands; the daemon's when absent. */
  umask?: number | null;
  /** Idempotency key. */
  key?: string | null;
}

/** The result of `session/create`. */
export interface SessionCreateResult {
  /** The new session. */
  session: SessionId;
  /** The model that it took, `provider/model`. */
  model: string;
  /** The mode that it took. */
  mode: Mode;
  /** For people: its model is unknown, and which one may be meant. A notice in the session says the same. */
  warning?: string | null;
}

/** A position in the event stream of a session: opaque, to be kept and given back to `session/attach`. */
export type Cursor = string;

/** A piece of damage. */
export interface Damage {
  /** The thing that is damaged. */
  what: Damaged;
  /** The session, if it is one. */
  session?: SessionId | null;
  /** Where it was set aside, unchanged. */
  file?: string | null;
  /** When it was found, in Unix milliseconds; 0 if unknown. */
  at: number;
  /** The damage, in one line. */
  text: string;
  /** The next thing to do about it; absent if there is none. */
  hint?: string | null;
  /** Sessions that were carried over whole from what was set aside. */
  carried?: number;
  /** Sessions that were not, or only a part of them. */
  left?: Array<Left>;
  /** The missing part cannot be read any more, and is in `file` alone. */
  lost?: boolean;
}

/** A thing that can be damaged. */
export type Damaged = "in_use" | "database" | "newer" | "wal" | "session" | "unwritten" | "blob" | (string & {});

/** The answer to a permission. */
export type Decision = "allow_once" | "allow_session" | "allow_always" | "reject_once" | "reject_always" | "cancelled";

/** The purpose of a child: part of its `session_created`. */
export interface Delegated {
  /** The call of its parent whose result it works for. */
  call: CallId;
  /** How far it is from a session that a user started: 1 for the child of one. */
  depth: number;
  /** The name of its agent; `general` needs no file. */
  agent: string;
  /** Its git worktree, if it has one of its own. */
  worktree?: Worktree | null;
  /** The workspace whose files (rules, hooks, tools, agents) count for it, if that is not the one that it works in: it works in its own worktree, or in that of its parent. */
  bound_by?: string | null;
}

/** A piece of a message that is being streamed. */
export interface Delta {
  /** The message that it belongs to. */
  message: MessageId;
  /** The content block, counted from 0. */
  block: number;
  /** Where the piece begins in its block, in bytes. */
  offset: number;
  /** The piece; cut between characters only. */
  text: string;
}

/** `session/diff`: what the turns of a session changed in files, those of its children too. */
export interface SessionDiffParams {
  /** The session whose changes are compared. */
  session: SessionId;
  /** The turn, such as `t3`; without it, all turns together. */
  turn?: TurnId | null;
  /** Without the texts of the differences. */
  stat?: boolean;
}

/** A child whose turns changed a file. */
export interface DiffChild {
  /** The child. */
  session: SessionId;
  /** The name of its agent. */
  agent: string;
}

/** The result of `session/diff`. */
export interface SessionDiffResult {
  /** The files, by their paths; those of children after the session's own. */
  files: Array<FileDiff>;
  /** Things that are left out, a sentence each: checkpoints that are gone, more files than there is room for. */
  missing?: Array<string>;
}

/** How hard a model thinks before it answers. Each provider knows some of these; the nearest is asked for. */
export type Effort = "auto" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";

/** No parameters, or a result that says nothing but that it was done. */
export type Empty = Record<string, unknown>;

/** The result of `session/env`: the names of the variables of a session's tools. */
export interface SessionEnvResult {
  /** Names of variables with values that are stored. */
  variables: Array<string>;
  /** Names of variables with secrets, which are in the daemon's memory alone. */
  secret: Array<string>;
  /** Names in `secret` whose values the daemon lacks since it was restarted. */
  missing: Array<string>;
}

/** The session came to be; always `seq` 1. */
export interface SessionCreatedEvent {
  kind: "session_created";
  /** The working directory, absolute. */
  cwd: string;
  /** `provider/model`. */
  model: string;
  /** The permission mode. */
  mode: Mode;
  /** A name that a user gave. */
  name?: string | null;
  /** The session that started it, if one did. */
  parent?: SessionId | null;
  /** Its task for its parent, if a call of `delegate` started it. */
  delegated?: Delegated | null;
  /** How hard the model thinks, where that was said. */
  effort?: Effort;
  /** The constant part of its requests: all but the conversation. */
  setup?: PrefixFingerprint | null;
  /** The only tools that it has; all when absent. */
  tools?: Array<string> | null;
  /** Whether it was made for one prompt. */
  one_shot?: boolean;
  /** The agent that it is. */
  agent?: Role2 | null;
  /** The rules of calls that run in it without asking. */
  allow?: Array<string>;
  /** Its own part of the system prompt, beside the daemon's. */
  system?: string | null;
  /** The variables that tools of this session get; the value of a secret one is `crate::variable::IN_MEMORY`. */
  env?: Record<string, string>;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** The session goes on from a point of another one: the events before this one are that session's. */
export interface ForkedEvent {
  /** Where it left its origin: `seq` is the number of the event before this one. */
  origin: Origin;
  /** The working directory, absolute. */
  cwd: string;
  /** `provider/model`. */
  model: string;
  /** The permission mode. What the origin's answers allowed is not allowed here. */
  mode: Mode;
  /** A name that a user gave. */
  name?: string | null;
  /** The beginning of its first prompt. */
  title?: string | null;
  /** How hard the model thinks, where that was said. */
  effort?: Effort;
  /** The only tools that it has; all when absent. */
  tools?: Array<string> | null;
  /** The agent that it is. */
  agent?: Role2 | null;
  /** Its own part of the system prompt, beside the daemon's, as the creator of the first one wrote it. */
  system?: string | null;
  /** The directories that a user added. */
  additional_directories?: Array<string>;
  /** The MCP servers that a client brought for the origin, and which are the fork's too. */
  mcp_servers?: Array<SessionServer>;
  /** Its budget, of which nothing is spent. */
  budget?: Budget;
  /** How a question that no person answers is treated. */
  unattended?: Unattended;
  /** How long a turn waits while its provider cannot answer. */
  patience?: Patience | null;
  /** The models that stand in while its provider cannot answer. */
  fallback?: Array<string> | null;
  /** About how many tokens its context has. */
  context_tokens?: number | null;
  /** When the conversation was started, in Unix milliseconds: when the session without an origin was created. */
  started_at?: number | null;
  /** The event before its latest turn. */
  before_turn?: number;
  /** How many of each the origin had: the fork's own ids come after these. */
  counts: IdCounts;
  kind: "forked";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** The session went back to before one of its prompts. */
export interface RewoundEvent {
  /** The last event that still counts. */
  to: number;
  /** The prompt that comes after it. */
  prompt: PromptId;
  /** The fork that has what was left. */
  branch: SessionId;
  /** Whether the files that were changed since were put back before. */
  files?: boolean;
  /** About how many tokens the context has now. */
  context_tokens?: number | null;
  /** The client that asked for it. */
  by?: string | null;
  /** The process that asked for it. */
  process?: Process | null;
  kind: "rewound";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A compaction was taken back: from now on the model reads the messages again that it had replaced. */
export interface UncompactedEvent {
  /** The number of its `compacted`. */
  compacted: number;
  /** How many messages it had replaced. */
  messages: number;
  /** About how many tokens the context has now. */
  tokens: number;
  /** The client that asked for it; absent in answers. */
  by?: string | null;
  /** The process that asked for it; absent in answers. */
  process?: Process | null;
  kind: "uncompacted";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Something about the session is different from now on; absent fields stay as they were. */
export interface SessionChangedEvent {
  kind: "session_changed";
  /** `provider/model`, from the next step on. */
  model?: string | null;
  /** The permission mode, from the next tool call on. */
  mode?: Mode | null;
  /** The new name. */
  name?: string | null;
  /** How hard the model thinks, from the next step on. */
  effort?: Effort | null;
  /** The instruction files that go into the system prompt from now on. */
  instructions?: Array<Instruction> | null;
  /** The skills that the system prompt names from now on. */
  skills?: Array<Skill> | null;
  /** The index of notes that the system prompt has from now on; empty for none. */
  memory?: string | null;
  /** Its agent, whose file is another one from now on. */
  agent?: Role2 | null;
  /** The new setup of requests beside the conversation: another model's, or the configuration or linger itself is another one. */
  setup?: PrefixFingerprint | null;
  /** The session's own model, which `model` stands in for until the next turn. */
  stands_in_for?: string | null;
  /** How long a turn waits while its provider cannot answer. */
  patience?: Patience | null;
  /** The models that stand in, in order, while the session's own cannot answer. */
  fallback?: Array<string> | null;
  /** How a question that no person answers is treated. */
  unattended?: Unattended | null;
  /** The whole budget from now on; what answers have raised begins again. */
  budget?: Budget | null;
  /** All directories that a user has added, from the next call on; file tools treat them like the working directory. */
  additional_directories?: Array<string> | null;
  /** The only tools that it has from the next step on; `*` is all. */
  tools?: Array<string> | null;
  /** All MCP servers that a client brought for this session, from the next step on; without the values of their variables and headers. */
  mcp_servers?: Array<SessionServer> | null;
  /** Whether it is in the bin. */
  binned?: boolean | null;
  /** Whether `retention` of the configuration put it there. */
  by_retention?: boolean;
  /** Its working directory from the next turn on, absolute. */
  cwd?: string | null;
  /** With `cwd`: the directory before is gone, and what earlier events say of paths below `from` is meant of those below `to`. */
  moved?: Moved | null;
  /** The title that a model gave it. */
  title?: string | null;
  /** The cost of asking for a title, also where none came of it. */
  title_cost?: ModelCost | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A prompt is stored and will start a turn or join one. */
export interface PromptAcceptedEvent {
  kind: "prompt_accepted";
  /** Unique in its session. */
  prompt: PromptId;
  /** The user's content. */
  content: Array<ContentBlock>;
  /** When it takes effect. */
  when: When;
  /** The client that sent it, such as `linger@pts/3`. */
  by?: string | null;
  /** The process that sent it; absent for decisions of the daemon and in events of earlier versions. */
  process?: Process | null;
  /** It asks for a compaction; `content` then says what to keep in view, if anything. It never becomes a message. */
  compact?: boolean;
  /** The JSON Schema that the answer has to fit; requests of its turn ask for it, and may have other tools than others. */
  schema?: unknown;
  /** The check that has to pass before its turn ends well. */
  until?: Until | null;
  /** The line that the user typed, if it named a command or a skill: `content` is what that says. */
  command?: string | null;
  /** The child whose words these are: the result of a task in the background. No user said this. */
  child?: SessionId | null;
  /** The command lines that the command runs before the first step of its turn; each needs its permission then. */
  runs?: Array<string>;
  /** The limit of its turn by the skill that it names. */
  limit?: SkillLimit | null;
  /** Whether its sender waits for its answer: a cancel takes it back (`prompt_unqueued`) in place of making it a draft. */
  awaited?: boolean;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A prompt that waited for its turn was taken back; it never becomes a message. */
export interface PromptUnqueuedEvent {
  kind: "prompt_unqueued";
  /** The prompt that was taken back. */
  prompt: PromptId;
  /** The client that took it back. */
  by?: string | null;
  /** The process that took it back. */
  process?: Process | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A prompt that waited when a turn was cancelled is a draft from now on: it runs only when it is sent again. */
export interface PromptDraftedEvent {
  kind: "prompt_drafted";
  /** The prompt that waits for its user. */
  prompt: PromptId;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A draft was sent again: it is queued behind the prompts that wait already. */
export interface DraftSentEvent {
  kind: "draft_sent";
  /** The prompt that was a draft. */
  prompt: PromptId;
  /** The client that sent it. */
  by?: string | null;
  /** The process that sent it. */
  process?: Process | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A turn began. */
export interface TurnStartedEvent {
  kind: "turn_started";
  /** The prompt that it answers. */
  prompt: PromptId;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A message entered the history, whole. */
export interface MessageEvent {
  kind: "message";
  /** Unique in its session. */
  message: MessageId;
  /** The author. */
  role: Role;
  /** The message's blocks. */
  content: Array<ContentBlock>;
  /** Whether it was cut off; it then has what was shown of it, and no calls. */
  interrupted?: boolean;
  /** Whether the answer was cut at the token limit; its calls, if it has any, are then not run. */
  cut?: boolean;
  /** Whether its provider paused within a tool that it runs itself; the next step continues it. */
  paused?: boolean;
  /** The prompt that this message is, for a user's own words. */
  prompt?: PromptId | null;
  /** The daemon's request in the user's place, where no user sent this. */
  asks?: Asks | null;
  /** The `provider/model` that wrote it, for an assistant's message. */
  model?: string | null;
  /** The usage of the step, for an assistant's message. */
  usage?: Usage | null;
  /** How long the provider took, for an assistant's message; of one that was cut off, until then. Absent where it was cut off by a cancel or a restart. */
  times?: Times | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** An interrupted message is out of the context: its step is being repeated. */
export interface MessageSupersededEvent {
  kind: "message_superseded";
  /** The message that is repeated. */
  message: MessageId;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A command line of the prompt's command is about to run: as a call of `bash` that no model made. Its permission, start, output and end follow like those of any call. */
export interface CommandStartedEvent {
  kind: "command_started";
  /** The id of the call of `bash`. */
  call_id: CallId;
  /** The command line. */
  command: string;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** The turn would end, and the check of its prompt is about to run: as a call of `bash` that no model made. Its permission, start, output and end follow like those of any call. */
export interface CheckStartedEvent {
  kind: "check_started";
  /** The id of the call of `bash`. */
  call_id: CallId;
  /** The command line, run by the shell. */
  command: string;
  /** How often it has failed before. */
  failed: number;
  /** How often its failure is the next prompt at most. */
  tries: number;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A child, which a call of `delegate` started, is further than before. */
export interface ChildUpdatedEvent {
  /** The child's session. */
  child: SessionId;
  /** The call of `delegate` that started it. */
  call_id: CallId;
  /** The name of its agent. */
  agent: string;
  /** Whether the call had its result at once, so that what the child says comes in a prompt. */
  background?: boolean;
  /** How far it is. */
  status: ChildStatus;
  /** Its present work, in one line. */
  doing?: string;
  /** Its questions that wait for an answer, and those of its own children. */
  questions?: Array<QuestionId>;
  /** Steps of its task so far, those of its own children among them. */
  steps?: number;
  /** Tokens of its task so far, those of its own children among them; the sums of its parent have them too. */
  usage?: Usage;
  /** How its task ended. */
  stop_reason?: StopReason | null;
  kind: "child_updated";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A tool call is about to run. */
export interface ToolStartedEvent {
  kind: "tool_started";
  /** As in the `tool_use` of the model's message. */
  call_id: CallId;
  /** The name that the model called. */
  tool: string;
  /** The category of the tool. */
  tool_kind?: ToolKind;
  /** The call, in one line. */
  action: string;
  /** The files and directories that it is about. */
  locations?: Array<Location>;
  /** The arguments, if they have 4 KiB at most; the message with the call has them whole. */
  input?: unknown;
  /** The effect of a restart of the daemon while it runs; absent: its outcome is unknown then. */
  after_crash?: AfterCrash;
  /** The limit of the turn from now on by the skill that it reads. */
  limit?: SkillLimit | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A tool call has its result; it may never have started. */
export interface ToolFinishedEvent {
  kind: "tool_finished";
  /** As in the `tool_use` of the model's message. */
  call_id: CallId;
  /** Whether the result is a failure. */
  is_error?: boolean;
  /** How it ended. */
  outcome: Outcome;
  /** The result as the model reads it. */
  content: Array<ContentBlock>;
  /** Which blocks of `content` are output that was streamed, and where each begins in the stream. */
  output?: Array<OutputSegment>;
  /** The file that has the whole output, when `content` has not. */
  file?: string | null;
  /** The name of what is in `file`; `blob/get` gives it too. */
  blob?: BlobId | null;
  /** A unified diff of what the call changed. */
  diff?: string | null;
  /** The files that the call changed. */
  changes?: Array<FileChange>;
  /** The files and directories that it was about, with the line where there is one; absent for a call that never started. */
  locations?: Array<Location>;
  /** How its process ended; absent if it had none, or was ended. */
  exit?: Exit | null;
  /** The model that the tool asked, and the usage of its answer. */
  model_cost?: ModelCost | null;
  /** How long it ran, in milliseconds. */
  ms: number;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A checkpoint of the workspace was taken, before a call that may change anything or after one that did. */
export interface CheckpointEvent {
  /** Its name: that of a tree of git. */
  checkpoint: string;
  /** The directory. */
  root: string;
  /** The call that it was taken for, before it ran or after it. */
  call_id: CallId;
  /** The checkpoint before the call, if this one is of after it; then they differ. */
  since?: string | null;
  /** How many files differ from that one. */
  changed?: number;
  /** The first 20 of these, relative to `root`. */
  files?: Array<string>;
  /** When the call began to run, in Unix milliseconds; of a checkpoint after it. */
  from?: number | null;
  /** Whether the differences are surely the call's: it ended by itself, it was short, and no command of another session ran meanwhile. Others may be of an editor or another program, which `session/undo` asks about. */
  certain?: boolean;
  /** Files that another session wrote meanwhile, relative to `root`: they differ too, are not in `changed`, and are no change of the call. */
  others?: Array<string>;
  /** The modes before the call of the files that differ and of directories above them, relative to `root`, where they are not 0644, or 0755 for directories and for what may be executed; absent if none of them is known. */
  modes?: Record<string, number> | null;
  kind: "checkpoint";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** The work of a child in its git worktree was merged into the directory of this session. */
export interface MergedEvent {
  /** The child whose work was merged. */
  child: SessionId;
  /** The name of its agent. */
  agent: string;
  /** The branch that was merged. */
  branch: string;
  /** The directory that it was merged into. */
  directory: string;
  /** The commit there before: `git reset --keep` to it takes the merge back. */
  before: string;
  /** The commit there now. */
  commit: string;
  /** The files that differ between these, relative to the directory; 1000 at most. */
  files: Array<string>;
  /** How many there are in all. */
  count: number;
  /** Who asked for it. */
  by?: string | null;
  /** The process of that. */
  process?: Process | null;
  kind: "merged";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** The session's git worktree is another, or something became of it. */
export interface WorktreeChangedEvent {
  /** Its directory, absolute. */
  path: string;
  /** Checked out in it; merged by `session/merge`. */
  branch: string;
  /** The commit that it was made of. */
  base: string;
  /** Whether it is in use, merged or gone. */
  status?: WorktreeStatus;
  kind: "worktree_changed";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Changes of files are about to be undone, or made again after that. */
export interface UndoStartedEvent {
  kind: "undo_started";
  /** Whether they are made again. */
  redo?: boolean;
  /** The turn, if all of its changes are meant. */
  step?: TurnId | null;
  /** The call, if only its changes are meant. */
  call?: CallId | null;
  /** The file, if only its changes are meant. */
  file?: string | null;
  /** The files, if only the changes of several are meant. */
  files?: Array<string>;
  /** The change of each file. */
  changes: Array<FileChange>;
  /** Changes that stay because an editor or another program may have made them. */
  uncertain?: Array<UncertainChange>;
  /** The client that asked for it. */
  by?: string | null;
  /** The process that asked for it. */
  process?: Process | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Changes of files were undone, or made again after that. */
export interface UndoneEvent {
  kind: "undone";
  /** Whether they were made again. */
  redo?: boolean;
  /** The turn, if all of its changes were meant. */
  step?: TurnId | null;
  /** The change of each file. */
  changes: Array<FileChange>;
  /** The files that are as they were. */
  failed?: Array<NotRestored>;
  /** Changes that stay because an editor or another program may have made them, and nobody has said what becomes of them. */
  uncertain?: Array<UncertainChange>;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** The model's plan for its task, as a whole; it takes the place of the plan before it. */
export interface PlanEvent {
  kind: "plan";
  /** The entries, in order; at most 100. */
  entries: Array<PlanEntry>;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A command was started in the background: it goes on when its call and its turn are over. */
export interface BackgroundStartedEvent {
  kind: "background_started";
  /** The command's handle. */
  background: BackgroundId;
  /** The call that started it. */
  call_id: CallId;
  /** The command line, run by the shell. */
  command: string;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A command in the background has ended. */
export interface BackgroundEndedEvent {
  kind: "background_ended";
  /** The command's handle. */
  background: BackgroundId;
  /** How its process ended by itself; absent if it was ended, or never ran. */
  exit?: Exit | null;
  /** Why it was ended, or could not be started. */
  reason?: string | null;
  /** The end of its output, as far as the model has not read it. */
  output?: string;
  /** The file that has the whole output, if it was long. */
  file?: string | null;
  /** The name of what is in `file`; `blob/get` gives it too. */
  blob?: BlobId | null;
  /** How long it ran, in milliseconds. */
  ms: number;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A tool call needs a user's permission. */
export interface PermissionRequestedEvent {
  kind: "permission_requested";
  /** The permission; `permission/answer` takes it. */
  permission: QuestionId;
  /** The call that waits. */
  call_id: CallId;
  /** The name of the tool that would run. */
  tool: string;
  /** The action in one line (a command may have several). */
  action: string;
  /** The arguments, whole. */
  input: unknown;
  /** Where it will run. */
  cwd: string;
  /** `sha256:` and the hash of tool, arguments and directory; what runs has this digest. */
  digest: string;
  /** The rule that asked, or null when the mode did. */
  rule?: string | null;
  /** Why the mode asks about what it lets run elsewhere, behind 'asks because'. */
  why?: string | null;
  /** Its place among those of the same answer of the model; absent if it is the only one. */
  position?: QuestionPosition | null;
  /** The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses. */
  grant: string;
  /** The rules one by one, if the call touches several things: then `grant` names them all, for people. */
  grants?: Array<string>;
  /** The decisions that can be given. */
  options: Array<Decision>;
  /** The files and directories that the call is about. */
  locations?: Array<Location>;
  /** The changes it would make to the files as they are when it asks. */
  changes?: Array<FileChange>;
  /** `check` for the check of a turn's answer, which no model asked for. */
  about?: Subject | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A permission has its decision. */
export interface PermissionResolvedEvent {
  kind: "permission_resolved";
  /** The permission that is closed. */
  permission: QuestionId;
  /** The option that was chosen. */
  decision: Decision;
  /** The client that decided, such as `linger@pts/3`, or the rule. */
  by: string;
  /** The process that sent it; absent for decisions of the daemon and in events of earlier versions. */
  process?: Process | null;
  /** The reason, for the model. */
  reason?: string | null;
  /** The rules that it adds, where the answer names others than the question. */
  rules?: Array<string>;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Something waits for a person that is no permission; it may belong to the daemon's own log and to no session. */
export interface QuestionAskedEvent {
  kind: "question_asked";
  /** The question; `question/answer` takes it. */
  question: QuestionId;
  /** The question's text, options and form. */
  asked: Question;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A question has its answer, or is withdrawn. */
export interface QuestionResolvedEvent {
  kind: "question_resolved";
  /** The question that is closed. */
  question: QuestionId;
  /** The name of the option that was chosen; absent if the question was withdrawn, as with its turn or its call. */
  answer?: string | null;
  /** The fields of a form that was accepted. */
  value?: unknown;
  /** Who answered, such as `linger@pts/3`, or why it was withdrawn. */
  by: string;
  /** The process that sent it; absent for decisions of the daemon and in events of earlier versions. */
  process?: Process | null;
  /** A word that came with the answer. */
  reason?: string | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Settings are confirmed that widen what may happen; in the daemon's own log alone. */
export interface ConfigConfirmedEvent {
  kind: "config_confirmed";
  /** All settings of this kind that are in force from now on, as in the file. */
  settings: unknown;
  /** The confirmed changes, a line each; empty if the file only narrowed, and at the first start. */
  changes?: Array<string>;
  /** The client that confirmed it; absent if none had to. */
  by?: string | null;
  /** The root of the workspace whose files have these settings; absent for the configuration itself. With `null` as `settings` nothing of it is trusted any more. */
  workspace?: string | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A turn ended; nothing more belongs to it. */
export interface TurnFinishedEvent {
  kind: "turn_finished";
  /** The prompt that it answered. */
  prompt?: PromptId | null;
  /** Why. */
  stop_reason: StopReason;
  /** The failure or the limit, in one line. */
  detail?: string | null;
  /** The next thing to do about it. */
  hint?: string | null;
  /** Until when the provider that failed asked to be left alone, if it did. */
  until_at?: number | null;
  /** The answer that fits the schema, if the prompt had one. */
  answer?: unknown;
  /** The sum over the turn's steps. */
  usage: Usage;
  /** The sum over the session's turns up to this one. */
  session_usage?: Usage | null;
  /** About how many tokens the context has, as the provider counted last. */
  context_tokens?: number | null;
  /** How many tokens the model takes, where that is known. */
  context_window?: number | null;
  /** How many steps it took, those of children whose calls it waited for among them. */
  steps: number;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** The model is asked for a summary that is to stand for older messages in the context. */
export interface CompactionStartedEvent {
  kind: "compaction_started";
  /** Why. */
  trigger: Trigger;
  /** The prompt that asked for it, if one did. */
  prompt?: PromptId | null;
  /** The last message that it would replace. */
  through: MessageId;
  /** How many messages it would replace. */
  messages: number;
  /** About how many tokens the context has. */
  tokens: number;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** From now on a summary stands for older messages in the context; the messages themselves stay in the log. */
export interface CompactedEvent {
  kind: "compacted";
  /** The prompt that asked for it, if one did. */
  prompt?: PromptId | null;
  /** The last message that is replaced; all before it are too. */
  through: MessageId;
  /** How many messages are replaced; an earlier summary counts as one. */
  messages: number;
  /** The summary that the model reads in their place: Markdown with headings for goal, progress, decisions, next steps, files. */
  summary: string;
  /** About how many tokens the context had. */
  tokens_before: number;
  /** About how many it has now. */
  tokens_after: number;
  /** The `provider/model` that wrote the summary. */
  model?: string | null;
  /** The usage of the request for the summary. */
  usage?: Usage | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** There is no summary, and the context is as it was. */
export interface CompactionFailedEvent {
  kind: "compaction_failed";
  /** The prompt that asked for it, if one did. */
  prompt?: PromptId | null;
  /** Why, in one line. */
  reason: string;
  /** About how many tokens the context has. */
  tokens: number;
  /** The `provider/model` that was asked. */
  model?: string | null;
  /** The usage of the attempt, as far as the provider reported it. */
  usage?: Usage | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** From now on the output of older calls, what images there are, or what a provider had wanted back of its model's messages is left out of the context; it stays in the log. */
export interface TrimmedEvent {
  kind: "trimmed";
  /** The calls whose output is left out. */
  calls: Array<CallId>;
  /** The messages that had images: the model refused them. */
  images?: Array<MessageId>;
  /** The messages whose `native` parts and thinking do not go back any more: the provider refused the history. The model reads of them what another one would; and of all that it writes later, if the one message named here is the first since that happened before. */
  native?: Array<MessageId>;
  /** About how many tokens the context had. */
  tokens_before: number;
  /** About how many it has now. */
  tokens_after: number;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Stands in the place of an event that could not be read any more when damage was repaired; each of those that are missing in a row has one. */
export interface LostEvent {
  kind: "lost";
  /** The first of these. */
  first: number;
  /** The last of these. */
  last: number;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Something a user should know. */
export interface NoticeEvent {
  kind: "notice";
  /** How important it is. */
  level: Level;
  /** The kind of notice, for programs. */
  code?: NoticeCode | null;
  /** One line for people. */
  text: string;
  /** When the wait ends that the notice tells of, if that is known; of `retry`, the next try. */
  until_at?: number | null;
  /** When the wait began that the notice tells of, in Unix milliseconds; a restart of the daemon does not change it. */
  since_at?: number | null;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A piece of a message's text. */
export interface TextDeltaEvent {
  /** The message that it belongs to. */
  message: MessageId;
  /** The content block, counted from 0. */
  block: number;
  /** Where the piece begins in its block, in bytes. */
  offset: number;
  /** The piece; cut between characters only. */
  text: string;
  kind: "text_delta";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A piece of a message's thinking. */
export interface ThinkingDeltaEvent {
  /** The message that it belongs to. */
  message: MessageId;
  /** The content block, counted from 0. */
  block: number;
  /** Where the piece begins in its block, in bytes. */
  offset: number;
  /** The piece; cut between characters only. */
  text: string;
  kind: "thinking_delta";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A piece of the arguments of a call that the model writes; the first one tells that the call is coming. The pieces add up to `input` of the `tool_use` as compact JSON, or to the text of a `cut_tool_use`. */
export interface ToolCallDeltaEvent {
  kind: "tool_call_delta";
  /** As in the `tool_use` that follows. */
  call_id: CallId;
  /** The tool. */
  name: string;
  /** The message that it belongs to. */
  message: MessageId;
  /** The content block, counted from 0. */
  block: number;
  /** Where the piece begins in its block, in bytes. */
  offset: number;
  /** The piece; cut between characters only. */
  text: string;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A piece of what is said of a tool that a provider runs itself. */
export interface HostedDeltaEvent {
  kind: "hosted_delta";
  /** The provider's own tool. */
  tool: HostedTool;
  /** Whether it is a call or what came of it. */
  part: HostedPart;
  /** The message that it belongs to. */
  message: MessageId;
  /** The content block, counted from 0. */
  block: number;
  /** Where the piece begins in its block, in bytes. */
  offset: number;
  /** The piece; cut between characters only. */
  text: string;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** A piece of a tool's output; a jump in `offset` marks what was dropped. */
export interface ToolOutputDeltaEvent {
  kind: "tool_output_delta";
  /** The call that writes it. */
  call_id: CallId;
  /** Where the piece begins, in bytes. */
  offset: number;
  /** The piece. */
  text: string;
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** Everything that was there when the client attached has been sent. */
export interface CaughtUpEvent {
  kind: "caught_up";
  /** Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`. */
  seq?: number | null;
  /** When it happened, in Unix milliseconds. */
  at: number;
  /** The turn that it is a part of. */
  turn?: TurnId | null;
}

/** One thing that happened in a session. */
export type Event = SessionCreatedEvent | ForkedEvent | RewoundEvent | UncompactedEvent | SessionChangedEvent | PromptAcceptedEvent | PromptUnqueuedEvent | PromptDraftedEvent | DraftSentEvent | TurnStartedEvent | MessageEvent | MessageSupersededEvent | CommandStartedEvent | CheckStartedEvent | ChildUpdatedEvent | ToolStartedEvent | ToolFinishedEvent | CheckpointEvent | MergedEvent | WorktreeChangedEvent | UndoStartedEvent | UndoneEvent | PlanEvent | BackgroundStartedEvent | BackgroundEndedEvent | PermissionRequestedEvent | PermissionResolvedEvent | QuestionAskedEvent | QuestionResolvedEvent | ConfigConfirmedEvent | TurnFinishedEvent | CompactionStartedEvent | CompactedEvent | CompactionFailedEvent | TrimmedEvent | LostEvent | NoticeEvent | TextDeltaEvent | ThinkingDeltaEvent | ToolCallDeltaEvent | HostedDeltaEvent | ToolOutputDeltaEvent | CaughtUpEvent;

/** `token/exchange`: gives a token for a code, once. */
export interface TokenExchangeParams {
  /** From `token/mint`, not used before. */
  code: string;
}

/** How the process of a call ended by itself: with a code, or by a signal. */
export interface Exit {
  /** Its exit code. */
  code?: number | null;
  /** The signal that ended it. */
  signal?: number | null;
}

/** `permission/explain`: whether a call would run. */
export interface PermissionExplainParams {
  /** The call, written as a rule: `bash(cargo test)`, `edit(src/main.rs)`, `fetch(example.org)`, `mcp__server__tool`. */
  call: string;
  /** In this session: with its directory, its mode and its rules. */
  session?: SessionId | null;
  /** In a new session in this directory; one of the two is needed. */
  cwd?: string | null;
}

/** The result of `permission/explain`. */
export interface PermissionExplainResult {
  /** `allow`, `ask` or `deny`. */
  verdict: ToolDecision;
  /** The reason: `rule …`, `rules …, …` or `mode …`, or which skill limits the turn that has read it, and to what. */
  by: string;
  /** Where that rule stands; absent for a mode, and for several rules. */
  place?: string | null;
  /** The mode that was looked at. */
  mode: Mode;
  /** The directory that it was looked at in. */
  cwd: string;
  /** The file that the call reaches, with links resolved. */
  path?: string | null;
}

/** A change of one file. */
export interface FileChange {
  /** The file, absolute and without links. */
  path: string;
  /** The kind of change. */
  kind: ChangeKind;
  /** The blob with its former content; absent if there was none, and for more than 16 MiB. */
  before?: BlobId | null;
  /** The blob with its new content; absent if there is none, and for more than 16 MiB. */
  after?: BlobId | null;
  /** The file's type before, where the change may change that too; absent for the changes of file tools, which leave it as it is, and if there was no file. The content of a link is where it leads. */
  before_type?: FileType | null;
  /** The file's type after, as `before_type`. */
  after_type?: FileType | null;
  /** The permissions that the file had before, such as 0o600; absent if they are not known, and if there was no file. */
  before_mode?: number | null;
  /** The permissions that it gets; of changes that put a file back. */
  after_mode?: number | null;
  /** The permissions of the directories above it that come or go with it, the innermost first. */
  directories?: Array<number>;
  /** How many bytes these blobs have. */
  bytes?: number;
}

/** How one file differs from what it was before the turns. */
export interface FileDiff {
  /** The file, absolute. */
  path: string;
  /** The kind of change. */
  kind: ChangeKind;
  /** Lines that came. */
  added: number;
  /** Lines that went. */
  removed: number;
  /** A unified diff; absent if it was not asked for, for what is no text, and where there was no room for it. */
  diff?: string | null;
  /** Why there are no lines: it is no text, its content is not kept, only its mode differs. */
  note?: string | null;
  /** Whether an editor or another program may have made some of its changes, while a command ran. */
  uncertain?: boolean;
  /** The child whose turns changed it; absent for the session's own. */
  child?: DiffChild | null;
}

/** The type of a file: as much as git keeps of it, and a directory that stands in the place of a file. */
export type FileType = "file" | "executable" | "link" | "directory" | (string & {});

/** `artifact/finish`: makes an artifact of what was written; it is on disk when this is answered. */
export interface ArtifactFinishParams {
  /** As `artifact/begin` gave it. */
  upload: UploadId;
  /** The SHA-256 that the bytes should have, in hexadecimal digits; others are refused. */
  sha256?: string | null;
}

/** `mcp/finish_login`: what the browser brought to `redirect`. */
export interface McpFinishLoginParams {
  /** From the result of `mcp/login`. */
  login: string;
  /** The server that it is for, which is started again. */
  server: string;
  /** As in `mcp/login`. */
  cwd?: string | null;
  /** As in `mcp/login`. */
  session?: SessionId | null;
  /** The parameter `code` of the redirect. */
  code: string;
  /** The parameter `state` of the redirect. */
  state: string;
  /** `iss`. */
  issuer?: string | null;
}

/** `session/fork`: a new session that goes on from a point of another one. */
export interface SessionForkParams {
  /** The session to fork. */
  session: SessionId;
  /** The id of a message or of a prompt. After an answer the fork goes on from its end, with the results of its calls; of a prompt it goes on from before it. The latest finished step when absent. */
  at?: string | null;
  /** A name, unique among sessions. */
  name?: string | null;
  /** Where the fork works, absolute; the session's directory when absent. It takes a process that is known to be the user's. */
  cwd?: string | null;
  /** Idempotency key: sent twice, there is one fork. */
  key?: string | null;
}

/** The result of `session/fork`. */
export interface SessionForkResult {
  /** The fork. */
  session: SessionId;
  /** Where it left its origin. */
  origin: Origin;
  /** Its model, `provider/model`. */
  model: string;
  /** Its mode: the stricter of the origin's and the configuration's. */
  mode: Mode;
  /** Text of the prompt that the fork starts before, to edit and resend. */
  text?: string | null;
}

/** The beginning of a fork: everything that it has not from the events before. */
export interface Forked {
  /** Where it left its origin: `seq` is the number of the event before this one. */
  origin: Origin;
  /** The working directory, absolute. */
  cwd: string;
  /** `provider/model`. */
  model: string;
  /** The permission mode. What the origin's answers allowed is not allowed here. */
  mode: Mode;
  /** A name that a user gave. */
  name?: string | null;
  /** The beginning of its first prompt. */
  title?: string | null;
  /** How hard the model thinks, where that was said. */
  effort?: Effort;
  /** The only tools that it has; all when absent. */
  tools?: Array<string> | null;
  /** The agent that it is. */
  agent?: Role2 | null;
  /** Its own part of the system prompt, beside the daemon's, as the creator of the first one wrote it. */
  system?: string | null;
  /** The directories that a user added. */
  additional_directories?: Array<string>;
  /** The MCP servers that a client brought for the origin, and which are the fork's too. */
  mcp_servers?: Array<SessionServer>;
  /** Its budget, of which nothing is spent. */
  budget?: Budget;
  /** How a question that no person answers is treated. */
  unattended?: Unattended;
  /** How long a turn waits while its provider cannot answer. */
  patience?: Patience | null;
  /** The models that stand in while its provider cannot answer. */
  fallback?: Array<string> | null;
  /** About how many tokens its context has. */
  context_tokens?: number | null;
  /** When the conversation was started, in Unix milliseconds: when the session without an origin was created. */
  started_at?: number | null;
  /** The event before its latest turn. */
  before_turn?: number;
  /** How many of each the origin had: the fork's own ids come after these. */
  counts: IdCounts;
}

/** A message that was found. */
export interface FoundMessage {
  /** The session that it belongs to. */
  session: SessionId;
  /** The session's name. */
  name?: string | null;
  /** The session's working directory. */
  cwd: string;
  /** Its number in the session. */
  seq: number;
  /** When it was said, in Unix milliseconds. */
  at: number;
  /** Who said it. */
  role: Role;
  /** The text around the first match, in one line. */
  snippet: string;
}

/** The result of `session/search`. */
export interface SessionSearchResult {
  /** The messages, the best match first. */
  rows: Array<FoundMessage>;
  /** How many stored events the index has not seen yet; it is made beside the work. */
  behind?: number;
}

/** `blob/get`: the bytes of an image or of a whole output, piece by piece. */
export interface BlobGetParams {
  /** As an event names it. */
  blob: BlobId;
  /** Where the piece begins; 0 when absent. */
  offset?: number | null;
  /** How many bytes are wanted; a piece has 1 MiB at most, and so much when this is absent. */
  length?: number | null;
}

/** `config/get`: what is in force, and what waits. */
export interface ConfigGetParams {
  /** Whether the result has the text of the file. */
  text?: boolean;
}

/** `trust/get`: what the files of a workspace set, and what of it waits. */
export interface TrustGetParams {
  /** A directory in the workspace, absolute. */
  cwd: string;
}

/** `mcp/prompt`: what a server's prompt says, as blocks for a prompt of the session. */
export interface McpPromptParams {
  /** The session that it is for. */
  session: SessionId;
  /** The server that has it. */
  server: string;
  /** Its name. */
  prompt: string;
  /** Arguments by name. */
  arguments?: Record<string, string>;
  /** The other arguments, in the order in which the prompt has them: a word each, and the rest for the last. */
  text?: string;
}

/** The rights of a connection with a token. */
export interface Grant {
  /** Its name: the author in the log of what comes by it. */
  name: string;
  /** The rights. */
  can: Array<Can>;
  /** Only these sessions and their children; all when absent. With them no session can be created. */
  sessions?: Array<SessionId> | null;
  /** Only sessions that work in this directory or below it, absolute and without links. */
  directory?: string | null;
  /** The loosest mode of what it creates, and that it sets; `ask` when absent. */
  mode?: Mode | null;
  /** Its end, in Unix milliseconds. */
  expires_at: number;
}

/** `daemon/hello`: agrees on a protocol version; the first thing a client says. */
export interface DaemonHelloParams {
  /** The client's name, as others see it in `by`: a program and its terminal, such as `linger@pts/3`. */
  client: string;
  /** The oldest and the newest protocol version that the client speaks. */
  protocol: Array<number>;
  /** A token: the connection may do what its grant allows, and nothing that is for a user's own processes. */
  token?: string | null;
  /** For a face: the process that it speaks for. Without a token such a connection may only exchange a code. */
  behind?: Behind | null;
  /** For the gateway, which only a process of the user's own can be: where it listens, for `daemon/status`, while this connection lasts. */
  gateway?: RunningGateway | null;
}

/** A part of a `ContentBlock::Hosted`. */
export type HostedPart = "call" | "result" | "error" | (string & {});

/** A tool that a provider runs itself, by the name that it has here whatever the provider calls it. */
export type HostedTool = "web_search" | "code_execution" | (string & {});

/** How many turns, messages, calls, prompts and commands in the background a session had. */
export interface IdCounts {
  /** Turns of the session. */
  turns: number;
  /** Messages of the session. */
  messages: number;
  /** Tool calls. */
  calls: number;
  /** Prompts of the session. */
  prompts: number;
  /** Commands in the background. */
  background?: number;
}

/** A row of `session/list`. */
export interface Info {
  /** Unique, and never used again. */
  session: SessionId;
  /** Unique among sessions; absent until it has one. */
  name?: string | null;
  /** Its working directory. */
  cwd: string;
  /** `provider/model`. */
  model: string;
  /** The only tools that it has; all when absent. */
  tools?: Array<string> | null;
  /** The directories that a user added, which its file tools treat like `cwd`. */
  additional_directories?: Array<string>;
  /** Its permission mode. */
  mode: Mode;
  /** How a question that no person answers is treated, unless it waits. */
  unattended?: Unattended;
  /** Limits of its steps, cost and time. */
  budget?: Budget;
  /** The sums at which it asks next: the budget, raised by each answer to go on. */
  pauses_at?: Budget;
  /** How long its turns have run, in milliseconds, as `budget` counts it; kept up to date by its events. */
  worked_ms?: number;
  /** How hard its model thinks, where that was said. */
  effort?: Effort;
  /** Its present activity. */
  state: State;
  /** The obstacle that its turn waits for while its provider cannot answer; `state` is `running` then. */
  provider_wait?: ProviderWait | null;
  /** How its last turn ended, if it had one. */
  stop_reason?: StopReason | null;
  /** Prompts that wait for their turn. */
  queued: number;
  /** Prompts that waited when a turn was cancelled, and run only when they are sent again (`session/continue`). */
  drafts?: number;
  /** Permissions that wait for an answer. */
  permissions?: Array<QuestionId>;
  /** Questions of any kind that wait for an answer, permissions among them. */
  questions?: Array<QuestionId>;
  /** The commands that it runs in the background. */
  background?: Array<Background>;
  /** Its title: the one that a model gave it, else the beginning of its first prompt. */
  title?: string | null;
  /** The session that started it, if one did. */
  parent?: SessionId | null;
  /** The session that it goes on from, and where it left it, if it is a fork. */
  origin?: Origin | null;
  /** Its task for its parent, if a call of `delegate` started it. */
  delegated?: Delegated | null;
  /** The children whose tasks are under way. */
  children?: Array<ChildUpdate>;
  /** Whether it was made for one prompt. */
  one_shot?: boolean;
  /** When it was put into the bin, in Unix milliseconds, if it is there; 30 days later it is deleted. */
  binned_at?: number | null;
  /** Whether `retention` of the configuration put it into the bin. */
  by_retention?: boolean;
  /** The name of the agent that it is. */
  agent?: string | null;
  /** Tokens over all its turns. */
  usage: Usage;
  /** About how many tokens its context has, as its provider counted last. */
  context_tokens?: number | null;
  /** How many tokens its model takes, where that is known. */
  context_window?: number | null;
  /** Bytes that it takes on the disk: its events, and the blobs that they name. */
  size?: number;
  /** When it was created, in Unix milliseconds. */
  created_at: number;
  /** When it last changed, in Unix milliseconds. */
  updated_at: number;
  /** The end of its log: attach after this to see only what is new. */
  cursor: Cursor;
  /** The beginning of its latest turn: attach after this to see that turn. */
  turn_cursor: Cursor;
  /** How far a person had read when the last terminal left it; absent if no terminal was ever attached. */
  left?: LastRead | null;
  /** The reason why it cannot be read; other fields may then be empty. */
  damaged?: string | null;
  /** Why nothing of it can be written just now; the session resumes when writing works. */
  unwritten?: string | null;
}

/** One process of a server, or one connection to it. */
export interface Instance {
  /** Its directory; absent for a server with an address. */
  cwd?: string | null;
  /** Its process. */
  pid?: number | null;
  /** The memory of that process, in bytes. */
  memory?: number | null;
  /** Its own name and version. */
  name: string;
  /** The revision of the protocol that it speaks. */
  protocol: string;
  /** Calls that run. */
  calls: number;
}

/** An instruction file (`AGENTS.md` and its kin) as it was read. */
export interface Instruction {
  /** The file. */
  path: string;
  /** How many bytes of it go into the system prompt. */
  bytes: number;
  /** How many bytes were left out. */
  cut?: number;
  /** `sha256:` and the hash of what was read. */
  digest: string;
}

/** A skill, a command or an agent. */
export interface Item {
  /** As a prompt or the configuration names it. */
  name: string;
  /** Its purpose, as its file gives it. */
  description?: string | null;
  /** Its file. */
  path: string;
  /** Whose it is. */
  scope: Scope;
  /** Whether sessions have it. */
  status: Status2;
  /** The file that counts in its place, if one of the same name does. */
  hidden_by?: string | null;
  /** Its errors and warnings. */
  problems?: Array<Problem>;
  /** The text behind its header, if it was asked for. */
  text?: string | null;
}

/** A provider and its key; never the key itself. */
export interface KeyInfo {
  /** As the configuration names it. */
  provider: string;
  /** Where its key comes from. */
  source: KeySource;
  /** The variable that holds it or would, or the command that prints it. */
  from?: string | null;
  /** Where it goes and nowhere else: scheme, host and port. */
  at?: string | null;
  /** The keychain has a key of this provider for another place, which is therefore not used. */
  elsewhere?: string | null;
  /** Whether new sessions use this provider. */
  default: boolean;
}

/** Where a provider's key comes from. */
export type KeySource = "command" | "daemon" | "client" | "keychain" | "none" | "missing" | (string & {});

/** `session/restore`: takes a session out of the bin. */
export interface SessionRestoreParams {
  /** The session to restore. */
  session: SessionId;
  /** Idempotency key. */
  key?: string | null;
}

/** `daemon/keys`: brings provider keys, which stay in the daemon's memory. It has no idempotency key: sent again it is the same, and after a restart it has to have its effect again. */
export interface DaemonKeysParams {
  /** Variable name to key; names that no provider uses are ignored. */
  keys?: Record<string, string>;
  /** Variables for the MCP servers of the files of a workspace, by its root: name to value. Others get none of them. */
  workspace_keys?: Record<string, Record<string, string>>;
}

/** How far a person at a terminal has read a session. */
export interface LastRead {
  /** The last event of the log at that time. */
  seq: number;
  /** The position after it. */
  cursor: Cursor;
  /** When the last terminal left, or came, in Unix milliseconds. */
  at: number;
}

/** A session that was not carried over whole. */
export interface Left {
  /** The session whose events are not all there. */
  session: SessionId;
  /** How many of its events were carried over; each of the others has a `lost` in its place. */
  events: number;
  /** How many it is known to have had; 0 if nothing is known of that. */
  of?: number;
  /** The damage to the rest. */
  text: string;
}

/** How important a notice is. */
export type Level = "info" | "warning" | "error";

/** `session/list`: sessions, the latest first. */
export interface SessionListParams {
  /** Only sessions with this name or id, or whose id begins with this; a beginning has at least four characters. */
  matching?: string | null;
  /** Only sessions with this working directory. */
  cwd?: string | null;
  /** Only sessions in the bin; without it, only those that are not. */
  bin?: boolean;
  /** Leave out sessions that were made for one prompt and have no name. */
  lasting?: boolean;
  /** At most this many; 1000 when absent. */
  limit?: number | null;
  /** Only those that come after this one: the last row of the page before. */
  before?: Before | null;
}

/** `usage/list`: what was paid for, summed up. */
export interface UsageListParams {
  /** From the day on in which this lies, in Unix milliseconds; everything without it. Days are those of UTC, as in providers' bills. */
  since?: number | null;
  /** The key of the rows. */
  by?: By;
}

/** `skill/list`, `command/list`, `agent/list`, `tool/files`, `mcp/files`: what there is for sessions in a directory. */
export interface List3 {
  /** A directory of a workspace, absolute. */
  cwd: string;
  /** Only this file, wherever it lies, absolute; for a skill its directory or its SKILL.md. It is checked, and not used. */
  path?: string | null;
  /** Whether the text of each comes with it. */
  text?: boolean;
}

/** `memory/list`: the notes that sessions in a directory have. */
export interface MemoryListParams {
  /** A directory of a workspace, absolute. */
  cwd: string;
  /** Whether the text of each comes with it. */
  text?: boolean;
}

/** `mcp/list`: the servers of the user's configuration, of a workspace and of a session. */
export interface McpListParams {
  /** A session, whose own servers count, and those of the files of its workspace. */
  session?: SessionId | null;
  /** Without a session: a directory in that workspace, absolute. */
  cwd?: string | null;
}

/** `permission/list`: the permissions that wait, of one session or of all. */
export interface PermissionListParams {
  /** Only those of this session. */
  session?: SessionId | null;
  /** Only those that come after this one: the last row of the page before. */
  after?: AfterPermission | null;
}

/** `question/list`: the questions that wait, of one session or of all and the daemon; the oldest first. */
export interface QuestionListParams {
  /** Only those of this session and of its children; `daemon` for the daemon's own. */
  session?: SessionId | null;
  /** Only those that come after this one: the last row of the page before. */
  after?: AfterQuestion | null;
}

/** `artifact/list`: the artifacts, the latest first. */
export interface ArtifactListParams {
  /** At most this many; 1000 when absent, and never more. */
  limit?: number | null;
  /** Only those that come after this one: the last row of the page before. */
  before?: BeforeArtifact | null;
}

/** The result of `key/list`. */
export interface KeyListResult {
  /** Each provider, by name. */
  keys: Array<KeyInfo>;
  /** Why the keychain cannot be used; absent if it can. */
  no_keychain?: string | null;
}

/** A place that a tool call is about. */
export interface Location {
  /** The file or directory, absolute. */
  path: string;
  /** The line, from 1, where the call is about one. */
  line?: number | null;
}

/** A line of `mcp/logs`. */
export interface LogLine {
  /** When, in Unix milliseconds. */
  at: number;
  /** What. */
  text: string;
}

/** The answer of `mcp/finish_login`. */
export interface McpFinishLoginResult {
  /** Why the login lasts only as long as the daemon runs; absent if the keychain has it. */
  no_keychain?: string | null;
}

/** The answer of `mcp/logout`. */
export interface McpLogoutResult {
  /** Whether there was a login. */
  removed: boolean;
}

/** `mcp/login`: begins a login at a server with an address. A person opens the page that is answered in a browser, which then goes to `redirect` with what `mcp/finish_login` takes. */
export interface McpLoginParams {
  /** The server's name. */
  server: string;
  /** A directory in the workspace whose files may have it, absolute; absent: the user's own configuration has it. */
  cwd?: string | null;
  /** As in `mcp/logs`. */
  session?: SessionId | null;
  /** Where the browser goes afterwards: `http://127.0.0.1:PORT/…` of the client. */
  redirect: string;
}

/** The answer of `mcp/login`. */
export interface McpLoginResult {
  /** Names the login for `mcp/finish_login`, for ten minutes. */
  login: string;
  /** The page to open. */
  page: string;
}

/** The answer of `mcp/logs`: what a server wrote to standard error, and what it logged; the latest 500 lines. */
export interface McpLogsResult {
  /** The lines, the oldest first. */
  lines: Array<LogLine>;
}

/** `session/merge`: merges what a child did in its worktree into the directory of its parent. */
export interface SessionMergeParams {
  /** The child. */
  session: SessionId;
  /** Idempotency key. */
  key?: string | null;
}

/** The result of `session/merge`, and an event of the parent. */
export interface Merged {
  /** The child whose work was merged. */
  child: SessionId;
  /** The name of its agent. */
  agent: string;
  /** The branch that was merged. */
  branch: string;
  /** The directory that it was merged into. */
  directory: string;
  /** The commit there before: `git reset --keep` to it takes the merge back. */
  before: string;
  /** The commit there now. */
  commit: string;
  /** The files that differ between these, relative to the directory; 1000 at most. */
  files: Array<string>;
  /** How many there are in all. */
  count: number;
  /** Who asked for it. */
  by?: string | null;
  /** The process of that. */
  process?: Process | null;
}

/** A message; unique within its session. */
export type MessageId = string;

/** `token/mint`: makes a token. Only a process that the daemon did not start may, and none with a token. */
export interface TokenMintParams {
  /** The grant's name. */
  name: string;
  /** The rights; `observe` and `speak` when absent. */
  can?: Array<Can> | null;
  /** Only these sessions and their children. */
  sessions?: Array<SessionId> | null;
  /** Only sessions in this directory, absolute; it must exist. */
  directory?: string | null;
  /** The loosest mode of what it creates, and that it sets; `ask` when absent. */
  mode?: Mode | null;
  /** How many days it lasts; 30 when absent, 3650 at most. */
  days?: number | null;
  /** Give a code, which `token/exchange` takes once within 5 minutes, in place of a token. */
  once?: boolean;
}

/** The result of `token/mint` and `token/exchange`. */
export interface Minted {
  /** Its id: `token/revoke` takes it. */
  id: TokenId;
  /** The text of the token, or of the code; it is shown this once and not stored. */
  token: string;
  /** Its rights and limits. */
  grant: Grant;
}

/** Decides which calls run without being asked for. */
export type Mode = "ask" | "edit" | "auto" | "plan";

/** A row of `mode/list`. */
export interface ModeInfo {
  /** The word for it in requests. */
  mode: Mode;
  /** Its effect, in a few words for people. */
  description: string;
}

/** A row of `model/list`. */
export interface Model {
  /** `provider/model`. */
  model: string;
  /** The wire format. */
  kind: string;
  /** Where requests go; absent for `demo`. */
  base_url?: string | null;
  /** Whether it can be used now: its key is there, or it needs none. */
  ready: boolean;
  /** The missing key or setting, if it cannot be used. */
  missing?: string | null;
  /** Whether new sessions use it. */
  default: boolean;
  /** Why its provider's list of models is not here, though it was asked for one; the row stands for the provider. */
  problem?: string | null;
  /** Whether the provider's server was contacted for this row. */
  contacted?: boolean;
  /** How many tokens a request may have; absent if that is unknown, and so are the others. */
  context_window?: number | null;
  /** How many tokens an answer may have. */
  max_output?: number | null;
  /** The price of a request's tokens that no cache had, in US dollars per million. */
  input_price?: number | null;
  /** The price of an answer's tokens, in US dollars per million. */
  output_price?: number | null;
  /** The price of tokens that were read from the cache, in US dollars per million. */
  cache_read_price?: number | null;
  /** The price of tokens that were written to the cache, in US dollars per million. */
  cache_write_price?: number | null;
  /** Requests with more tokens than this cost more. */
  dearer_above?: number | null;
  /** The efforts that it takes beside `auto`; of those that come to the same, one. */
  efforts?: Array<Effort>;
  /** Tools that run at the provider and that the configuration switches on for this model. */
  hosted_tools?: Array<HostedTool>;
}

/** The cost of asking a model beside the conversation: for a title, or by a tool. */
export interface ModelCost {
  /** The model, `provider/model`. */
  model: string;
  /** The usage of its answer. */
  usage: Usage;
}

/** `model/list`: the models that can be used. */
export interface ModelListParams {
  /** All that the providers have: those that can be used are asked, at once and not for long. Without it each has one row, with the model that it begins with. */
  all?: boolean;
  /** Only models that can be used now and whose names are known: from the lists that providers have given, which are renewed in the background, or else from linger's own table. A provider that was never asked for its list is, for two seconds at most. */
  known?: boolean;
  /** Only this one, as `provider/model`; no server is asked. No row if its provider is unknown. */
  model?: string | null;
}

/** A directory that has another name. */
export interface Moved {
  /** Its path before, absolute. */
  from: string;
  /** Its path from now on. */
  to: string;
}

/** A request that names a session and nothing else: `session/detach`. */
export interface Named {
  /** The session that is meant. */
  session: SessionId;
}

/** Names a server. */
export interface Named2 {
  /** Its name in the configuration. */
  server: string;
  /** A directory in the workspace whose files may have it, absolute; absent: the user's own configuration has it. */
  cwd?: string | null;
  /** In place of a directory: a session that may have it. */
  session?: SessionId | null;
}

/** A request that names an artifact and nothing else: `artifact/get` and `artifact/delete`. */
export interface NamedArtifact {
  /** A UUID, from `artifact/finish` or `artifact/list`. */
  id: ArtifactId;
}

/** A file that could not be put back. */
export interface NotRestored {
  /** The file, absolute and without links. */
  path: string;
  /** Why. */
  reason: string;
}

/** Something to remember in later sessions. */
export interface Note {
  /** The subject. */
  scope: Scope2;
  /** Unique among notes of its scope. */
  name: string;
  /** Its first line, as the index has it. */
  about: string;
  /** Its file, which a person may edit. */
  path: string;
  /** How long it is. */
  bytes: number;
  /** Its text, if it was asked for. */
  text?: string | null;
}

/** A kind of notice. */
export type NoticeCode = "resumed" | "paused" | "continued" | "offered" | "unconfigured" | "retry" | "reached" | "fallback" | "key_missing" | "unconfirmed" | "key_pending" | "removed" | "key_found" | "damaged" | "rebuilt" | "unknown_model" | "rule_not_stored" | "config_waits" | "agent" | "files" | "storage" | "server_failed" | "hook_failed" | "no_checkpoint" | "output_schema" | (string & {});

/** The `params` of a `session/event` notification. */
export interface Notification {
  /** The session that the event belongs to. */
  session: SessionId;
  /** Where to read on from after this event. */
  cursor: Cursor;
  /** Whether the event is a question of the past: when the client attached it had its answer, or was withdrawn. */
  answered?: boolean;
  /** The event itself. */
  event: Event;
}

/** `mcp/resources` and `mcp/prompts`: those of all servers, or of one. */
export interface Offered {
  /** The session that they are for: a server may be started for its workspace. */
  session?: SessionId | null;
  /** Without a session: the workspace that they are for. */
  cwd?: string | null;
  /** The environment of the client, with `cwd`. */
  env?: Record<string, string>;
  /** The server; absent: all that can be started. */
  server?: string | null;
}

/** Where a fork left its origin. */
export interface Origin {
  /** The session that it goes on from; it may have been removed since. */
  session: SessionId;
  /** The last event that both have. */
  seq: number;
}

/** The result of `session/restore`. */
export interface SessionRestoreResult {
  /** The name that it has now: another one than before where a session has taken that. */
  name?: string | null;
}

/** How a tool call ended. */
export type Outcome = "ran" | "invalid" | "denied" | "timed_out" | "cancelled" | "unknown";

/** Where a block of a tool's result stands in the stream of its output. */
export interface OutputSegment {
  /** The block of `content`. */
  block: number;
  /** Where its text begins in the stream, in bytes. */
  offset: number;
}

/** How long a turn waits while its provider cannot answer. Written as a number and a unit, as `forever`, or as 0 for not at all. */
export type Patience = string | number;

/** A permission that waits. */
export interface Pending {
  /** The permission; `permission/answer` takes it. */
  permission: QuestionId;
  /** The session that waits. */
  session: SessionId;
  /** The tool call that waits. */
  call: CallId;
  /** The name of the tool that would run. */
  tool: string;
  /** The action in one line. */
  action: string;
  /** The arguments, whole. */
  input: unknown;
  /** Where it will run. */
  cwd: string;
  /** The hash of tool, arguments and directory. */
  digest: string;
  /** The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses. */
  grant: string;
  /** The rules one by one, if the call touches several things: then `grant` names them all, for people. */
  grants?: Array<string>;
  /** Why the mode asks about what it lets run elsewhere, behind 'asks because'. */
  why?: string | null;
  /** Its place among those of the same answer of the model; absent if it is the only one. */
  position?: QuestionPosition | null;
  /** When it was asked, in Unix milliseconds. */
  at: number;
}

/** A question that waits: a row of `question/list`. */
export interface PendingQuestion {
  /** The question; `question/answer` takes it. */
  question: QuestionId;
  /** The session that asks; absent if the daemon itself does. */
  session?: SessionId | null;
  /** The session that this one works for, if it is a child. */
  parent?: SessionId | null;
  /** The name of that one; without one, the beginning of its first prompt. */
  parent_name?: string | null;
  /** The form of the answer. */
  kind: QuestionKind;
  /** The work that waits for it. */
  blocks: Blocks;
  /** The tool call that asks. */
  call?: CallId | null;
  /** Its subject, if it is the daemon's own and of a kind that programs know. */
  about?: Subject | null;
  /** The question; absent for a permission, whose `action` says it. */
  text?: string;
  /** The possible answers. */
  options?: Array<QuestionOption>;
  /** JSON Schema of the fields, if it is a form. */
  schema?: unknown;
  /** The permission: the question itself; `permission/answer` takes it too. */
  permission?: QuestionId;
  /** The name of the tool that would run. */
  tool?: string;
  /** The call in one line. */
  action?: string;
  /** The arguments, whole. */
  input?: unknown;
  /** Where it will run. */
  cwd?: string;
  /** The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses. */
  grant?: string;
  /** The rules one by one, if the call touches several things: then `grant` names them all, for people. */
  grants?: Array<string>;
  /** Why the mode asks about what it lets run elsewhere, behind 'asks because'. */
  why?: string | null;
  /** Its place among those of the same answer of the model; absent if it is the only one. */
  position?: QuestionPosition | null;
  /** The hash of what is asked. */
  digest: string;
  /** When it was asked, in Unix milliseconds. */
  at: number;
}

/** A piece of a blob. */
export interface Piece {
  /** The bytes in base64. */
  data: string;
  /** How many bytes the whole blob has. */
  size: number;
  /** The `offset` of the next piece; absent when this is the last. */
  next?: number | null;
}

/** One entry of a plan. */
export interface PlanEntry {
  /** The task, in one line. */
  content: string;
  /** How far it is. */
  status?: PlanStatus;
}

/** How far an entry of a plan is. */
export type PlanStatus = "in_progress" | "completed" | "pending";

/** The constant part of a session's requests: all but the conversation. While it stays the same, each request begins like the one before, and a provider's prompt cache hits. */
export interface PrefixFingerprint {
  /** The wire format: `anthropic`, `openai`, `openai-responses`, `gemini`, `ollama` or `demo`. */
  kind: string;
  /** The tools that the provider runs itself, where any are switched on. */
  hosted_tools?: Array<HostedTool>;
  /** Another one whenever these or anything else of it changes: the provider's flags, how hard the model thinks by configuration, linger's own prompt and tools. */
  digest: string;
}

/** Something that is wrong with a file. */
export interface Problem {
  /** The line, from 1. */
  line: number;
  /** `error` if it breaks the rules for such files, though it may be used. */
  level: Level;
  /** The problem, in one line. */
  text: string;
}

/** The process at the other end of a connection. */
export interface Process {
  /** Its process id. */
  pid: number;
  /** Whether it belongs to the daemon: started by it, perhaps started by it, or the daemon itself. False for a user's own. */
  family: boolean;
}

/** `session/prompt`: gives the session something to do; answers once the prompt is on disk. */
export interface SessionPromptParams {
  /** The session to prompt. */
  session: SessionId;
  /** The user's content. */
  content: PromptContent;
  /** When it takes effect; `queue` when absent. */
  when?: When | null;
  /** JSON Schema that the answer has to fit. */
  schema?: unknown;
  /** A check that has to pass before the turn ends well. */
  until?: Until | null;
  /** Whether a text that begins with `/NAME` names a command or a skill (`command/list`, `skill/list`), which the daemon puts in its place. */
  expand?: boolean;
  /** Whether the sender waits for the answer, as a program does: if the turn before it is cancelled, the prompt is taken back (`prompt_unqueued`), and otherwise it becomes a draft for its user. */
  awaited?: boolean;
  /** Values of secret variables that the session was created with; others are ignored. */
  env?: Record<string, string>;
  /** Idempotency key: sent twice, the prompt happens once. */
  key?: string | null;
}

/** An argument of a `ServerPrompt`. */
export interface PromptArgument {
  /** The key in `arguments`. */
  name: string;
  /** The first line of its description; may be empty. */
  about: string;
  /** Whether the prompt needs it. */
  required: boolean;
}

/** A user's prompt: a string, or content blocks (text, images, resources and links to them). */
export type PromptContent = string | Array<ContentBlock>;

/** A prompt; unique within its session. */
export type PromptId = string;

/** A row of `session/prompts`. */
export interface PromptRow {
  /** The prompt to go back to. */
  prompt: PromptId;
  /** The user message of the prompt. */
  message: MessageId;
  /** When it entered the history, in Unix milliseconds. */
  at: number;
  /** The beginning of what it says, in one line. */
  text: string;
}

/** The result of `session/prompt` and `session/compact`. */
export interface Prompted {
  /** Unique in its session. */
  prompt: PromptId;
  /** The `seq` of its `prompt_accepted`. */
  seq: number;
}

/** `session/prompts`: the prompts that a session can go back to, the latest first. */
export interface SessionPromptsParams {
  /** The session whose prompts are listed. */
  session: SessionId;
  /** At most this many; 100 when absent, and at most 1000. */
  limit?: number | null;
}

/** A wait for a provider that cannot answer. The turn tries again by itself. */
export interface ProviderWait {
  /** The last failure, one line for people. */
  reason: string;
  /** When it began, in Unix milliseconds; a restart of the daemon does not change it. */
  since_at: number;
  /** The next try, in Unix milliseconds; once that has passed, at most 30 s go by between two tries. */
  until_at: number;
}

/** `session/prune`: deletes sessions that were not used for a while. */
export interface SessionPruneParams {
  /** Only sessions that have not changed for longer than this, in milliseconds. */
  older_than_ms: number;
  /** Delete nothing, and say what would be deleted. */
  dry_run?: boolean;
  /** Also sessions with a running turn, such as one that waits for an answer. */
  force?: boolean;
  /** Put them into the bin in place of deleting them. */
  into_bin?: boolean;
  /** Delete the sessions that are in the bin, whatever their age, and no others; `older_than_ms` does not count then. */
  bin?: boolean;
  /** Idempotency key. */
  key?: string | null;
}

/** The result of `session/prune`. */
export interface SessionPruneResult {
  /** The sessions that were deleted, or would be, the oldest first; 1000 at most. */
  sessions: Array<Info>;
  /** How many there are in all. */
  count: number;
  /** Bytes that they took. */
  size: number;
}

/** A question, whole. */
export interface Question {
  /** The form of the answer. */
  kind: QuestionKind;
  /** The work that waits for it. */
  blocks: Blocks;
  /** The tool call that asks. */
  call?: CallId | null;
  /** Its subject, if it is the daemon's own and of a kind that programs know. */
  about?: Subject | null;
  /** The question; absent for a permission, whose `action` says it. */
  text?: string;
  /** The possible answers. */
  options?: Array<QuestionOption>;
  /** JSON Schema of the fields, if it is a form. */
  schema?: unknown;
  /** The permission: the question itself; `permission/answer` takes it too. */
  permission?: QuestionId;
  /** The name of the tool that would run. */
  tool?: string;
  /** The call in one line. */
  action?: string;
  /** The arguments, whole. */
  input?: unknown;
  /** Where it will run. */
  cwd?: string;
  /** The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses. */
  grant?: string;
  /** The rules one by one, if the call touches several things: then `grant` names them all, for people. */
  grants?: Array<string>;
  /** Why the mode asks about what it lets run elsewhere, behind 'asks because'. */
  why?: string | null;
  /** Its place among those of the same answer of the model; absent if it is the only one. */
  position?: QuestionPosition | null;
  /** The hash of what is asked. */
  digest: string;
}

/** A question; unique among all sessions of a daemon. */
export type QuestionId = string;

/** The kind of answer that a question wants. */
export type QuestionKind = "permission" | "choice" | "form" | (string & {});

/** One of the possible answers. */
export interface QuestionOption {
  /** The word for it in an answer. */
  name: string;
  /** The text for people. */
  label: string;
}

/** The place of a permission among those that the calls of one answer of a model ask together. */
export interface QuestionPosition {
  /** Its number, from 1. */
  number: number;
  /** How many there are, at least 2. */
  of: number;
  /** The first of them; all have the same. */
  first: QuestionId;
}

/** `artifact/read`: its bytes, piece by piece. */
export interface ArtifactReadParams {
  /** A UUID, from `artifact/finish` or `artifact/list`. */
  id: ArtifactId;
  /** Where the piece begins; 0 when absent. */
  offset?: number | null;
  /** How many bytes are wanted; a piece has 1 MiB at most, and so much when this is absent. */
  length?: number | null;
}

/** `mcp/resource`: what a resource has, as blocks for a prompt. */
export interface McpResourceParams {
  /** The session that it is for. */
  session: SessionId;
  /** The server that has it. */
  server: string;
  /** Its address. */
  uri: string;
}

/** `session/redo`: makes the changes again that were undone last. */
export interface SessionRedoParams {
  /** The session that undid the changes. */
  session: SessionId;
  /** Also files that were changed since. */
  force?: boolean;
  /** Idempotency key. */
  key?: string | null;
}

/** `session/remove`: deletes a session and everything that was stored for it. */
export interface SessionRemoveParams {
  /** The session to delete. */
  session: SessionId;
  /** Also while a turn is running; it is cancelled first. */
  force?: boolean;
  /** Idempotency key. */
  key?: string | null;
}

/** `key/remove`: takes a provider's keys out of the keychain, for whatever place they are. Sent again it removes nothing. */
export interface KeyRemoveParams {
  /** The provider; it need not be configured any more. */
  provider: string;
}

/** `memory/remove`: removes a note. */
export interface MemoryRemoveParams {
  /** A directory of a workspace, absolute. */
  cwd: string;
  /** The subject. */
  scope?: Scope2;
  /** As `memory/list` gives it. */
  name: string;
}

/** `permission/remove`: takes a rule of `permission/rules` out of the configuration. */
export interface PermissionRemoveParams {
  /** The rule, as it stands there. */
  rule: string;
  /** Only that of the workspace with this root; absent: of all workspaces. */
  workspace?: string | null;
}

/** The result of `session/remove` and `session/bin`. */
export interface Removed {
  /** How many children went with it. */
  children?: number;
  /** The git worktrees of removed children that stay, because they have changes that are nowhere else. */
  worktrees?: Array<Worktree>;
}

/** The result of `key/remove`. */
export interface KeyRemoveResult {
  /** Whether the keychain had any. */
  removed: boolean;
  /** Where the provider's key comes from now, if there is such a provider. */
  now?: KeyInfo | null;
}

/** A resource that a prompt can name as `@SERVER:URI`: a row of `mcp/resources`. */
export interface Resource {
  /** The server that has it. */
  server: string;
  /** Its address; of a template one with `{names}`. */
  uri: string;
  /** The server's name for it; may be empty. */
  name: string;
  /** The first line of its description; may be empty. */
  about: string;
  /** Whether its address is a pattern of addresses (RFC 6570). */
  is_template?: boolean;
}

/** The result of `session/undo` and `session/redo`. */
export interface Restored {
  /** The turn, if all of its changes were meant. */
  step?: TurnId | null;
  /** The change of each file; a file that was as wanted has none. */
  changes: Array<FileChange>;
  /** The files that could not be put back. */
  failed?: Array<NotRestored>;
  /** Changes that stay because an editor or another program may have made them. */
  uncertain?: Array<UncertainChange>;
}

/** `trust/revoke`: trusts nothing of a workspace any more. */
export interface TrustRevokeParams {
  /** A directory in the workspace, absolute; or its root, which may be gone. */
  cwd: string;
}

/** `token/revoke`: ends a token, and at once each connection that has it. */
export interface TokenRevokeParams {
  /** As `token/list` gives it. */
  id: TokenId;
}

/** The result of `trust/revoke`. */
export interface TrustRevokeResult {
  /** The root of the workspace. */
  workspace: string;
  /** Whether anything was trusted. */
  revoked: boolean;
}

/** `session/rewind`: a session goes on from before one of its prompts; what it leaves stays, as a fork. */
export interface SessionRewindParams {
  /** The session to rewind. */
  session: SessionId;
  /** The prompt, or its message; the latest prompt when absent. */
  to?: PromptId | null;
  /** Also put back the files that its turns changed since, as `session/undo` does. */
  files?: boolean;
  /** With `files`: what becomes of changes that an editor or another program may have made while a command ran; absent: `ask`. */
  uncertain?: Uncertain | null;
  /** Whether to undo files too that somebody changed since, and changes that are uncertain. */
  force?: boolean;
  /** Idempotency key. */
  key?: string | null;
}

/** The result of `session/rewind`. */
export interface SessionRewindResult {
  /** The fork that has what the session left. */
  branch: SessionId;
  /** The last event that still counts. */
  to: number;
  /** The prompt that it went back to. */
  prompt: PromptId;
  /** The text of that prompt. */
  text?: string;
  /** The change of each file. */
  changes?: Array<FileChange>;
}

/** A session went back: the events between `to` and this one are no part of its conversation any more. */
export interface Rewound {
  /** The last event that still counts. */
  to: number;
  /** The prompt that comes after it. */
  prompt: PromptId;
  /** The fork that has what was left. */
  branch: SessionId;
  /** Whether the files that were changed since were put back before. */
  files?: boolean;
  /** About how many tokens the context has now. */
  context_tokens?: number | null;
  /** The client that asked for it. */
  by?: string | null;
  /** The process that asked for it. */
  process?: Process | null;
}

/** The author of a message. */
export type Role = "user" | "assistant";

/** The agent of a session: the file that it was made from. */
export interface Role2 {
  /** As its file gives it. */
  name: string;
  /** Its file. */
  path: string;
  /** `sha256:` and the hash of the file. */
  digest: string;
}

/** The result of `permission/remove`. */
export interface PermissionRemoveResult {
  /** The rules that were removed. */
  removed: Array<AlwaysRule>;
}

/** A gateway that runs. */
export interface RunningGateway {
  /** Its process. */
  pid: number;
  /** Where it listens: an address and a port, or `unix:` and a path. */
  listen: string;
  /** How browsers reach it: its `public_url`, or its address; absent for a Unix socket without one. */
  url?: string | null;
  /** The version of its program. */
  version: string;
  /** Its start, in Unix milliseconds. */
  started_at: number;
}

/** Whose a file is. */
export type Scope = "user" | "workspace" | "named" | (string & {});

/** The subject of notes. */
export type Scope2 = "user" | "workspace" | (string & {});

/** Who shares one process of a server, or one connection to it. */
export type Scope3 = "user" | "workspace" | "session" | (string & {});

/** `session/search`: the messages that have these words. */
export interface SessionSearchParams {
  /** Words, all of which a message must have; several in quotes stand in this order, and `begin*` stands for words that begin so. */
  text: string;
  /** Only sessions with this working directory. */
  cwd?: string | null;
  /** The most rows; 20 when absent, 200 at most. */
  limit?: number | null;
}

/** A configured server: a row of `mcp/list`. */
export interface Server {
  /** Its name in the configuration. */
  server: string;
  /** The command or the address. */
  target: string;
  /** Who shares one process. */
  scope: Scope3;
  /** Whether turns need it. */
  required: boolean;
  /** How it is. */
  state: State2;
  /** The running instances. */
  instances: Array<Instance>;
  /** Its tools, as last seen; absent if it was never seen. */
  tools?: Array<ServerTool> | null;
  /** Its problems, and those of its tools. */
  problems?: Array<string>;
  /** Why it could not be started, or ended. */
  error?: string | null;
  /** The variables that its configuration names and that no client has brought since the daemon was started. */
  waits_for?: Array<string>;
  /** The file of a workspace that has it; absent if the user's own configuration does. */
  from?: string | null;
  /** The session that a client brought it for. */
  session?: SessionId | null;
}

/** A prompt that a server has ready: a row of `mcp/prompts`. */
export interface ServerPrompt {
  /** The server that has it. */
  server: string;
  /** Its name. */
  prompt: string;
  /** The first line of its description; may be empty. */
  about: string;
  /** The arguments that it takes. */
  arguments?: Array<PromptArgument>;
}

/** A tool of a server. */
export interface ServerTool {
  /** The name for models and rules: `mcp__SERVER__TOOL`. */
  name: string;
  /** The server's name for it. */
  tool: string;
  /** The first line of its description. */
  about: string;
}

/** A session; unique among all sessions of a daemon. */
export type SessionId = string;

/** An MCP server of one session, which a client brings for it: a program, or an address of Streamable HTTP. */
export interface SessionServer {
  /** Its name: at most 32 letters, digits, `-` and `_`. A server of the user's configuration hides one of the same name. */
  server: string;
  /** The program: an absolute path, or a name that the session's `PATH` has. */
  command?: string | null;
  /** Its arguments, as they are. */
  args?: Array<string>;
  /** Its variables. The values are in the daemon's memory alone; events have `<in memory>` in their place. */
  env?: Record<string, string>;
  /** The address, in place of a program. */
  url?: string | null;
  /** Headers of each request to it; in memory like `env`. */
  headers?: Record<string, string>;
}

/** `session/set`: changes a session from its next step on; absent fields stay. */
export interface SessionSetParams {
  /** The session to change. */
  session: SessionId;
  /** `provider/model`. */
  model?: string | null;
  /** The permission mode. */
  mode?: Mode | null;
  /** How hard the model thinks; `auto` is the default of the model. */
  effort?: Effort | null;
  /** How long a turn waits while its provider cannot answer. */
  patience?: Patience | null;
  /** The models that stand in, in order, while the session's own cannot answer; an empty list is none. */
  fallback?: Array<string> | null;
  /** How a question that no person answers is treated from now on, also questions that wait. */
  unattended?: Unattended | null;
  /** The sums at which it asks before it goes on; 0 takes one away. What was raised by answers begins again. */
  budget?: Budget;
  /** The directory where it works from now on, absolute; it must exist. Refused while a turn runs or prompts wait, for a child, and for processes that are not known to be the user's: other files say what may run there. Rules that answers added for the session are gone with it. */
  cwd?: string | null;
  /** More directories in which its file tools may do what they may in `cwd`, absolute; each must exist. */
  add_directories?: Array<string>;
  /** The additional directories to take away. */
  remove_directories?: Array<string>;
  /** All MCP servers of this session alone from now on, as in `session/create`; an empty list is none. Those that it has already go on, and get the values that come with them. */
  mcp_servers?: Array<SessionServer> | null;
  /** The only tools from the next step on, as in `session/create`; `['*']` is all. A session can only take some away from its children, and a token gives more only where its own mode reaches as far as that of the session. */
  tools?: Array<string> | null;
  /** The new name. */
  name?: string | null;
  /** Idempotency key. */
  key?: string | null;
}

/** `key/set`: puts a provider's key into the keychain, for the place where the provider is now. It has no idempotency key: sent again it is the same. */
export interface KeySetParams {
  /** As the configuration names it. */
  provider: string;
  /** Its key. */
  secret: string;
}

/** `config/set`: sets one key in the file; what that widens is confirmed. */
export interface ConfigSetParams {
  /** The dotted key, such as `permissions.allow`. */
  name: string;
  /** The value as in the file; what is not TOML is a string. */
  value: string;
}

/** A way in which a terminal draws attention to itself. */
export type Signal = "bell" | "osc9" | "osc777" | (string & {});

/** A skill that a session's model is told of. */
export interface Skill {
  /** As its file or directory gives it. */
  name: string;
  /** Its file. */
  path: string;
  /** `sha256:` and the hash of the file. */
  digest: string;
}

/** The limits of a turn that has read a skill. */
export interface SkillLimit {
  /** The skill's name. */
  skill: string;
  /** Rules, as the configuration has them, for the calls that may run; those that only read need none. */
  allowed: Array<string>;
}

/** `completion/start`: ask a model, and send what it answers as notifications. */
export interface CompletionStartParams {
  /** `provider/model`, or a provider alone for its default model; the configuration's default when absent. */
  model?: string | null;
  /** The system prompt. */
  system?: string;
  /** The conversation: text, images, calls of the model and their results. Each call has its result in the next message. It may begin with the model's words, and end with them to have them continued; empty if the system prompt says everything. */
  messages?: Array<CompletionMessage>;
  /** The caller's own tools; the model's calls of them are in the answer, and nothing runs. */
  tools?: Array<CompletionTool>;
  /** JSON Schema that the answer has to fit, as far as the provider can be held to it. */
  schema?: unknown;
  /** The most tokens of the answer; the configuration's for the model when absent. */
  max_tokens?: number | null;
  /** How hard the model thinks; the configuration's for the model when absent. */
  effort?: Effort;
  /** Whether the model may, must or must not call one of the tools. An answer that must be a call ignores `schema`. */
  tool_choice?: ToolChoice;
  /** The name of the one tool that must be called. */
  forced_tool?: string | null;
  /** Whether an answer may have several calls; true when absent. */
  parallel_tool_calls?: boolean | null;
  /** Texts that end the answer, at most 16; the answer ends before the first of them. */
  stop?: Array<string>;
  /** The sampling temperature, in the provider's own range. */
  temperature?: number | null;
  /** The share of the probability that tokens are chosen from. */
  top_p?: number | null;
  /** The seed of the sampling. */
  seed?: number | null;
  /** How much frequent tokens are avoided. */
  frequency_penalty?: number | null;
  /** How much tokens are avoided that were there before. */
  presence_penalty?: number | null;
  /** The same request as OpenAI's Responses has it, as the text of a JSON object. A provider of the kind `openai-responses` gets it in place of everything else but the model, and its events come back as they are: `native`. Other providers ignore it. */
  responses?: string | null;
}

/** The result of `completion/start`; pieces follow it. */
export interface CompletionStartResult {
  /** The completion, unique within its connection. */
  completion: CompletionId;
  /** The model that is asked, `provider/model`. */
  model: string;
  /** The parameters that its provider has no field for, and that therefore have no effect. */
  ignored?: Array<string>;
  /** Whether `responses` was sent as it is, and `native` events follow. */
  native?: boolean;
}

/** The present activity of a session. */
export type State = "idle" | "running" | "waiting" | "offered";

/** How a server is. */
export type State2 = "idle" | "starting" | "running" | "failed" | "waiting" | "needs_login" | "untrusted" | "left_out" | (string & {});

/** The result of `daemon/status`. */
export interface DaemonStatusResult {
  /** The daemon's version. */
  version: string;
  /** The protocol versions that it speaks. */
  protocol: Array<number>;
  /** Its process. */
  pid: number;
  /** The process that restarts it when it dies: the one to send a signal to. */
  keeper?: number | null;
  /** How often it died and was restarted since its keeper started. */
  restarts?: number;
  /** When it started, in Unix milliseconds. */
  started_at: number;
  /** The path that clients connect to. */
  socket: string;
  /** The path of the SQLite file. */
  database: string;
  /** Its log file. */
  log: string;
  /** Why nothing can be written there. */
  log_error?: string | null;
  /** The configuration file that it reads. */
  config: string;
  /** The error of the configuration: file, line and key. */
  config_error?: string | null;
  /** Settings without effect, or with a surprising one. */
  config_warnings?: Array<string>;
  /** The model of new sessions, if there is one. */
  model?: string | null;
  /** Sessions in the database. */
  sessions: number;
  /** Sessions with a running turn. */
  running: number;
  /** Permissions that wait. */
  permissions: number;
  /** Questions of any kind that wait for an answer, permissions among them. */
  questions?: number;
  /** Tokens that are valid; see `token/list`. */
  tokens?: number;
  /** Clients that are connected, this one included. */
  connections: number;
  /** Damage to what is stored, and what became of it. */
  damage?: Array<Damage>;
  /** The space that is taken on the disk, in bytes. */
  storage?: Storage | null;
  /** The gateway that is connected, if one is. */
  gateway?: RunningGateway | null;
  /** The proxies that requests to providers go through, a line each, without passwords. */
  proxies?: Array<string>;
}

/** Whether sessions have a skill, command or agent. */
export type Status2 = "active" | "waits" | "hidden" | "broken" | (string & {});

/** `daemon/stop`: ends the daemon; running turns continue when it starts again. */
export interface DaemonStopParams {
  /** Also while a turn is running. */
  force?: boolean;
  /** At once: tool calls that run do not get 10 s to end. */
  now?: boolean;
  /** Idempotency key: sent again with it, after a new start too, the request ends nothing more. */
  key?: string | null;
}

/** Why a turn ended. */
export type StopReason = "end_turn" | "max_tokens" | "max_steps" | "refusal" | "cancelled" | "error" | (string & {});

/** The space that is taken on the disk, in bytes. */
export interface Storage {
  /** The size of the SQLite file. */
  database: number;
  /** The part of it that holds nothing any more. */
  unused: number;
  /** Recent writes that are not in the database file yet. */
  wal: number;
  /** Images and whole outputs. */
  blobs: number;
  /** The log files. */
  log: number;
  /** Free space on the file system of the database. */
  free: number;
}

/** The subject of a question that the daemon asks by itself. */
export type Subject = "configuration" | "circles" | "budget" | "workspace" | "plan" | "check" | (string & {});

/** `events/subscribe`: send the events of all sessions after a cursor, and all that follow. */
export interface EventsSubscribeParams {
  /** Only these sessions; all that the caller may read when absent, and the daemon's own log under the id `daemon`. */
  sessions?: Array<SessionId> | null;
  /** Only these kinds, `['*']` for all of them; when absent sessions that come to be or change, turns and questions. */
  kinds?: Array<string> | null;
  /** Where to read on from: a cursor of this stream, or `now`; from the beginning when absent. */
  after?: Cursor | null;
}

/** The result of `events/subscribe`; events follow it. */
export interface EventsSubscribeResult {
  /** Where the stream begins: the cursor after which events follow. */
  cursor: Cursor;
}

/** The usage of some answers, added up. */
export interface Sum {
  /** The day, such as `2026-11-21`. */
  day?: string | null;
  /** The model, `provider/model`. */
  model?: string | null;
  /** Present in sums by session, unless it was removed. */
  session?: SessionId | null;
  /** The name of the session. */
  name?: string | null;
  /** Answers of models, those that were cut included. */
  answers: number;
  /** Their tokens and what they cost. */
  usage: Usage;
}

/** The result of `usage/list`. */
export interface UsageListResult {
  /** A row each. */
  rows: Array<Sum>;
  /** All of it, what was left out too. */
  total: Sum;
  /** Rows that were left out because there are too many: the oldest days, the cheapest models or sessions. */
  left_out?: number;
}

/** `mcp/test`: starts a server and asks for its tools. */
export interface McpTestParams {
  /** Its name in the configuration. */
  server: string;
  /** The workspace to start it for. */
  cwd: string;
  /** The environment of the client, as of `session/create`. */
  env?: Record<string, string>;
}

/** The text of the file. */
export interface Text {
  /** The text; empty if there is no file. */
  text: string;
  /** Its hash; `config/write` takes it. */
  digest: string;
}

/** How long a provider took for an answer, in milliseconds from when the request was sent. */
export interface Times {
  /** Until the first byte of the answer. */
  first_byte_ms: number;
  /** Until its end. */
  total_ms: number;
}

/** A token; the id is no secret. */
export type TokenId = string;

/** A row of `token/list`. */
export interface TokenRow {
  /** Public: identifies the token, and is none. */
  id: TokenId;
  /** Its rights and limits. */
  grant: Grant;
  /** When it was made, in Unix milliseconds. */
  created_at: number;
  /** When a connection last began with it, in Unix milliseconds. */
  used_at?: number | null;
  /** Until when its code can be exchanged, in Unix milliseconds; absent if it is a token. */
  code_until?: number | null;
}

/** A row of `tool/list`. */
export interface Tool {
  /** The tool. */
  name: string;
  /** The description for the model. */
  description: string;
  /** JSON Schema of its arguments. */
  input_schema: unknown;
  /** Whether it changes nothing. */
  read_only: boolean;
  /** The category, for icons and the like. */
  kind?: ToolKind;
  /** Reads, changes, or unknown. */
  effect?: ToolEffect;
  /** Whether a plain call of it would run. */
  verdict?: ToolVerdict | null;
  /** The MCP server that it belongs to; absent for the daemon's own. */
  server?: string | null;
  /** The Markdown file that describes it; absent for the daemon's own and those of servers. */
  file?: string | null;
}

/** Whether the model calls tools. */
export type ToolChoice = "auto" | "none" | "required";

/** Whether a call runs. */
export type ToolDecision = "allow" | "ask" | "deny";

/** The effect of a tool. */
export type ToolEffect = "reads" | "writes" | "runs" | "network" | "asks" | "unknown";

/** The category of a tool, as ACP has it; for icons and the like. */
export type ToolKind = "read" | "edit" | "delete" | "move" | "search" | "execute" | "think" | "fetch" | "other";

/** The verdict of rules and mode on a plain call: within the workspace, to a host or with a command that no rule names. */
export interface ToolVerdict {
  /** `allow`, `ask` or `deny`. */
  verdict: ToolDecision;
  /** The rule or the mode that says so. */
  by: string;
}

/** `tool/list`: the tools of a session, or without one those of a new session in a directory. */
export interface ToolListParams {
  /** Absent to ask about a new session in `cwd`. */
  session?: SessionId | null;
  /** The directory, absolute; without it and without a session the rows have no `verdict`. */
  cwd?: string | null;
}

/** Why a context is compacted. */
export type Trigger = "asked" | "full" | "too_long" | (string & {});

/** A row of `trust/list`: a workspace of which something is trusted. */
export interface Trusted {
  /** The root of the workspace. */
  workspace: string;
  /** The trusted settings, a line each. */
  trusts: Array<string>;
}

/** A turn; unique within its session. */
export type TurnId = string;

/** How a turn's question that no person answers is treated. Written `hold`, `deny`, or `deny:10m` with a number and a unit. */
export type Unattended = string;

/** The treatment of changes that an editor or another program may have made while a command ran. */
export type Uncertain = "undo" | "keep" | "ask";

/** A change of a file while a command ran, which an editor or another program may have made. */
export interface UncertainChange {
  /** The file, absolute and without links. */
  path: string;
  /** The kind of change. */
  kind: ChangeKind;
  /** The call that ran meanwhile. */
  call_id: CallId;
  /** When the file was last written, in Unix milliseconds; absent if there is none. */
  at?: number | null;
  /** When the call began to run, in Unix milliseconds; absent where that is not known. */
  from?: number | null;
  /** When it had ended, in Unix milliseconds. */
  to: number;
}

/** `session/uncompact`: takes back the latest compaction, while the messages fit the model. */
export interface SessionUncompactParams {
  /** The session whose compaction is undone. */
  session: SessionId;
  /** Idempotency key: sent twice, it happens once. */
  key?: string | null;
}

/** A compaction was taken back: the model reads the messages again that it had replaced. */
export interface Uncompacted {
  /** The number of its `compacted`. */
  compacted: number;
  /** How many messages it had replaced. */
  messages: number;
  /** About how many tokens the context has now. */
  tokens: number;
  /** The client that asked for it; absent in answers. */
  by?: string | null;
  /** The process that asked for it; absent in answers. */
  process?: Process | null;
}

/** `session/undo`: puts files back to what they were before the model's tools changed them. */
export interface SessionUndoParams {
  /** The session that made the changes. */
  session: SessionId;
  /** Only the changes of this call; absent: of the latest turn that changed files. */
  call?: CallId | null;
  /** Only the changes of this file, in the latest turn that changed it. */
  file?: string | null;
  /** Only the changes of these files, each in the latest turn that changed it. A file that is named here or in `file` is undone also where an editor or another program may have changed it. */
  files?: Array<string>;
  /** The treatment of changes that an editor or another program may have made while a command ran; absent: they stay, and the result lists them. */
  uncertain?: Uncertain | null;
  /** Also files that were changed since, and changes that are uncertain. */
  force?: boolean;
  /** Idempotency key. */
  key?: string | null;
}

/** `session/unqueue`: takes back a prompt that waits for its turn, or a draft. */
export interface SessionUnqueueParams {
  /** The session with the waiting prompts. */
  session: SessionId;
  /** This one; when absent, the one that came last, and a draft only if none is queued. */
  prompt?: PromptId | null;
  /** Idempotency key. */
  key?: string | null;
}

/** The result of `session/unqueue`. */
export interface SessionUnqueueResult {
  /** The prompt that was taken back. */
  prompt: PromptId;
}

/** A check of the work of a turn: a command that the daemon runs when the turn would end, by permission like one of `bash`. */
export interface Until {
  /** The command; it passes if it exits with 0. */
  command: string;
  /** How often its failure is the next prompt, from 1 to 10; 10 when absent. */
  tries?: number | null;
}

/** An artifact that is being put at the daemon; unique within its connection. */
export type UploadId = string;

/** Tokens, as the provider counted them, and what they cost; of one step, or the sum over some. */
export interface Usage {
  /** Tokens of the request, cached ones included. */
  input_tokens?: number;
  /** Tokens of the answer, thinking included. */
  output_tokens?: number;
  /** The part of `input_tokens` that was read from the provider's cache. */
  cached_tokens?: number;
  /** The part of `input_tokens` that was written to the provider's cache. */
  cache_write_tokens?: number;
  /** The part of `output_tokens` that was thinking. */
  reasoning_tokens?: number;
  /** The cost in millionths of a US dollar, at the prices of the time; absent if nothing is known of it. */
  cost_micros?: number | null;
  /** Some of what is summed has a cost that is not known, or was cut before its provider counted it: it is at least this. */
  cost_at_least?: boolean;
}

/** Changes that wait. */
export interface Waiting {
  /** The hash of the changes; `config/confirm` takes it. */
  digest: string;
  /** The question that lists them; absent once it was answered with `keep`. */
  question?: QuestionId | null;
  /** The changes, a line each. */
  changes: Array<string>;
}

/** The result of `daemon/hello`. */
export interface DaemonHelloResult {
  /** The protocol version that both speak. */
  protocol: number;
  /** The daemon's version. */
  version: string;
  /** The grant of the connection's token. */
  grant?: Grant | null;
  /** Names of variables that `session/create` takes in `env` whatever they look like, and some that every session should have. */
  env: Array<string>;
  /** Names of variables that it never takes. */
  env_deny?: Array<string>;
  /** Names of variables that hold keys which the daemon could use and does not have; see `daemon/keys`. */
  keys: Array<string>;
  /** Variables that the trusted MCP servers of workspaces name and the daemon does not have, by the root of the workspace; see `daemon/keys`. */
  workspace_keys?: Record<string, Array<string>>;
  /** How a terminal draws attention to a session that needs an answer or has ended. */
  signals?: Array<Signal>;
  /** The error of the configuration now. */
  config_error?: string | null;
  /** It was good before, and what it said then stays in force; otherwise no turn begins until it is mended. */
  config_stale?: boolean;
  /** Settings without effect, or with a surprising one, a line each. */
  config_warnings?: Array<string>;
  /** Damage to stored data that the user should know of, a line each; `daemon/status` says more. */
  damage?: Array<string>;
}

/** When a prompt takes effect. */
export type When = "queue" | "steer" | "interrupt";

/** The result of `trust/get`. */
export interface TrustGetResult {
  /** The root of the workspace: the repository that contains the directory, or that directory. */
  workspace: string;
  /** The file; it may be missing. */
  file: string;
  /** The settings that are in force. */
  settings?: unknown;
  /** The error of the file; everything in the workspace asks while there is one. */
  error?: string | null;
  /** The errors of the workspace's `.mcp.json` and its servers, a line each; they concern those alone. */
  problems?: Array<string>;
  /** The changes that wait until a person trusts them. */
  waiting?: Waiting | null;
}

/** The git worktree of a child. */
export interface Worktree {
  /** Its directory, absolute. */
  path: string;
  /** Checked out in it; merged by `session/merge`. */
  branch: string;
  /** The commit that it was made of. */
  base: string;
  /** Whether it is in use, merged or gone. */
  status?: WorktreeStatus;
}

/** The state of a worktree. */
export type WorktreeStatus = "kept" | "merged" | "removed" | (string & {});

/** `config/write`: replaces the text of the file; what that widens is confirmed. */
export interface ConfigWriteParams {
  /** The new text. */
  text: string;
  /** The hash of the text that was edited; if the file has another now, nothing is written. */
  digest: string;
  /** Only check the text, and say what would be confirmed. */
  dry_run?: boolean;
}

/** `artifact/write`: the next piece. */
export interface ArtifactWriteParams {
  /** As `artifact/begin` gave it. */
  upload: UploadId;
  /** How many bytes went before: a piece that is sent twice is refused. */
  offset: number;
  /** The bytes in base64; at most 1 MiB of them. */
  data: string;
}

/** The result of `artifact/write`. */
export interface ArtifactWriteResult {
  /** How many bytes there are: the next `offset`. */
  size: number;
}

/** Each method with its params and its result. */
export interface Methods {
  "daemon/hello": { params: DaemonHelloParams; result: DaemonHelloResult };
  "daemon/keys": { params: DaemonKeysParams; result: Empty };
  "daemon/status": { params: Empty; result: DaemonStatusResult };
  "daemon/stop": { params: DaemonStopParams; result: Empty };
  "daemon/check": { params: Empty; result: DaemonCheckResult };
  "model/list": { params: ModelListParams; result: Array<Model> };
  "mode/list": { params: Empty; result: Array<ModeInfo> };
  "tool/list": { params: ToolListParams; result: Array<Tool> };
  "session/create": { params: SessionCreateParams; result: SessionCreateResult };
  "session/list": { params: SessionListParams; result: Array<Info> };
  "session/attach": { params: SessionAttachParams; result: SessionAttachResult };
  "session/detach": { params: Named; result: Empty };
  "session/env": { params: Named; result: SessionEnvResult };
  "session/prompt": { params: SessionPromptParams; result: Prompted };
  "session/cancel": { params: SessionCancelParams; result: Empty };
  "session/continue": { params: SessionContinueParams; result: Empty };
  "session/compact": { params: SessionCompactParams; result: Prompted };
  "session/unqueue": { params: SessionUnqueueParams; result: SessionUnqueueResult };
  "session/undo": { params: SessionUndoParams; result: Restored };
  "session/redo": { params: SessionRedoParams; result: Restored };
  "session/diff": { params: SessionDiffParams; result: SessionDiffResult };
  "session/fork": { params: SessionForkParams; result: SessionForkResult };
  "session/rewind": { params: SessionRewindParams; result: SessionRewindResult };
  "session/prompts": { params: SessionPromptsParams; result: Array<PromptRow> };
  "session/compaction": { params: SessionCompactionParams; result: Array<CompactionRow> };
  "session/uncompact": { params: SessionUncompactParams; result: Uncompacted };
  "session/merge": { params: SessionMergeParams; result: Merged };
  "session/set": { params: SessionSetParams; result: Empty };
  "session/bin": { params: SessionBinParams; result: Removed };
  "session/restore": { params: SessionRestoreParams; result: SessionRestoreResult };
  "session/remove": { params: SessionRemoveParams; result: Removed };
  "session/prune": { params: SessionPruneParams; result: SessionPruneResult };
  "events/subscribe": { params: EventsSubscribeParams; result: EventsSubscribeResult };
  "events/unsubscribe": { params: Empty; result: Empty };
  "session/search": { params: SessionSearchParams; result: SessionSearchResult };
  "completion/start": { params: CompletionStartParams; result: CompletionStartResult };
  "completion/cancel": { params: CompletionCancelParams; result: Empty };
  "usage/list": { params: UsageListParams; result: UsageListResult };
  "blob/get": { params: BlobGetParams; result: Piece };
  "artifact/begin": { params: ArtifactBeginParams; result: ArtifactBeginResult };
  "artifact/write": { params: ArtifactWriteParams; result: ArtifactWriteResult };
  "artifact/finish": { params: ArtifactFinishParams; result: Artifact };
  "artifact/get": { params: NamedArtifact; result: Artifact };
  "artifact/read": { params: ArtifactReadParams; result: Piece };
  "artifact/list": { params: ArtifactListParams; result: Array<Artifact> };
  "artifact/delete": { params: NamedArtifact; result: Empty };
  "key/list": { params: Empty; result: KeyListResult };
  "key/set": { params: KeySetParams; result: KeyInfo };
  "key/remove": { params: KeyRemoveParams; result: KeyRemoveResult };
  "config/get": { params: ConfigGetParams; result: ConfigGetResult };
  "config/confirm": { params: ConfigConfirmParams; result: Confirmed };
  "config/set": { params: ConfigSetParams; result: Confirmed };
  "config/write": { params: ConfigWriteParams; result: Confirmed };
  "trust/get": { params: TrustGetParams; result: TrustGetResult };
  "trust/confirm": { params: TrustConfirmParams; result: Confirmed };
  "trust/list": { params: Empty; result: Array<Trusted> };
  "trust/revoke": { params: TrustRevokeParams; result: TrustRevokeResult };
  "token/mint": { params: TokenMintParams; result: Minted };
  "token/exchange": { params: TokenExchangeParams; result: Minted };
  "token/list": { params: Empty; result: Array<TokenRow> };
  "token/revoke": { params: TokenRevokeParams; result: Empty };
  "skill/list": { params: List3; result: Array<Item> };
  "command/list": { params: List3; result: Array<Item> };
  "agent/list": { params: List3; result: Array<Item> };
  "tool/files": { params: List3; result: Array<Item> };
  "mcp/files": { params: List3; result: Array<Item> };
  "memory/list": { params: MemoryListParams; result: Array<Note> };
  "memory/add": { params: MemoryAddParams; result: Note };
  "memory/remove": { params: MemoryRemoveParams; result: Empty };
  "mcp/list": { params: McpListParams; result: Array<Server> };
  "mcp/add": { params: McpAddParams; result: Empty };
  "mcp/remove": { params: Named2; result: Empty };
  "mcp/restart": { params: Named2; result: Empty };
  "mcp/logs": { params: Named2; result: McpLogsResult };
  "mcp/test": { params: McpTestParams; result: Server };
  "mcp/login": { params: McpLoginParams; result: McpLoginResult };
  "mcp/finish_login": { params: McpFinishLoginParams; result: McpFinishLoginResult };
  "mcp/logout": { params: Named2; result: McpLogoutResult };
  "mcp/resources": { params: Offered; result: Array<Resource> };
  "mcp/resource": { params: McpResourceParams; result: Attachable };
  "mcp/prompts": { params: Offered; result: Array<ServerPrompt> };
  "mcp/prompt": { params: McpPromptParams; result: Attachable };
  "permission/list": { params: PermissionListParams; result: Array<Pending> };
  "permission/answer": { params: PermissionAnswerParams; result: Answered };
  "permission/explain": { params: PermissionExplainParams; result: PermissionExplainResult };
  "permission/rules": { params: Empty; result: Array<AlwaysRule> };
  "permission/remove": { params: PermissionRemoveParams; result: PermissionRemoveResult };
  "question/list": { params: QuestionListParams; result: Array<PendingQuestion> };
  "question/answer": { params: QuestionAnswerParams; result: Answered };
}

/** The names of errors. */
export const ERRORS = {
  [-31001]: "AlreadyAnswered",
  [-31002]: "UnknownSession",
  [-31003]: "UnknownPermission",
  [-31004]: "UnknownCursor",
  [-31005]: "WrongDigest",
  [-31006]: "NotAllowed",
  [-31007]: "NoModel",
  [-31008]: "UnknownProvider",
  [-31009]: "KeyMissing",
  [-31010]: "BadConfig",
  [-31011]: "NoWorkspace",
  [-31012]: "BadName",
  [-31013]: "Busy",
  [-31014]: "Idle",
  [-31015]: "TooMuch",
  [-31016]: "Storage",
  [-31017]: "Ending",
  [-31018]: "Version",
  [-31019]: "BadPrompt",
  [-31020]: "NotAttached",
  [-31021]: "Damaged",
  [-31022]: "BadKey",
  [-31023]: "UnknownBlob",
  [-31024]: "NoKeychain",
  [-31025]: "NotAKey",
  [-31026]: "BadSchema",
  [-31027]: "UnknownQuestion",
  [-31028]: "UnknownOption",
  [-31030]: "BadValue",
  [-31029]: "UnknownServer",
  [-31051]: "ServerFailed",
  [-31040]: "BadRule",
  [-31070]: "UnknownMessage",
  [-31060]: "Binned",
  [-31050]: "FileChanged",
  [-31052]: "Uncertain",
  [-31080]: "Unauthorized",
  [-31081]: "UnknownToken",
  [-31082]: "UnknownArtifact",
  [-31099]: "Internal",
} as const;

/** Methods that take an idempotency key. */
const KEYED: ReadonlySet<string> = new Set([
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
]);

// types: end
