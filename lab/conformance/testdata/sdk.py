"""Asks model servers for a long answer by a client library: sdk.py KIND, and a URL on each line of standard input

Prints of each "begun" when some words have come, at last what the user's code has got: a line of JSON.
"""

import asyncio
import json
import logging
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch it
kind, url = sys.argv[1], ""
h2 = {"http1": False, "http2": True} if kind.endswith("-h2") else {}  # for the SDK's httpx client; prior knowledge
kind = kind.removesuffix("-h2")
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # libraries print what they like
question = [{"role": "user", "content": "?"}]
words, got = 0, {}


def said(text):
    """Counts the words of a piece of the answer."""
    global words
    before, words = words, words + len(str(text or "").split())
    if before < 5 <= words:
        print("begun", file=out, flush=True)


def openai_chat():
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0, http_client=openai.DefaultHttpxClient(**h2))
    for chunk in client.chat.completions.create(model="fake", messages=question, stream=True):
        said(chunk.choices[0].delta.content)
        got["end"] = chunk.choices[0].finish_reason


def openai_responses():
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0, http_client=openai.DefaultHttpxClient(**h2))
    for event in client.responses.create(model="fake", input="?", stream=True):
        if event.type == "response.output_text.delta":
            said(event.delta)
        got["end"] = event.type


def anthropic():
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0, http_client=anthropic.DefaultHttpxClient(**h2))
    with client.messages.stream(model="fake", max_tokens=100, messages=question) as stream:
        for text in stream.text_stream:
            said(text)
        got["end"] = stream.get_final_message().stop_reason


def gemini():
    from google import genai

    client = genai.Client(api_key="x", http_options={"base_url": url, "client_args": h2})
    for chunk in client.models.generate_content_stream(model="fake", contents="?"):
        said(chunk.text)
        reason = chunk.candidates[0].finish_reason
        got["end"] = reason and reason.value


def ollama():
    import ollama

    for part in ollama.Client(host=url, **h2).chat(model="fake", messages=question, stream=True):
        said(part.message.content)
        got["end"] = part.done_reason


def litellm(model, base):
    def ask():
        import litellm

        logging.disable(logging.CRITICAL)
        for chunk in litellm.completion(model=model, api_base=url + base, api_key="x", messages=question, stream=True, num_retries=0, max_retries=0):
            said(chunk.choices[0].delta.content)
            got["end"] = chunk.choices[0].finish_reason

    return ask


def langchain(make):
    def ask():
        for chunk in make().stream("?"):
            said(chunk.content if isinstance(chunk.content, str) else "".join(b.get("text", "") for b in chunk.content))
            got["end"] = chunk.response_metadata.get("finish_reason") or chunk.response_metadata.get("stop_reason") or got["end"]

    return ask


def langchain_openai():
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="fake", base_url=url + "/v1", api_key="x", max_retries=0)


def langchain_anthropic():
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model="fake", base_url=url, api_key="x", max_retries=0)


def mcp(tool):
    async def call():
        from mcp import ClientSession
        from mcp.client.streamable_http import streamable_http_client

        heard = asyncio.Event()

        async def on_progress(progress, total, message):
            said("word")

        async def on_log(params):
            if "young" in str(params.data):
                heard.set()

        async with streamable_http_client(url + "/mcp") as streams:
            async with ClientSession(streams[0], streams[1], logging_callback=on_log) as session:
                await session.initialize()
                result = await session.call_tool(tool, {}, progress_callback=on_progress)
                got["end"] = result.content[0].text
                await asyncio.wait_for(heard.wait(), 20)

    return lambda: asyncio.run(call())


kinds = {
    "openai": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "ollama": ollama,
    "litellm-openai": litellm("openai/fake", "/v1"),
    "litellm-anthropic": litellm("anthropic/fake", ""),
    "litellm-ollama": litellm("ollama_chat/fake", ""),
    "langchain-openai": langchain(langchain_openai),
    "langchain-anthropic": langchain(langchain_anthropic),
    "mcp": mcp("plain"),
    "mcp-resumable": mcp("resumable"),
}


def cause(e):
    """The first of a group, as asyncio's task groups raise them."""
    return cause(e.exceptions[0]) if isinstance(e, BaseExceptionGroup) else e


for line in sys.stdin:
    url, words, got = line.strip(), 0, {"words": 0, "error": None, "end": None}
    try:
        kinds[kind]()
    except Exception as raised:
        e = cause(raised)
        got["error"] = f"{type(e).__module__}.{type(e).__name__}: {e}"
    got["words"] = words
    print(json.dumps(got), file=out, flush=True)
