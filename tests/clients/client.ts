/**
 * A program that uses `contrib/typescript/linger.ts`, while the daemon dies under it. Run by `it/clients.rs`.
 *
 * Arguments: the directory of the library, and the program `linger`.
 */

import assert from "node:assert/strict";
import type { Event, Linger, Notification, PermissionRequestedEvent, Session } from "../../contrib/typescript/linger.ts";

const [library, program] = process.argv.slice(2) as [string, string];
const { connect, LingerError } = (await import(`${library}/linger.ts`)) as typeof import("../../contrib/typescript/linger.ts");

/**
 * What a client was shown, whatever its deltas were cut into: durable events, and texts by stream. A gap, or what came twice, is
 * an error.
 */
function whole(notifications: Notification[]): [Event[], Record<string, string>] {
  const durable: Event[] = [];
  const texts: Record<string, string> = {};
  for (const { event } of notifications) {
    if (event.seq != null) {
      assert.equal(event.seq, durable.length + 1);
      durable.push(event);
    } else if ("offset" in event) {
      const stream = "message" in event ? `${event.message} ${event.block}` : event.call_id;
      const text = texts[stream] ?? "";
      assert.equal(event.offset, Buffer.byteLength(text), JSON.stringify(event));
      texts[stream] = text + event.text;
    }
  }
  return [durable, texts];
}

async function kill(daemon: Linger, both: boolean): Promise<void> {
  const { keeper, pid } = await daemon.call("daemon/status");
  // A daemon takes the place of a keeper that dies before it.
  if (both) process.kill(keeper as number, "SIGSTOP");
  process.kill(pid, "SIGKILL");
  if (both) process.kill(keeper as number, "SIGKILL");
}

async function refused(attempt: Promise<unknown>, kind: string): Promise<InstanceType<typeof LingerError>> {
  const error = await attempt.then(() => undefined, (error) => error);
  assert(error instanceof LingerError, `that was no refusal: ${error}`);
  assert.equal(error.kind, kind);
  return error;
}

async function answer(session: Session, event: PermissionRequestedEvent): Promise<void> {
  await refused(session.answer({ ...event, digest: "sha256:0" }, "allow_once"), "WrongDigest");
  assert.deepEqual((await session.questions()).map((row) => row.question), [event.permission]);
  await session.answer(event, "allow_once");
  const second = await refused(session.answer(event, "reject_once"), "AlreadyAnswered");
  assert.equal(second.data.answer, "allow_once");
}

/** The events of a turn; something happens at its first delta. */
async function turn(session: Session, text: string, atFirstDelta?: () => Promise<void>): Promise<Event[]> {
  const events: Event[] = [];
  for await (const event of session.prompt(text)) {
    events.push(event);
    if (atFirstDelta && event.kind === "text_delta") {
      await atFirstDelta();
      atFirstDelta = undefined;
    }
    if (event.kind === "permission_requested") await answer(session, event);
  }
  assert.equal(events[0]?.kind, "prompt_accepted");
  assert.equal(events.at(-1)?.kind, "turn_finished");
  return events;
}

/** The last words of the model. */
function said(events: Event[]): string | undefined {
  const messages = events.filter((event) => event.kind === "message").filter((event) => event.role === "assistant");
  const block = messages.at(-1)?.content.at(-1);
  return block?.type === "text" ? block.text : undefined;
}

const daemon = await connect({ program });
const session = await daemon.create({ name: "ts" });
const seen: Notification[] = [];
const follower = (async () => {
  let finished = 0;
  for await (const it of session.attach()) {
    seen.push(it);
    if (it.event.kind === "turn_finished" && ++finished === 4) return;
  }
})();

let events = await turn(session, "one", () => kill(daemon, false));
assert.equal(said(events), "begun again: ünï✓");
assert(events.some((event) => event.kind === "message_superseded"));
events = await turn(session, "two");
assert.equal(said(events), "It said hi.");
events = await turn(session, "three", () => session.cancel());
const last = events.at(-1);
assert(last?.kind === "turn_finished" && last.stop_reason === "cancelled");
events = await turn(session, "four", () => kill(daemon, true));
assert.equal(said(events), "done");

await follower;
const again: Notification[] = [];
for await (const it of session.attach()) {
  if (it.event.kind === "caught_up") break;
  again.push(it);
}
assert.deepEqual(whole(seen), whole(again));

const kinds: string[] = [];
for await (const it of daemon.events({ sessions: [session.id], kinds: ["turn_finished"] })) {
  if (it.event.kind === "caught_up") break;
  kinds.push(it.event.kind);
}
assert.deepEqual(kinds, ["turn_finished", "turn_finished", "turn_finished", "turn_finished"]);

assert.deepEqual((await daemon.call("session/list", { matching: "ts" })).map((row) => row.session), [session.id]);
await refused(daemon.session("nosuch").info(), "UnknownSession");
await refused(daemon.call("session/list", { limit: "none" as unknown as number }), "Other");
await daemon.call("daemon/stop", { force: true });
daemon.close();
console.log("all is well");
