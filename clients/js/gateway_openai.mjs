// OpenAI's SDK against the gateway: `gateway_openai.mjs GATEWAY_URL DEGRADED_URL UPSTREAM_URL`.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { EMBEDDER, Gateway, MODEL, testsOf } from "./gateway.mjs";
import { rejection, run } from "./harness.mjs";

const gateway = new Gateway("openai-js");

function client({ project, path = "", token = gateway.token(project), retries = 2 } = {}) {
  const baseURL = `${gateway.url}${path}/v1beta/openai/`;
  return new OpenAI({ apiKey: token, baseURL, maxRetries: retries });
}

const KINDS = {
  400: OpenAI.BadRequestError,
  401: OpenAI.AuthenticationError,
  403: OpenAI.PermissionDeniedError,
  404: OpenAI.NotFoundError,
  429: OpenAI.RateLimitError,
  503: OpenAI.InternalServerError,
};

const it = {
  name: "openai for JS",
  gateway,
  // It retries twice, unless `x-should-retry` says that this is of no use.
  attemptsAtRefusal: 1,
  attemptsAtFailure: 1,

  async generate(content, { model = MODEL, ...more } = {}) {
    const messages = [{ role: "user", content }];
    const answer = await client(more).chat.completions.create({ model, messages });
    return answer.choices[0].message.content;
  },

  async *stream(content, model) {
    const messages = [{ role: "user", content }];
    const chunks = await client().chat.completions.create({ model, messages, stream: true });
    for await (const chunk of chunks) {
      const text = chunk.choices[0]?.delta?.content;
      if (text) yield text;
    }
  },

  async embed(input) {
    const answer = await client().embeddings.create({ model: EMBEDDER, input });
    return answer.data.map((of) => of.embedding);
  },

  async listModels() {
    const names = [];
    for await (const model of client().models.list()) names.push(model.id);
    return names;
  },

  kind(error, status) {
    assert.ok(error instanceof KINDS[status], error);
    assert.equal(error.status, status);
  },

  broken(error) {
    assert.ok(error instanceof OpenAI.APIError, error);
  },
};

const tests = {
  ...testsOf(it),

  async "tells codes and headers"() {
    const error = await rejection(() => it.generate("Hi", { project: "spent" }));
    assert.deepEqual([error.code, error.type], ["over_budget", "insufficient_quota"]);
    assert.equal(error.headers.get("x-should-retry"), "false");
    assert.ok(Number(error.headers.get("retry-after")) > 0);
  },
};

await run(it.name, tests);
