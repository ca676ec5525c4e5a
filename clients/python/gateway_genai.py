"""Google's SDK against the gateway: `gateway_genai.py GATEWAY_URL DEGRADED_URL UPSTREAM_URL`."""

import asyncio
import functools
import io

from google import genai
from google.genai import errors, types

import gateway
from gateway import EMBEDDER, MODEL
from harness import raises


class GoogleGenai(gateway.Adapter):
    name = "google-genai"
    gateway = gateway.Gateway("genai-python")
    kinds = {
        400: errors.ClientError,
        401: errors.ClientError,
        403: errors.ClientError,
        404: errors.ClientError,
        429: errors.ClientError,
        503: errors.ServerError,
    }
    broken = errors.APIError

    # One that nobody holds any longer closes its connections, also under an iterator that is still read.
    @functools.cache
    def made(self, url, token, api_version):
        http = types.HttpOptions(base_url=url, api_version=api_version)
        return genai.Client(api_key=token, http_options=http)

    def client(self, project="free", path="", token=None, api_version=None):
        token = token or self.gateway.token(project)
        return self.made(self.gateway.url + path, token, api_version)

    def generate(self, text, model=MODEL, project="free", path="", token=None):
        client = self.client(project, path, token)
        return client.models.generate_content(model=model, contents=text).text

    def stream(self, text, model=MODEL):
        chunks = self.client().models.generate_content_stream(model=model, contents=text)
        return (chunk.text for chunk in chunks if chunk.text)

    def embed(self, texts):
        answer = self.client().models.embed_content(model=EMBEDDER, contents=texts)
        return [of.values for of in answer.embeddings]

    def count_tokens(self, text):
        return self.client().models.count_tokens(model=MODEL, contents=text).total_tokens

    def list_models(self):
        return [model.name for model in self.client().models.list(config={"page_size": 5})]


it = GoogleGenai()


def tells_status_and_details():
    error = raises(errors.ClientError, lambda: it.generate("Hello", project="spent"))
    assert (error.code, error.status) == (429, "RESOURCE_EXHAUSTED"), error
    info = error.details["error"]["details"][0]
    assert info["reason"] == "OVER_BUDGET" and info["domain"] == "keywheel", info
    assert info["metadata"]["scope"] == "project genai-python-spent", info
    assert info["metadata"]["reset_at"].endswith("Z"), info
    assert int(error.response.headers["retry-after"]) > 0


def retries_when_it_is_told_to():
    # Its retries are off unless they are asked for, and then they heed no header.
    retry = types.HttpRetryOptions(attempts=3, initial_delay=0.01, max_delay=0.02)
    before = it.gateway.requests("spent", "over_budget")
    options = types.HttpOptions(base_url=it.gateway.url, retry_options=retry)
    client = genai.Client(api_key=it.gateway.token("spent"), http_options=options)
    ask = lambda: client.models.generate_content(model=MODEL, contents="Hello")
    raises(errors.ClientError, ask)
    assert it.gateway.requests("spent", "over_budget") - before == 3
    assert it.gateway.requests("spent", "ok") == 1


def works_with_v1beta_and_snake_case():
    client = it.client(api_version="v1beta")
    config = {"system_instruction": "Be short", "max_output_tokens": 100}
    answer = client.models.generate_content(model=MODEL, contents="Say hello", config=config)
    assert answer.text.startswith("Simulated answer"), answer.text


def uploads_a_file_and_uses_it():
    client = it.client()
    # More than one chunk of its own; after the first request its uploads show no key.
    data = io.BytesIO(b"line\n" * 2_000_000)
    config = types.UploadFileConfig(mime_type="text/plain", display_name="lines")
    file = client.files.upload(file=data, config=config)
    assert file.size_bytes == 10_000_000 and file.state == types.FileState.ACTIVE, file
    small = client.files.upload(file=io.BytesIO(b"12345678"), config=config)
    assert {file.name, small.name} <= {of.name for of in client.files.list()}
    answer = client.models.generate_content(model=MODEL, contents=["What is in it?", small])
    assert answer.usage_metadata.prompt_token_count == 4 + 2, answer
    client.files.delete(name=small.name)
    assert raises(errors.ClientError, lambda: client.files.get(name=small.name)).code == 403


def caches_a_prompt_and_uses_it():
    client = it.client()
    config = types.CreateCachedContentConfig(contents=["word " * 2_000], ttl="60s")
    cache = client.caches.create(model=MODEL, config=config)
    use = types.GenerateContentConfig(cached_content=cache.name)
    answer = client.models.generate_content(model=MODEL, contents="Well?", config=use)
    assert answer.usage_metadata.cached_content_token_count == 2_500, answer
    client.caches.delete(name=cache.name)


def is_refused_what_cannot_be_bounded():
    source = types.BatchJobSource(inlined_requests=[{"contents": "Say hello"}])
    ask = lambda: it.client().batches.create(model=MODEL, src=source)
    error = raises(errors.ClientError, ask)
    assert error.code == 400 and "UNBOUNDED_ROUTE" in str(error), error


def works_asynchronously():
    async def ask():
        client = it.client().aio
        answer = await client.models.generate_content(model=MODEL, contents="Say hello")
        assert answer.text.endswith("to: Say hello"), answer.text
        chunks = await client.models.generate_content_stream(model=MODEL, contents="Say hello")
        assert "".join([chunk.text or "" async for chunk in chunks]) == answer.text
        cut = it.gateway.failing("cut")
        said = []
        try:
            async for chunk in await client.models.generate_content_stream(
                model=cut, contents="Say hello, and then some more"
            ):
                said.append(chunk.text)
        except errors.APIError:
            assert said, "no text before the end"
        else:
            raise AssertionError("a cut stream was taken for a whole one")

    asyncio.run(ask())


if __name__ == "__main__":
    gateway.main(
        it,
        [
            tells_status_and_details,
            retries_when_it_is_told_to,
            works_with_v1beta_and_snake_case,
            uploads_a_file_and_uses_it,
            caches_a_prompt_and_uses_it,
            is_refused_what_cannot_be_bounded,
            works_asynchronously,
        ],
    )
