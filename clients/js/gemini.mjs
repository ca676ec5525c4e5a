// Google's SDK against the simulated Gemini API: `gemini.mjs BASE_URL`.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { ApiError, FinishReason, GoogleGenAI } from "@google/genai";
import { run } from "./harness.mjs";

const base = process.argv[2];
const MODEL = "gemini-3.5-flash-lite";
const clientOf = (apiKey) => new GoogleGenAI({ apiKey, httpOptions: { baseUrl: base } });
const client = clientOf("AQ.EXAMPLE-client-js");
const other = clientOf("AQ.EXAMPLE-client-other");

const weather = {
  name: "weather",
  parametersJsonSchema: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
  },
};

const tests = {
  async "generates a text"() {
    const answer = await client.models.generateContent({ model: MODEL, contents: "Say hello" });
    assert.match(answer.text, /^Simulated answer .* to: Say hello$/);
    assert.equal(answer.candidates[0].finishReason, FinishReason.STOP);
    assert.equal(answer.usageMetadata.promptTokenCount, 3);
  },

  async "streams the same text"() {
    const request = { model: MODEL, contents: "Say hello" };
    const whole = await client.models.generateContent(request);
    let said = "";
    let chunks = 0;
    for await (const chunk of await client.models.generateContentStream(request)) {
      said += chunk.text;
      chunks += 1;
    }
    assert.equal(said, whole.text);
    assert.ok(chunks > 2);
  },

  async "chats and calls a function"() {
    const config = { tools: [{ functionDeclarations: [weather] }] };
    const chat = client.chats.create({ model: MODEL, config });
    const first = await chat.sendMessage({ message: "How is the weather?" });
    assert.equal(first.functionCalls[0].name, "weather");
    assert.deepEqual(first.functionCalls[0].args, { city: "simulated city" });
    const { id, name } = first.functionCalls[0];
    // The chat sends the call's signature back: without it this is refused.
    const report = { functionResponse: { id, name, response: { sky: "blue" } } };
    const second = await chat.sendMessage({ message: [report] });
    assert.ok(second.text.endsWith('weather said {"sky":"blue"}'), second.text);
  },

  async "answers with a schema"() {
    const responseJsonSchema = {
      type: "object",
      properties: { word: { type: "string" }, number: { type: "integer" } },
      required: ["word", "number"],
    };
    const config = { responseMimeType: "application/json", responseJsonSchema };
    const answer = await client.models.generateContent({
      model: MODEL,
      contents: "A word",
      config,
    });
    assert.deepEqual(JSON.parse(answer.text), { word: "simulated word", number: 1 });
  },

  async "follows an answer in parts"() {
    const contents = "Tell me something long and do not stop before it is at its end";
    const whole = await client.models.generateContent({ model: MODEL, contents });
    const parts = await client.models.generateContent({ model: "gemini-4-carbon", contents });
    const said = parts.candidates[0].content.parts.map((part) => part.text).join("");
    assert.equal(said, whole.text);
    const once = whole.usageMetadata.promptTokenCount;
    assert.ok(parts.usageMetadata.promptTokenCount >= 3 * once);
  },

  async "counts tokens"() {
    const counted = await client.models.countTokens({ model: MODEL, contents: "Say hello" });
    assert.equal(counted.totalTokens, 3);
  },

  async "embeds one and many"() {
    const model = "gemini-embedding-001";
    const one = await client.models.embedContent({ model, contents: "two" });
    const many = await client.models.embedContent({ model, contents: ["one", "two"] });
    assert.equal(many.embeddings.length, 2);
    assert.deepEqual(one.embeddings[0].values, many.embeddings[1].values);
    const config = { outputDimensionality: 8, taskType: "RETRIEVAL_QUERY" };
    const short = await client.models.embedContent({ model, contents: "two", config });
    assert.equal(short.embeddings[0].values.length, 8);
  },

  async "uploads a file and uses it"() {
    const blob = new Blob(["12345678"], { type: "text/plain" });
    const config = { mimeType: "text/plain", displayName: "digits" };
    let file = await client.files.upload({ file: blob, config });
    assert.equal(Number(file.sizeBytes), 8);
    for (let i = 0; file.state !== "ACTIVE" && i < 100; i += 1) {
      await sleep(50);
      file = await client.files.get({ name: file.name });
    }
    const parts = [{ text: "What is in it?" }, { fileData: { fileUri: file.uri } }];
    const contents = [{ role: "user", parts }];
    const answer = await client.models.generateContent({ model: MODEL, contents });
    assert.equal(answer.usageMetadata.promptTokenCount, 4 + 2);
    const foreign = other.models.generateContent({ model: MODEL, contents });
    await assert.rejects(foreign, (error) => error instanceof ApiError && error.status === 403);
    const names = [];
    for await (const it of await client.files.list()) names.push(it.name);
    assert.ok(names.includes(file.name));
    await client.files.delete({ name: file.name });
    await assert.rejects(client.files.get({ name: file.name }), { status: 403 });
  },

  async "caches a prompt and uses it"() {
    const cache = await client.caches.create({
      model: MODEL,
      config: { contents: "word ".repeat(2_000), ttl: "60s" },
    });
    assert.equal(cache.usageMetadata.totalTokenCount, 2_500);
    const config = { cachedContent: cache.name };
    const answer = await client.models.generateContent({
      model: MODEL,
      contents: "Well?",
      config,
    });
    assert.equal(answer.usageMetadata.cachedContentTokenCount, 2_500);
    await assert.rejects(other.caches.get({ name: cache.name }), { status: 403 });
    await client.caches.delete({ name: cache.name });
  },

  async "lists models"() {
    const names = [];
    const pager = await client.models.list({ config: { pageSize: 2 } });
    for await (const model of pager) names.push(model.name);
    assert.ok(names.includes(`models/${MODEL}`));
    assert.equal(names.length, 6);
  },

  async "raises what it should"() {
    const ask = () =>
      client.models.generateContent({ model: "gemini-3.8-flash", contents: "Hello" });
    assert.ok((await ask()).text);
    const spent = (error) =>
      error instanceof ApiError && error.status === 429 && error.message.includes("PerDay");
    await assert.rejects(ask(), spent);
    const stranger = clientOf("AQ.EXAMPLE-client-stranger");
    const unknown = stranger.models.generateContent({ model: MODEL, contents: "Hello" });
    await assert.rejects(unknown, { status: 400 });
  },
};

await run("@google/genai", tests);
