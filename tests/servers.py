#!/usr/bin/env python3
"""linger against servers that others wrote: LiteLLM's proxy, with 8 backends in 3 formats, and llama.cpp's server.

    python3 -m venv V && V/bin/pip install 'litellm[proxy]' xllamacpp gguf numpy
    V/bin/python tests/servers.py --bin target/debug [litellm] [llamacpp]

The backends behind LiteLLM are scripted here; llama.cpp runs a tiny model with random weights, made for this.
Everything stays on loopback. Ends with 1 if anything did not hold.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# The backends: the name, and LiteLLM's prefix of the model.
BACKENDS = ["openai", "mistral", "groq", "deepseek", "openrouter", "xai", "anthropic", "ollama_chat"]
KINDS = {"chat": ("openai", "/v1"), "messages": ("anthropic", ""), "responses": ("openai-responses", "/v1")}
WORDS = " ".join(f"w{n}" for n in range(50))
# What is asked, and what is answered in the end.
CASES = {"text": "good day", "rounds": "3 rounds are over", "parallel": "4 calls are over", "words": WORDS}


def answer(case, results):
    """The script: calls (names and arguments) and text, after so many results of tools."""
    bash = lambda n: ("bash", {"command": f"echo call-{n}"})
    if case == "rounds" and results < 3:
        return [bash(results)], ""
    if case == "parallel" and results < 4:
        return [bash(n) for n in range(4)], ""
    return [], CASES[case]


def texts(value):
    """All strings within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


class Backend(BaseHTTPRequestHandler):
    """Answers Chat Completions, Responses, Messages and Ollama's format from the script."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply({"object": "list", "data": [], "models": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = self.path.split("?")[0]
        if path.endswith("/api/show"):
            return self.reply({"model_info": {"llama.context_length": 32768}, "capabilities": ["tools"], "details": {}})
        messages = body.get("messages") or body.get("input") or []
        messages = messages if isinstance(messages, list) else [{"role": "user", "content": messages}]
        case = next((case for case in CASES for text in texts(messages) if f"CASE {case}." in text), "text")
        results = sum(
            message.get("role") == "tool"
            or message.get("type") == "function_call_output"
            or sum(isinstance(block, dict) and block.get("type") == "tool_result" for block in message["content"])
            for message in messages
            if message.get("role") == "tool"
            or message.get("type") == "function_call_output"
            or isinstance(message.get("content"), list)
        )
        calls, text = answer(case, results)
        stream = body.get("stream", path.endswith("/api/chat"))
        if path.endswith("/responses"):
            self.items(calls, text, stream)
        elif path.endswith("/messages"):
            self.messages(calls, text, stream)
        elif path.endswith("/api/chat"):
            self.ollama(calls, text, stream)
        else:
            self.chat(calls, text, stream)

    def reply(self, value, kind="application/json"):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self, events, named=False):
        head = lambda event: f"event: {event['type']}\n" if named and isinstance(event, dict) else ""
        data = lambda event: event if isinstance(event, str) else json.dumps(event)
        self.reply("".join(f"{head(e)}data: {data(e)}\n\n" for e in events).encode(), "text/event-stream")

    def chat(self, calls, text, stream):
        usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
        call = lambda n, c: {
            "index": n,
            "id": f"call{n:05}",
            "type": "function",
            "function": {"name": c[0], "arguments": json.dumps(c[1])},
        }
        listed = [call(n, c) for n, c in enumerate(calls)]
        reason = "tool_calls" if calls else "stop"
        base = {"id": "x", "created": 1, "model": "m"}
        if not stream:
            message = {"role": "assistant", "content": text or None, **({"tool_calls": listed} if calls else {})}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.reply({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = lambda delta, end=None: {
            **base,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
        }
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
        deltas = [{"role": "assistant", "content": ""}] + [{"content": piece} for piece in pieces]
        deltas += [{"tool_calls": [one]} for one in listed]
        last = {**base, "object": "chat.completion.chunk", "choices": [], "usage": usage}
        self.events([chunk(delta) for delta in deltas] + [chunk({}, reason), last, "[DONE]"])

    def messages(self, calls, text, stream):
        usage = {"input_tokens": 100, "output_tokens": 50}
        use = lambda n, c, arguments: {"type": "tool_use", "id": f"toolu_{n:05}", "name": c[0], "input": arguments}
        reason = "tool_use" if calls else "end_turn"
        base = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
        if not stream:
            content = [{"type": "text", "text": text}] if text else []
            content += [use(n, c, c[1]) for n, c in enumerate(calls)]
            return self.reply({**base, "content": content, "stop_reason": reason, "usage": usage})
        start = {**base, "content": [], "stop_reason": None, "usage": usage}
        events = [{"type": "message_start", "message": start}]
        blocks = [({"type": "text", "text": ""}, [{"type": "text_delta", "text": text}])] if text else []
        for n, c in enumerate(calls):
            blocks.append((use(n, c, {}), [{"type": "input_json_delta", "partial_json": json.dumps(c[1])}]))
        for index, (block, deltas) in enumerate(blocks):
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        delta = {"stop_reason": reason, "stop_sequence": None}
        events += [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]
        self.events(events, named=True)

    def items(self, calls, text, stream):
        part = {"type": "output_text", "text": text, "annotations": []}
        said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        call = lambda n, c: {
            "type": "function_call",
            "id": f"fc_{n}",
            "call_id": f"call{n:05}",
            "name": c[0],
            "arguments": json.dumps(c[1]),
            "status": "completed",
        }
        items = ([said] if text else []) + [call(n, c) for n, c in enumerate(calls)]
        usage = {
            "input_tokens": 100,
            "output_tokens": 50,
            "total_tokens": 150,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        whole = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "m",
            "status": "completed",
            "output": items,
            "usage": usage,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1,
            "top_p": 1,
        }
        if not stream:
            return self.reply(whole)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        events = [{"type": "response.created", "response": begun}]
        for index, item in enumerate(items):
            empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
            at = {"output_index": index, "item_id": item["id"]}
            events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, **empty}})
            if item["type"] == "message":
                where = {**at, "content_index": 0}
                events.append({"type": "response.content_part.added", **where, "part": {**part, "text": ""}})
                events.append({"type": "response.output_text.delta", **where, "delta": text, "logprobs": []})
                events.append({"type": "response.output_text.done", **where, "text": text, "logprobs": []})
                events.append({"type": "response.content_part.done", **where, "part": part})
            else:
                given = item["arguments"]
                events.append({"type": "response.function_call_arguments.delta", **at, "delta": given})
                events.append({"type": "response.function_call_arguments.done", **at, "arguments": given, "name": item["name"]})
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        events.append({"type": "response.completed", "response": whole})
        self.events([{**event, "sequence_number": n} for n, event in enumerate(events)], named=True)

    def ollama(self, calls, text, stream):
        message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [{"function": {"name": name, "arguments": given}} for name, given in calls]
        done = {"done": True, "done_reason": "stop", "prompt_eval_count": 100, "eval_count": 50}
        base = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
        if not stream:
            return self.reply({**base, "message": message, **done})
        last = {**base, "message": {"role": "assistant", "content": ""}, **done}
        lines = [{**base, "message": message, "done": False}, last]
        self.reply("".join(json.dumps(line) + "\n" for line in lines).encode(), "application/x-ndjson")


def free_port():
    with ThreadingHTTPServer(("127.0.0.1", 0), Backend) as server:
        return server.server_address[1]


def wait_for(url, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            return urllib.request.urlopen(url, timeout=2).read()
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"{url} does not answer")


class World:
    """linger with directories of its own."""

    def __init__(self, bin, config):
        self.root = Path(tempfile.mkdtemp(prefix="linger-servers-"))
        self.bin = Path(bin).resolve()
        (self.root / "config/linger").mkdir(parents=True)
        (self.root / "work").mkdir()
        (self.root / "config/linger/config.toml").write_text(config)
        os.chmod(self.root / "config/linger/config.toml", 0o600)
        xdg = {f"XDG_{name.upper()}_HOME": str(self.root / name) for name in ("config", "data", "state")}
        self.env = {"HOME": str(self.root), "PATH": f"{self.bin}:{os.environ['PATH']}", **xdg}

    def linger(self, *args, timeout=120):
        run = subprocess.run(
            [self.bin / "linger", *args],
            cwd=self.root / "work",
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return run.returncode, run.stdout.strip(), run.stderr.strip()

    def close(self):
        self.linger("daemon", "stop", "--force")
        shutil.rmtree(self.root, ignore_errors=True)


def litellm(bin):
    """Each backend, format and case: the answer that linger prints is the script's."""
    backend = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=backend.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{backend.server_address[1]}"
    base = lambda name: at if name in ("anthropic", "ollama_chat") else f"{at}/v1"
    rows = [
        {"model_name": name, "litellm_params": {"model": f"{name}/m", "api_base": base(name), "api_key": "k"}}
        for name in BACKENDS
    ]
    port = free_port()
    config = "".join(
        f'[providers.{name}]\nkind = "{kind}"\nbase_url = "http://127.0.0.1:{port}{path}"\n'
        for name, (kind, path) in KINDS.items()
    )
    world = World(bin, config)
    settings = world.root / "litellm.json"
    settings.write_text(json.dumps({"model_list": rows, "litellm_settings": {"num_retries": 0}}))
    program = Path(sys.executable).parent / "litellm"
    # Only loopback reaches it.
    env = {**world.env, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    env["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
    log = open(world.root / "litellm.log", "w")
    command = [program, "--config", settings, "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    proxy = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    failed = []
    try:
        wait_for(f"http://127.0.0.1:{port}/health/liveliness", 180)
        for name in BACKENDS:
            for kind in KINDS:
                for case, expect in CASES.items():
                    rc, out, err = world.linger("run", "-m", f"{kind}/{name}", "--mode", "auto", f"CASE {case}.")
                    good = rc == 0 and out == expect
                    mark = "ok" if good else "FAILED"
                    print(f"{mark:9} {name} {kind} {case}" + ("" if good else f": {rc} {out!r} {err[-300:]!r}"), flush=True)
                    failed += [] if good else [(name, kind, case)]
    finally:
        proxy.terminate()
        world.close()
        backend.shutdown()
    total = len(BACKENDS) * len(KINDS) * len(CASES)
    print(f"litellm: {total - len(failed)} of {total}")
    return not failed


def tiny_model(path):
    """A model of one layer with random weights and a vocabulary of bytes."""
    import gguf
    import numpy

    width, heads, hidden = 32, 2, 64
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["▁"]
    control, unknown, byte, normal = 3, 2, 6, 1
    types = [unknown, control, control] + [byte] * 256 + [normal]
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(4096)
    out.add_embedding_length(width)
    out.add_block_count(1)
    out.add_feed_forward_length(hidden)
    out.add_head_count(heads)
    out.add_head_count_kv(heads)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(width // heads)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * len(tokens))
    out.add_token_types(types)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_chat_template(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )
    random = numpy.random.default_rng(7)
    weights = lambda *shape: random.normal(0, 0.1, shape).astype(numpy.float32)
    out.add_tensor("token_embd.weight", weights(len(tokens), width))
    out.add_tensor("output_norm.weight", numpy.ones(width, numpy.float32))
    out.add_tensor("output.weight", weights(len(tokens), width))
    for name in ("attn_norm", "ffn_norm"):
        out.add_tensor(f"blk.0.{name}.weight", numpy.ones(width, numpy.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        out.add_tensor(f"blk.0.{name}.weight", weights(width, width))
    out.add_tensor("blk.0.ffn_gate.weight", weights(hidden, width))
    out.add_tensor("blk.0.ffn_up.weight", weights(hidden, width))
    out.add_tensor("blk.0.ffn_down.weight", weights(width, hidden))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


SERVER = """
import sys, time, xllamacpp as xlc
params = xlc.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.n_predict, params.warmup = 16384, 1, 24, False
params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[2])
server = xlc.Server(params)
print(server.listening_address, flush=True)
while True:
    time.sleep(60)
"""


def llamacpp(bin):
    """Two turns in each format: noise, but no refused request, and the window that the server has room for."""
    port, good = free_port(), True
    config = "".join(
        f'[providers.{name}]\nkind = "{kind}"\nbase_url = "http://127.0.0.1:{port}{path}"\nmax_tokens = 24\n'
        for name, (kind, path) in KINDS.items()
    )
    world = World(bin, config)
    model = world.root / "tiny.gguf"
    tiny_model(str(model))
    log = open(world.root / "llamacpp.log", "w")
    server = subprocess.Popen([sys.executable, "-c", SERVER, model, str(port)], env=world.env, stdout=log, stderr=log)
    try:
        listed = json.loads(wait_for(f"http://127.0.0.1:{port}/v1/models", 120))
        name = listed["data"][0]["id"]
        for kind in KINDS:
            world.linger("new", "--name", f"s-{kind}", "-m", f"{kind}/{name}")
            turns = [world.linger("run", "--json", "-s", f"s-{kind}", f"turn {n}") for n in range(2)]
            for n, (rc, out, err) in enumerate(turns):
                ended = [json.loads(line) for line in out.splitlines() if '"turn_finished"' in line]
                event = ended[-1].get("event", ended[-1]) if ended else {}
                # A model that writes noise rarely stops by itself.
                fine = event.get("stop_reason") in ("end_turn", "max_tokens") and event.get("context_window") == 4096
                good &= fine
                print(f"{'ok' if fine else 'FAILED':9} llama.cpp {kind} turn {n}: {event.get('stop_reason')}, window "
                      f"{event.get('context_window')}" + ("" if fine else f" {rc} {out[-300:]!r} {err[-300:]!r}"), flush=True)
    finally:
        server.terminate()
        world.close()
    print(f"llama.cpp: {'all' if good else 'not all'} turns")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="where linger and lingerd are")
    parser.add_argument("servers", nargs="*", default=["litellm", "llamacpp"])
    args = parser.parse_args()
    results = [{"litellm": litellm, "llamacpp": llamacpp}[name](args.bin) for name in args.servers]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
