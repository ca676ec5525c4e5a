"""OpenAI's SDK against both OpenAI-style surfaces: `openai_style.py GEMINI_URL PROVIDER_URL`."""

import json
import sys

import openai
from openai import OpenAI
from pydantic import BaseModel

from harness import raises, run

KEY = "AQ.EXAMPLE-client-openai-python"


class Answer(BaseModel):
    word: str
    number: int


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Surface:
    """The tests that hold on both, with what differs."""

    def __init__(self, base, model, embedder, spent, prefix):
        # Retries would hide what is refused.
        self.client = OpenAI(api_key=KEY, base_url=base, max_retries=0)
        self.stranger = OpenAI(api_key="AQ.EXAMPLE-stranger", base_url=base, max_retries=0)
        self.model, self.embedder, self.spent, self.prefix = model, embedder, spent, prefix

    def ask(self, text="Say hello", **more):
        messages = more.pop("messages", [{"role": "user", "content": text}])
        model = more.pop("model", self.model)
        return self.client.chat.completions.create(model=model, messages=messages, **more)

    def generates_a_text(self):
        answer = self.ask()
        assert answer.choices[0].message.content.endswith("to: Say hello"), answer
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.prompt_tokens == 3

    def streams_the_same_text(self):
        whole = self.ask()
        options = {"include_usage": True}
        chunks = list(self.ask(stream=True, stream_options=options))
        said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(said) == whole.choices[0].message.content
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens

    def calls_a_function(self):
        messages = [{"role": "user", "content": "How is the weather?"}]
        first = self.ask(messages=messages, tools=[WEATHER]).choices[0]
        assert first.finish_reason == "tool_calls"
        call = first.message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"city": "simulated city"}
        messages.append(first.message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"sky": "blue"}'})
        second = self.ask(messages=messages, tools=[WEATHER]).choices[0]
        assert 'weather said {"sky":"blue"}' in second.message.content, second

    def answers_with_a_schema(self):
        answer = self.client.chat.completions.parse(
            model=self.model,
            messages=[{"role": "user", "content": "A word"}],
            response_format=Answer,
        )
        assert answer.choices[0].message.parsed == Answer(word="simulated word", number=1), answer

    def embeds_one_and_many(self):
        one = self.client.embeddings.create(model=self.embedder, input="two")
        many = self.client.embeddings.create(model=self.embedder, input=["one", "two"])
        assert len(many.data) == 2
        assert one.data[0].embedding == many.data[1].embedding
        plain = self.client.embeddings.create(
            model=self.embedder, input="two", dimensions=8, encoding_format="float"
        )
        assert len(plain.data[0].embedding) == 8

    def lists_models(self):
        ids = [model.id for model in self.client.models.list()]
        assert self.prefix + self.model in ids, ids
        assert self.client.models.retrieve(self.model).id == self.prefix + self.model

    def raises_when_a_day_is_spent(self):
        ask = lambda: self.ask(model=self.spent)
        assert ask().choices
        error = raises(openai.RateLimitError, ask)
        assert error.status_code == 429
        return error

    def raises_for_an_unknown_model(self):
        raises(openai.NotFoundError, lambda: self.ask(model="nothing"))

    def tests(self):
        return [
            self.generates_a_text,
            self.streams_the_same_text,
            self.calls_a_function,
            self.answers_with_a_schema,
            self.embeds_one_and_many,
            self.lists_models,
            self.raises_when_a_day_is_spent,
            self.raises_for_an_unknown_model,
            self.raises_for_an_unknown_key,
        ]


class Google(Surface):
    """Errors are in arrays, and an unknown key is a bad request."""

    def __init__(self, base):
        base += "/v1beta/openai/"
        model, embedder = "gemini-3.5-flash-lite", "gemini-embedding-001"
        super().__init__(base, model, embedder, "gemini-3.8-flash", "models/")

    def raises_for_an_unknown_key(self):
        raises(openai.BadRequestError, self.stranger.models.list)


class Provider(Surface):
    """Limits are told in headers, and errors have codes."""

    def __init__(self, base):
        names = ("example-large", "example-embedding", "example-spent", "")
        super().__init__(base + "/v1", *names)

    def raises_when_a_day_is_spent(self):
        error = super().raises_when_a_day_is_spent()
        assert error.code == "rate_limit_exceeded" and error.type == "requests", error
        assert int(error.response.headers["retry-after"]) > 0
        nothing = raises(openai.RateLimitError, lambda: self.ask(model="example-nothing"))
        assert nothing.code == "insufficient_quota", nothing

    def raises_for_an_unknown_key(self):
        error = raises(openai.AuthenticationError, self.stranger.models.list)
        assert error.code == "invalid_api_key", error

    def tells_its_limits_in_headers(self):
        messages = [{"role": "user", "content": "Say hello"}]
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=messages
        )
        assert raw.headers["x-ratelimit-limit-requests"] == "1000"
        assert int(raw.headers["x-ratelimit-remaining-tokens"]) < 1_000_000

    def tests(self):
        return [*super().tests(), self.tells_its_limits_in_headers]


if __name__ == "__main__":
    gemini, provider = sys.argv[1:]
    failed = run("openai, Google's layer", Google(gemini).tests())
    failed += run("openai, a provider", Provider(provider).tests())
    sys.exit(1 if failed else 0)
