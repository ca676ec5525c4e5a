"""OpenAI's SDK against the gateway: `gateway_openai.py GATEWAY_URL DEGRADED_URL UPSTREAM_URL`."""

import openai
from openai import OpenAI

import gateway
from gateway import EMBEDDER, MODEL
from harness import raises


class OpenAi(gateway.Adapter):
    name = "openai"
    gateway = gateway.Gateway("openai-python")
    kinds = {
        400: openai.BadRequestError,
        401: openai.AuthenticationError,
        403: openai.PermissionDeniedError,
        404: openai.NotFoundError,
        429: openai.RateLimitError,
        503: openai.InternalServerError,
    }
    broken = openai.APIError

    def client(self, project="free", path="", token=None):
        base = f"{self.gateway.url}{path}/v1beta/openai/"
        token = token or self.gateway.token(project)
        return OpenAI(api_key=token, base_url=base, max_retries=2 if self.retries else 0)

    def generate(self, text, model=MODEL, project="free", path="", token=None):
        ask = self.client(project, path, token).chat.completions.create
        answer = ask(model=model, messages=[{"role": "user", "content": text}])
        return answer.choices[0].message.content

    def says(self, error):
        return f"{error} {error.code}"

    def stream(self, text, model=MODEL):
        messages = [{"role": "user", "content": text}]
        ask = self.client().chat.completions.create
        for chunk in ask(model=model, messages=messages, stream=True):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    def embed(self, texts):
        answer = self.client().embeddings.create(model=EMBEDDER, input=texts)
        return [of.embedding for of in answer.data]

    def list_models(self):
        return [model.id for model in self.client().models.list()]


it = OpenAi()


def tells_codes_and_headers():
    error = raises(openai.RateLimitError, lambda: it.generate("Hello", project="spent"))
    assert (error.code, error.type) == ("over_budget", "insufficient_quota"), error
    assert error.response.headers["x-should-retry"] == "false"
    assert int(error.response.headers["retry-after"]) > 0


def reads_what_is_said_of_the_answer():
    client = it.client()
    messages = [{"role": "user", "content": "Say hello"}]
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages)
    assert raw.headers["x-keywheel-model"] == MODEL, raw.headers
    assert raw.headers["x-keywheel-key"] and raw.headers["x-keywheel-budget"], raw.headers
    assert "ratelimit" in raw.headers and "ratelimit-policy" in raw.headers


if __name__ == "__main__":
    gateway.main(it, [tells_codes_and_headers, reads_what_is_said_of_the_answer])
