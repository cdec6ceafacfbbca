"""Streamable HTTP for an MCP server on standard input and output: the program and arguments in argv. Prints its address.

Each handshake gets a process of its own, named by the session; requests without a session share one.
"""
import json, queue, subprocess, sys, threading, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Process:
    def __init__(self):
        self.child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.said = queue.Queue()
        self.lock = threading.Lock()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            self.said.put(json.loads(line))
        self.said.put(None)

    def write(self, message):
        self.child.stdin.write(json.dumps(message).encode() + b"\n")
        self.child.stdin.flush()

    def ask(self, message):
        """What the server says until it has answered."""
        with self.lock:
            self.write(message)
            while True:
                said = self.said.get()
                yield said
                if said is None or (said.get("id") == message["id"] and "method" not in said):
                    return


processes, alone = {}, Process()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=b"", headers={}):
        self.send_response(status)
        for name, text in dict({"Content-Length": str(len(body))}, **headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say(405)

    def do_DELETE(self):
        process = processes.pop(self.headers.get("mcp-session-id"), None)
        if process:
            process.child.stdin.close()
        self.say(204 if process else 404)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("mcp-session-id")
        if message.get("method") == "initialize":
            session = str(uuid.uuid4())
            processes[session] = Process()
        if session and session not in processes:
            return self.say(404)
        process = processes[session] if session else alone
        if "id" not in message or "method" not in message:
            process.write(message)
            return self.say(202)
        answers = list(process.ask(message)) if message["method"] != "tools/call" else process.ask(message)
        headers = {"mcp-session-id": session} if session else {}
        if isinstance(answers, list):
            code = (answers[-1] or {}).get("error", {}).get("code")
            status = 404 if code == -32601 else 400 if code else 200
            if message["method"] != "initialize" and session:
                status = 200
            body = json.dumps(answers[-1]).encode()
            return self.say(status, body, dict({"Content-Type": "application/json"}, **headers))
        self.send_response(200)
        for name, text in dict({"Content-Type": "text/event-stream", "Connection": "close"}, **headers).items():
            self.send_header(name, text)
        self.end_headers()
        for answer in answers:
            self.wfile.write(b"data: " + json.dumps(answer).encode() + b"\n\n")
            self.wfile.flush()
        self.close_connection = True


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("http://127.0.0.1:%d/mcp" % server.server_address[1], flush=True)
server.serve_forever()
