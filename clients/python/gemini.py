"""Google's SDK against the simulated Gemini API: `gemini.py BASE_URL`."""

import io
import sys
import time

from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from harness import raises, run

BASE = sys.argv[1]
MODEL = "gemini-3.5-flash-lite"


def client_of(key):
    return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=BASE))


client = client_of("AQ.EXAMPLE-client-python")
other = client_of("AQ.EXAMPLE-client-other")


def generates_a_text():
    answer = client.models.generate_content(model=MODEL, contents="Say hello")
    assert answer.text.startswith("Simulated answer"), answer.text
    assert answer.text.endswith("to: Say hello"), answer.text
    assert answer.candidates[0].finish_reason == types.FinishReason.STOP
    assert answer.usage_metadata.prompt_token_count == 3
    assert answer.model_version == MODEL


def streams_the_same_text():
    whole = client.models.generate_content(model=MODEL, contents="Say hello")
    chunks = list(client.models.generate_content_stream(model=MODEL, contents="Say hello"))
    assert len(chunks) > 2
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert chunks[-1].usage_metadata.total_token_count == whole.usage_metadata.total_token_count


def shows_thoughts():
    config = types.GenerateContentConfig(
        thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=-1)
    )
    answer = client.models.generate_content(model=MODEL, contents="Think", config=config)
    assert answer.candidates[0].content.parts[0].thought
    assert answer.usage_metadata.thoughts_token_count > 0


def weather(city: str) -> dict:
    """The weather of a city."""
    return {"sky": f"blue over {city}"}


def chats_and_calls_a_function():
    chat = client.chats.create(model=MODEL, config={"tools": [weather]})
    answer = chat.send_message("How is the weather?")
    assert "weather said" in answer.text and "blue over simulated city" in answer.text, answer.text
    # Question, call, result, answer.
    assert len(chat.get_history()) == 4
    again = chat.send_message("Thanks")
    assert again.text.startswith("Simulated answer"), again.text


def refuses_a_call_without_its_signature():
    call = types.Part(function_call=types.FunctionCall(name="weather", args={}))
    result = types.Part.from_function_response(name="weather", response={})
    contents = [
        types.Content(role="user", parts=[types.Part(text="How is the weather?")]),
        types.Content(role="model", parts=[call]),
        types.Content(role="user", parts=[result]),
    ]
    ask = lambda: client.models.generate_content(model=MODEL, contents=contents)
    error = raises(errors.ClientError, ask)
    assert error.code == 400 and "thought_signature" in error.message, error


class Recipe(BaseModel):
    name: str
    minutes: int
    steps: list[str]


def answers_with_a_schema():
    config = {"response_mime_type": "application/json", "response_schema": list[Recipe]}
    answer = client.models.generate_content(model=MODEL, contents="A recipe", config=config)
    assert answer.parsed == [
        Recipe(name="simulated name", minutes=1, steps=["simulated steps"])
    ], answer.text
    config = {
        "response_mime_type": "application/json",
        "response_json_schema": Recipe.model_json_schema(),
    }
    answer = client.models.generate_content(model=MODEL, contents="A recipe", config=config)
    assert Recipe.model_validate_json(answer.text).minutes == 1


def follows_an_answer_in_parts():
    prompt = "Tell me something long and do not stop before it is at its end"
    whole = client.models.generate_content(model=MODEL, contents=prompt)
    parts = client.models.generate_content(model="gemini-4-carbon", contents=prompt)
    said = "".join(part.text for part in parts.candidates[0].content.parts)
    assert said == whole.text, (said, whole.text)
    # The input was counted again with every part.
    once = whole.usage_metadata.prompt_token_count
    assert parts.usage_metadata.prompt_token_count >= 3 * once
    chunks = client.models.generate_content_stream(model="gemini-4-carbon", contents=prompt)
    assert "".join(chunk.text or "" for chunk in chunks) == whole.text


def counts_tokens():
    assert client.models.count_tokens(model=MODEL, contents="Say hello").total_tokens == 3


def embeds_one_and_many():
    one = client.models.embed_content(model="gemini-embedding-001", contents="two")
    many = client.models.embed_content(model="gemini-embedding-001", contents=["one", "two"])
    assert len(one.embeddings) == 1 and len(many.embeddings) == 2
    assert one.embeddings[0].values == many.embeddings[1].values
    assert len(one.embeddings[0].values) == 3072
    config = types.EmbedContentConfig(output_dimensionality=8, task_type="RETRIEVAL_QUERY")
    short = client.models.embed_content(
        model="gemini-embedding-001", contents="two", config=config
    )
    assert len(short.embeddings[0].values) == 8


def packs_a_list_into_one_vector_for_the_newer_model():
    # The SDK's doing: the list becomes the parts of one content.
    lost = client.models.embed_content(model="gemini-embedding-2", contents=["one", "two"])
    assert len(lost.embeddings) == 1
    each = [types.Content(parts=[types.Part(text=text)]) for text in ["one", "two"]]
    kept = client.models.embed_content(model="gemini-embedding-2", contents=each)
    assert len(kept.embeddings) == 2


def refuses_a_batch_of_more_than_a_hundred():
    ask = lambda: client.models.embed_content(
        model="gemini-embedding-001", contents=["text"] * 101
    )
    assert "at most 100 requests" in raises(errors.ClientError, ask).message


def uploads_a_file_and_uses_it():
    # More than one chunk of the SDK's.
    data = io.BytesIO(b"line\n" * 2_000_000)
    config = types.UploadFileConfig(mime_type="text/plain", display_name="lines")
    file = client.files.upload(file=data, config=config)
    assert file.size_bytes == 10_000_000 and file.display_name == "lines", file
    for _ in range(100):
        if file.state == types.FileState.ACTIVE:
            break
        time.sleep(0.05)
        file = client.files.get(name=file.name)
    assert file.state == types.FileState.ACTIVE, file.state
    small = client.files.upload(file=io.BytesIO(b"12345678"), config=config)
    assert {file.name, small.name} <= {it.name for it in client.files.list()}
    time.sleep(0.25)
    answer = client.models.generate_content(model=MODEL, contents=["What is in it?", small])
    assert answer.usage_metadata.prompt_token_count == 4 + 2
    ask = lambda: other.models.generate_content(model=MODEL, contents=["What is it?", small])
    error = raises(errors.ClientError, ask)
    assert error.code == 403 and "You do not have permission to access the File" in error.message
    client.files.delete(name=small.name)
    assert raises(errors.ClientError, lambda: client.files.get(name=small.name)).code == 403


def caches_a_prompt_and_uses_it():
    config = types.CreateCachedContentConfig(
        contents=["word " * 2_000], ttl="60s", display_name="words"
    )
    cache = client.caches.create(model=MODEL, config=config)
    assert cache.usage_metadata.total_token_count == 2_500
    assert cache.name in {it.name for it in client.caches.list()}
    use = types.GenerateContentConfig(cached_content=cache.name)
    answer = client.models.generate_content(model=MODEL, contents="Well?", config=use)
    assert answer.usage_metadata.cached_content_token_count == 2_500
    longer = client.caches.update(
        name=cache.name, config=types.UpdateCachedContentConfig(ttl="600s")
    )
    assert longer.expire_time > cache.expire_time
    error = raises(errors.ClientError, lambda: other.caches.get(name=cache.name))
    assert error.code == 403, error
    client.caches.delete(name=cache.name)
    ask = lambda: client.models.generate_content(model=MODEL, contents="Well?", config=use)
    assert raises(errors.ClientError, ask).code == 403


def lists_models():
    names = [model.name for model in client.models.list(config={"page_size": 2})]
    assert f"models/{MODEL}" in names and len(names) == 6, names
    model = client.models.get(model=MODEL)
    assert model.input_token_limit == 1_048_576
    assert "generateContent" in model.supported_actions


def raises_what_it_should():
    spent = lambda: client.models.generate_content(model="gemini-3.8-flash", contents="Hello")
    assert spent().text
    error = raises(errors.ClientError, spent)
    assert error.code == 429 and error.status == "RESOURCE_EXHAUSTED", error
    assert "PerDay" in str(error.details)
    none = lambda: client.models.generate_content(model="gemini-3.1-pro-preview", contents="Hi")
    assert "limit: 0" in raises(errors.ClientError, none).message
    stranger = client_of("AQ.EXAMPLE-client-stranger")
    unknown = lambda: stranger.models.generate_content(model=MODEL, contents="Hello")
    assert raises(errors.ClientError, unknown).code == 400
    nothing = lambda: client.models.generate_content(model="gemini-1.0", contents="Hello")
    assert raises(errors.ClientError, nothing).code == 404


if __name__ == "__main__":
    failed = run(
        "google-genai",
        [
            generates_a_text,
            streams_the_same_text,
            shows_thoughts,
            chats_and_calls_a_function,
            refuses_a_call_without_its_signature,
            answers_with_a_schema,
            follows_an_answer_in_parts,
            counts_tokens,
            embeds_one_and_many,
            packs_a_list_into_one_vector_for_the_newer_model,
            refuses_a_batch_of_more_than_a_hundred,
            uploads_a_file_and_uses_it,
            caches_a_prompt_and_uses_it,
            lists_models,
            raises_what_it_should,
        ],
    )
    sys.exit(1 if failed else 0)
