// The gateway through the client of OpenAI for Node.js: the client's directory, URL, TOKEN and a session's id are the arguments.
//
// Prints `all is well` at the end; a wrong answer is an exception.
import assert from "node:assert";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [place, url, token, session] = process.argv.slice(2);
const { default: OpenAI } = await import(pathToFileURL(path.join(place, "index.mjs")));
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0 });

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert(names.includes("work/m"), names.join());
assert.equal((await client.models.retrieve("work/m")).id, "work/m");

// A model alone: the caller's tools, and nothing of linger's.
const city = { type: "object", properties: { city: { type: "string" } } };
const tools = [{ type: "function", function: { name: "weather", parameters: city } }];
const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "weather in Rome?" }];
const first = await client.chat.completions.create({ model: "work/m", messages, tools });
assert.equal(first.choices[0].finish_reason, "tool_calls");
const [call] = first.choices[0].message.tool_calls;
assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ["weather", { city: "Rome" }]);
assert(first.usage.prompt_tokens > 0);
messages.push(first.choices[0].message, { role: "tool", tool_call_id: call.id, content: "sunny" });

async function streamed(params) {
  const found = { text: "", calls: [], reason: null, usage: null };
  for await (const chunk of await client.chat.completions.create({ model: "work/m", stream: true, ...params })) {
    found.usage = chunk.usage ?? found.usage;
    for (const { delta, finish_reason: reason } of chunk.choices) {
      found.text += delta.content ?? "";
      found.reason = reason ?? found.reason;
      found.calls.push(...(delta.tool_calls ?? []).flatMap((it) => it.function.name ?? []));
    }
  }
  return found;
}

const second = await streamed({ messages, tools, stream_options: { include_usage: true } });
assert.deepEqual([second.text, second.reason], ["It is sunny.", "stop"]);
assert(second.usage.total_tokens > 0);
const asked = await streamed({ messages: [{ role: "user", content: "weather in Rome?" }], tools });
assert.deepEqual(asked.calls, ["weather"]);

// Responses.
const response = await client.responses.create({ model: "work/m", input: "say hello", instructions: "Be brief." });
assert.deepEqual([response.status, response.output_text], ["completed", "hello there"]);
const events = client.responses.stream({ model: "work/m", input: "say hello" });
const kinds = [];
let text = "";
for await (const event of events) {
  kinds.push(event.type);
  if (event.type === "response.output_text.delta") text += event.delta;
}
assert.deepEqual([kinds[0], kinds.at(-1)], ["response.created", "response.completed"]);
assert.deepEqual([text, (await events.finalResponse()).output_text], ["hello there", "hello there"]);

// Structured output.
const schema = { type: "object", properties: { answer: { type: "integer" } }, required: ["answer"], additionalProperties: false };
const shaped = await client.chat.completions.create({
  model: "work/m",
  messages: [{ role: "user", content: "as json" }],
  response_format: { type: "json_schema", json_schema: { name: "a", schema, strict: true } },
});
assert.deepEqual(JSON.parse(shaped.choices[0].message.content), { answer: 42 });

// linger's loop: the model's own tools run here, and the caller gets the last word.
const run = [{ role: "user", content: "run it" }];
const agent = await client.chat.completions.create({ model: "work/m|bash", messages: run }).withResponse();
assert(agent.response.headers.get("x-linger-session"));
assert.equal(agent.data.choices[0].message.content, "The command said hi.");
assert.equal((await streamed({ model: "work/m|bash", messages: run })).text, "I look.\n\nThe command said hi.");

// linger's events between: the client's own loop skips them.
const all = { query: { events: "all" } };
const hello = [{ role: "user", content: "say hello" }];
const seen = [];
text = "";
for await (const chunk of await client.chat.completions.create({ model: "work/m|bash", messages: run, stream: true }, all)) {
  if (chunk.event) seen.push(chunk.event.kind);
  for (const { delta } of chunk.choices) text += delta.content ?? "";
}
assert.equal(text, "I look.\n\nThe command said hi.");
assert(seen.includes("tool_finished"), seen.join());
assert.equal(await client.chat.completions.stream({ model: "work/m|bash", messages: hello }, all).finalContent(), "hello there");
const mixed = client.responses.stream({ model: "work/m|bash", input: "say hello" }, all);
assert.equal((await mixed.finalResponse()).output_text, "hello there");

// A session that is there.
const bound = await client.chat.completions.create(
  { model: "work/m", messages: [{ role: "user", content: "say hello" }] },
  { headers: { "X-Linger-Session": session } },
);
assert.equal(bound.choices[0].message.content, "hello there");

async function fails(kind, words, params, through = client) {
  const request = through.chat.completions.create({ model: "work/m", messages: [{ role: "user", content: "x" }], ...params });
  await assert.rejects(request, (error) => error instanceof kind && error.message.includes(words));
}
await fails(OpenAI.BadRequestError, "tools of linger", { model: "work/m|bash", tools });
const picture = { type: "image_url", image_url: { url: "https://example.org/x.png" } };
await fails(OpenAI.BadRequestError, "data URL", { messages: [{ role: "user", content: [picture] }] });
await fails(OpenAI.BadRequestError, "unknown provider", { model: "nowhere/x" });
const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: `lng_${"x".repeat(43)}`, maxRetries: 0 });
await fails(OpenAI.AuthenticationError, "token", {}, stranger);
console.log("all is well");
