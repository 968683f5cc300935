"""Stands in for vLLM's API server, with the standard library alone: random tokens, uniform log-probabilities.

    fake_vllm.py -c …                 prints a version, as an interpreter with vLLM does
    fake_vllm.py -m MODULE --port N   serves; FAKE_VLLM in its environment says what is wrong with it

GET /journal lists what it was asked that changes something, and the model that each completion named.
"""

import json
import os
import random
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WRONG = set(filter(None, os.environ.get("FAKE_VLLM", "").split(",")))
LORA = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"]
ROUTES = ["/v1/completions", "/collective_rpc", "/reset_prefix_cache", *LORA]
JOURNAL: list[list] = []
ADAPTERS: set[str] = set()


def completion(body):
    rng = random.Random(body.get("seed"))
    n = min(int(body["max_tokens"]), 4)
    ids = [rng.randrange(5, 50) for _ in range(n)]
    top = {str(i): -1.0 - i / (1.0 if "raw" in WRONG else body["temperature"] or 1.0) for i in range(5)}
    choice = {"index": 0, "text": "", "finish_reason": "length", "token_ids": ids, "prompt_token_ids": body["prompt"]}
    if "no ids" in WRONG:
        choice["token_ids"] = None
    choice["logprobs"] = {"token_logprobs": [-4.0] * n, "top_logprobs": [top] * n}
    return {"choices": [choice], "usage": {"completion_tokens": n}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, document, status=200):
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        base = {"id": "base", "parent": None, "max_model_len": 512, "root": "somewhere"}
        paths = [path for path in ROUTES if not ("no lora" in WRONG and path in LORA)]
        paths += ["/tokenize"] if "tokens" in WRONG else []
        documents = {
            "/health": {}, "/version": {"version": "0.0.fake"}, "/v1/models": {"data": [base]},
            "/openapi.json": {"paths": dict.fromkeys(paths)}, "/journal": JOURNAL,
        }  # fmt: skip
        self.answer(documents.get(self.path), 200 if self.path in documents else 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions":
            if body["model"] != "base" and body["model"] not in ADAPTERS:
                return self.answer({"error": {"message": f"no model {body['model']}"}}, 404)
            JOURNAL.append(["completion", body["model"]])
            if body["max_tokens"] == 13:  # an unlucky number, once
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(body["max_tokens"] / 1000)
            return self.answer(completion(body))
        if self.path == "/tokenize":
            return self.answer({"tokens": [1, 2]})
        if self.path.endswith("load_lora_adapter") and "slow" in WRONG and "-v1-" in body["lora_name"]:
            time.sleep(5)
        if self.path == LORA[0]:
            ADAPTERS.add(body["lora_name"])
        if self.path == LORA[1]:
            ADAPTERS.discard(body["lora_name"])
        JOURNAL.append([self.path, body.get("lora_name") or body.get("kwargs", {}).get("weights_path", "")])
        return self.answer({})

    def log_message(self, *_):
        pass


def main():
    if sys.argv[1] == "-c":
        print("0.0.fake")
        return
    print("(APIServer pid=7) INFO 12-01 00:00:00 [fake.py:1] starting with", *sys.argv[1:], flush=True)
    if "dies" in WRONG:
        print("(EngineCore pid=8) ERROR 12-01 00:00:00 [core.py:1] ValueError: no room for the cache", flush=True)
        print("(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above.", flush=True)
        sys.exit(3)
    if "hangs" in WRONG:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()


main()
