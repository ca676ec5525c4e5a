"""LangChain against the gateway: `gateway_langchain.py GATEWAY_URL DEGRADED_URL UPSTREAM_URL`."""

from google.genai import errors as google
from langchain_google_genai import ChatGoogleGenerativeAI, GoogleGenerativeAIEmbeddings
from langchain_google_genai import chat_models as langchain

import gateway
from gateway import EMBEDDER, MODEL


class LangChain(gateway.Adapter):
    name = "langchain-google-genai"
    gateway = gateway.Gateway("langchain")
    kinds = {
        400: langchain.GoogleInvalidRequestError,
        401: langchain.GoogleAuthenticationError,
        403: langchain.GooglePermissionDeniedError,
        404: langchain.GoogleModelNotFoundError,
        429: langchain.GoogleRateLimitError,
        503: langchain.GoogleAPIError,
    }
    broken = google.APIError
    # Its own number is 6, which takes it half a minute; it heeds no header.
    attempts_at_refusal = attempts_at_failure = 2

    def chat(self, model=MODEL, project="free", path="", token=None, **more):
        return ChatGoogleGenerativeAI(
            model=model,
            google_api_key=token or self.gateway.token(project),
            base_url=self.gateway.url + path,
            **more,
        )

    def generate(self, text, model=MODEL, project="free", path="", token=None):
        return self.chat(model, project, path, token, max_retries=2).invoke(text).text

    def stream(self, text, model=MODEL):
        return (chunk.text for chunk in self.chat(model).stream(text) if chunk.text)

    def embed(self, texts):
        embedder = GoogleGenerativeAIEmbeddings(
            model=EMBEDDER, google_api_key=self.gateway.token(), base_url=self.gateway.url
        )
        return embedder.embed_documents(texts)

    def count_tokens(self, text):
        return self.chat().get_num_tokens(text)


if __name__ == "__main__":
    gateway.main(LangChain())
