"""LiteLLM against the gateway: `gateway_litellm.py GATEWAY_URL DEGRADED_URL UPSTREAM_URL`."""

import litellm

import gateway
from gateway import EMBEDDER, MODEL

litellm.suppress_debug_info = True


class LiteLlm(gateway.Adapter):
    name = "litellm"
    gateway = gateway.Gateway("litellm")
    kinds = {
        400: litellm.BadRequestError,
        401: litellm.AuthenticationError,
        # It has no better one for Gemini's.
        403: litellm.BadRequestError,
        404: litellm.NotFoundError,
        429: litellm.RateLimitError,
        503: litellm.ServiceUnavailableError,
    }

    def options(self, project="free", path="", token=None):
        # It puts `/models/…` behind the address: the version has to stand there.
        base = f"{self.gateway.url}{path}/v1beta"
        return {"api_base": base, "api_key": token or self.gateway.token(project)}

    def generate(self, text, model=MODEL, project="free", path="", token=None):
        answer = litellm.completion(
            model=f"gemini/{model}",
            messages=[{"role": "user", "content": text}],
            **self.options(project, path, token),
        )
        return answer.choices[0].message.content

    def stream(self, text, model=MODEL):
        chunks = litellm.completion(
            model=f"gemini/{model}",
            messages=[{"role": "user", "content": text}],
            stream=True,
            **self.options(),
        )
        for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    def embed(self, texts):
        model = f"gemini/{EMBEDDER}"
        answer = litellm.embedding(model=model, input=texts, **self.options())
        return [of["embedding"] for of in answer.data]


if __name__ == "__main__":
    gateway.main(LiteLlm())
