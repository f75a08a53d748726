"""What Weights & Biases' own program sends of an offline run, to a double of their server:

    wandb_peer.py OFFLINE-RUN METRICS    (each step of METRICS must arrive once, its newest figures)
"""
import gzip
import http.server
import json
import os
import re
import subprocess
import sys
import threading

bucket = {"id": "b", "name": "n", "displayName": "n", "sweepName": None, "historyLineCount": 0,
          "config": "{}", "project": {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}}}
streamed, asked, bodies = {}, [], []


def answer(query, variables):
    asked.append(re.search(r"\b(query|mutation)\s+(\w+)", query)[2])
    if "upsertBucket" in query:
        bucket["name"] = variables.get("name") or bucket["name"]
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}
    if "createRunFiles" in query:
        return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": [
            {"name": name, "uploadUrl": f"http://127.0.0.1:{port}/put/{name}"}
            for name in variables["files"]]}}
    if "viewer" in query:
        return {"viewer": {"id": "u", "entity": "e", "username": "u", "email": "u@example.org", "flags": "{}",
                           "teams": {"edges": []}}}
    if "serverInfo" in query:
        return {"serverInfo": {"cliVersionInfo": {}, "latestLocalVersionInfo": None, "features": []}}
    return {}


class Server(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        said = {}
        bodies.append(body.decode())
        if "graphql" in self.path:
            sent = json.loads(body)
            said = {"data": answer(sent["query"], sent.get("variables") or {})}
        elif "file_stream" in self.path:
            for name, part in (json.loads(body).get("files") or {}).items():
                lines = streamed.setdefault(name, {})
                lines.update(enumerate(part["content"], part["offset"]))
        text = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = reply


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
port = server.server_address[1]
threading.Thread(target=server.serve_forever, daemon=True).start()
environment = dict(os.environ, WANDB_BASE_URL=f"http://127.0.0.1:{port}", WANDB_API_KEY="0" * 40,
                   WANDB_ERROR_REPORTING="false")
done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "wandb"), "sync", sys.argv[1]],
                      env=environment, capture_output=True, text=True, timeout=300)
print(done.stdout, done.stderr, asked, sep="\n")
assert done.returncode == 0
got = [json.loads(line) for _, line in sorted(streamed["wandb-history.jsonl"].items())]
want = {}
for line in open(sys.argv[2], encoding="utf-8"):
    record = json.loads(line)
    want = {step: kept for step, kept in want.items() if step < record["step"]}
    want[record["step"]] = record
assert [row["_step"] for row in got] == list(want), [row["_step"] for row in got]
for row in got:
    for key in ("loss", "lr", "tokens", "train/loss_tokens"):
        assert row[key] == want[row["_step"]][key], (row, key)
assert any("eval/loss" in row for row in got)
assert any('\\"model.n_layers\\"' in body for body in bodies), "settings"
assert not any("a-token" in body for body in bodies), "a hook's command"
print(len(got), "steps")
