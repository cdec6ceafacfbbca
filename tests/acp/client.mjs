// An editor made of the TypeScript SDK of ACP: a turn with a question, and a replay. Its schema checks every message.
// Arguments: the program `linger`, and the JSON Schema of ACP v1, beside which the SDK lies. Run by `it/acp.rs`.
import assert from "node:assert";
import { spawn } from "node:child_process";
import path from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [linger, schema] = process.argv.slice(2);
const sdk = path.resolve(path.dirname(schema), "../..");
const acp = await import(pathToFileURL(path.join(sdk, "dist/v1/stable/acp.js")));

const bridge = spawn(linger, ["acp"], { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(bridge.stdin), Readable.toWeb(bridge.stdout));
const asked = [];
let updates = [];
const text = (kind) =>
  updates.filter((it) => it.sessionUpdate === kind).map((it) => it.content.text).join("");

const { agent, client } = acp.methods;
await acp
  .client({ name: "editor" })
  .onRequest(client.session.requestPermission, ({ params }) => {
    asked.push(params.toolCall.title);
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onNotification(client.session.update, ({ params }) => {
    updates.push(params.update);
  })
  .connectWith(stream, async (connection) => {
    const started = await connection.request(agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
    assert.equal(started.agentInfo.name, "linger");
    const { sessionId } = await connection.request(agent.session.new, { cwd: process.cwd(), mcpServers: [] });
    const prompt = [{ type: "text", text: "go" }];
    const answer = await connection.request(agent.session.prompt, { sessionId, prompt });
    assert.equal(answer.stopReason, "end_turn");
    assert.deepEqual(asked, ["echo hi"]);
    const said = text("agent_message_chunk");
    assert.equal(said, "I look.The command said hi.");
    updates = [];
    await connection.request(agent.session.load, { sessionId, cwd: process.cwd(), mcpServers: [] });
    assert.equal(text("agent_message_chunk"), said);
    assert.equal(text("user_message_chunk"), "go");
  });
bridge.stdin.end();
await new Promise((ended) => bridge.on("exit", ended));
console.log("all is well");
