// Google's SDK against the gateway: `gateway_genai.mjs GATEWAY_URL DEGRADED_URL UPSTREAM_URL`.

import assert from "node:assert/strict";
import { ApiError, GoogleGenAI } from "@google/genai";
import { EMBEDDER, Gateway, MODEL, testsOf } from "./gateway.mjs";
import { rejection, run } from "./harness.mjs";

const gateway = new Gateway("genai-js");

function client({ project, path = "", token = gateway.token(project), retryOptions } = {}) {
  const httpOptions = { baseUrl: gateway.url + path, retryOptions };
  return new GoogleGenAI({ apiKey: token, httpOptions });
}

const it = {
  name: "@google/genai",
  gateway,
  // It tries once, unless it is told otherwise.
  attemptsAtRefusal: 1,
  attemptsAtFailure: 1,

  async generate(contents, { model = MODEL, ...more } = {}) {
    return (await client(more).models.generateContent({ model, contents })).text;
  },

  async *stream(contents, model) {
    const chunks = await client().models.generateContentStream({ model, contents });
    for await (const chunk of chunks) if (chunk.text) yield chunk.text;
  },

  async embed(contents) {
    const answer = await client().models.embedContent({ model: EMBEDDER, contents });
    return answer.embeddings.map((of) => of.values);
  },

  async countTokens(contents) {
    return (await client().models.countTokens({ model: MODEL, contents })).totalTokens;
  },

  async listModels() {
    const names = [];
    const pager = await client().models.list({ config: { pageSize: 5 } });
    for await (const model of pager) names.push(model.name);
    return names;
  },

  kind(error, status) {
    assert.ok(error instanceof ApiError, error);
    assert.equal(error.status, status);
  },

  broken(error) {
    assert.match(error.message, /"error":|Incomplete JSON segment/);
  },
};

const tests = {
  ...testsOf(it),

  async "tells status and details"() {
    const error = await rejection(() => it.generate("Hi", { project: "spent" }));
    const told = JSON.parse(error.message).error;
    assert.equal(told.status, "RESOURCE_EXHAUSTED");
    assert.equal(told.details[0].reason, "OVER_BUDGET");
    assert.equal(told.details[0].metadata.scope, "project genai-js-spent");
  },

  async "uploads a file and uses it"() {
    const ai = client();
    const file = new Blob(["12345678"], { type: "text/plain" });
    const { name, uri, sizeBytes } = await ai.files.upload({ file });
    assert.equal(Number(sizeBytes), 8);
    const parts = [{ text: "What is in it?" }, { fileData: { fileUri: uri } }];
    const contents = [{ role: "user", parts }];
    const answer = await ai.models.generateContent({ model: MODEL, contents });
    assert.equal(answer.usageMetadata.promptTokenCount, 4 + 2);
    await ai.files.delete({ name });
  },

  async "retries when it is told to"() {
    const before = await gateway.requests("spent", "over_budget");
    const retryOptions = { attempts: 3, initialDelay: 0.01, maxDelay: 0.02 };
    const ask = () => it.generate("Hi", { project: "spent", retryOptions });
    it.kind(await rejection(ask), 429);
    assert.equal((await gateway.requests("spent", "over_budget")) - before, 3);
    assert.equal(await gateway.requests("spent", "ok"), 1);
  },
};

await run(it.name, tests);
