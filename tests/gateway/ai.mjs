// The gateway through Vercel's AI SDK: the directory of the packages, URL and TOKEN are the arguments.
//
// Prints `all is well` at the end; a wrong answer is an exception.
import assert from "node:assert";
import { createRequire } from "node:module";
import path from "node:path";

const [place, url, token] = process.argv.slice(2);
const require = createRequire(path.join(place, "here.js"));
const { generateText, generateObject, streamText, tool, stepCountIs } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { createOpenAI } = require("@ai-sdk/openai");
const { z } = require("zod");

const options = { baseURL: `${url}/v1`, apiKey: token };
const compatible = createOpenAICompatible({ name: "linger", supportsStructuredOutputs: true, ...options });
const openai = createOpenAI(options);
const asked = [];
const weather = tool({
  description: "The weather in a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    asked.push(city);
    return "sunny";
  },
});
const city = z.object({ name: z.string(), sunny: z.boolean() });

for (const model of [compatible("work/m"), openai.chat("work/m"), openai("work/m"), openai("resp/m")]) {
  const more = { model, maxRetries: 0 };
  const called = await generateText({ ...more, tools: { weather }, toolChoice: "required", prompt: "the weather in Rome" });
  assert.deepEqual(called.toolCalls.map((call) => [call.toolName, call.input]), [["weather", { city: "Rome" }]]);
  const named = { type: "tool", toolName: "weather" };
  const again = await generateText({ ...more, tools: { weather }, toolChoice: named, prompt: "the weather in Rome" });
  assert.equal(again.toolCalls.length, 1);
  const { object } = await generateObject({ ...more, schema: city, prompt: "as json: Rome" });
  assert.deepEqual(object, { name: "Rome", sunny: true });
}
for (const model of [compatible("work/m"), openai.chat("work/m")]) {
  const more = { model, maxRetries: 0 };
  const loop = { ...more, tools: { weather }, stopWhen: stepCountIs(3), prompt: "the weather in Rome" };
  assert.equal((await generateText(loop)).text, "It is sunny.");
  const { text } = await generateText({ ...more, prompt: "think aloud", stopSequences: ["\nObservation:"] });
  assert.equal(text, "Action: look");
  let streamed = "";
  for await (const piece of streamText({ ...more, prompt: "think aloud", stopSequences: ["\nObservation:"] }).textStream) {
    streamed += piece;
  }
  assert.equal(streamed, "Action: look");
}
assert(asked.every((city) => city === "Rome"), asked.join());
console.log("all is well");
