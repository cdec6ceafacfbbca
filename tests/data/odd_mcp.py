"""MCP servers that are odd in ways that real ones are, without an SDK: each tool is a way to answer.

Over standard input and output, or with --http at an address, which it prints. There --lost KIND says how the server refuses a session
that it does not know: 400, plain, 404, 410 or 200. With --older it speaks the transport before Streamable HTTP. Everything absent is written as null, where JSON allows it.
"""
import json, queue, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

args = sys.argv[1:]
lost = args[args.index("--lost") + 1] if "--lost" in args else "404"
lock = threading.Lock()
counted = 0
asked = {}
released = threading.Event()
sessions = set()
handshakes = 0

# A schema for each way in which providers refuse one.
SCHEMAS = {
    "count": None,
    "nulls": {"type": "object", "properties": {"a": True, "b": {"type": "array"}, "c": {"type": "Text", "enum": []}}, "required": ["a", "gone"]},
    "texterror": {"type": "object", "properties": [], "required": {}},
    "noid": {"$ref": "#/$defs/In", "$defs": {"In": {"type": "object", "properties": {"x": {"$ref": "#/$defs/Gone"}}}}},
}
NAMES = ["count", "nulls", "texterror", "noid", "nan", "pretty", "cut", "fails", "data", "ask", "wait", "release", "forget", "http500", "http429", "plain", "検", "索"]


def result(ident, value):
    return {"jsonrpc": "2.0", "id": ident, "result": value}


def text(said):
    return {"content": [{"type": "text", "text": said, "annotations": None, "_meta": None}], "isError": None, "structuredContent": None, "_meta": None}


def tools():
    of = lambda name: {"name": name, "title": None, "description": None, "inputSchema": SCHEMAS.get(name), "outputSchema": None, "annotations": [], "_meta": None}
    return [of(name) for name in NAMES]


def answer(message, say, ask):
    """What is said because of a request: JSON or a text."""
    global counted
    ident, method, params = message["id"], message["method"], message.get("params", {})
    if method == "initialize":
        capabilities = {"experimental": None, "logging": None, "prompts": None, "resources": None, "tools": {"listChanged": None}}
        info = {"name": "odd", "title": None, "version": None}
        return result(ident, {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info, "instructions": None})
    if method == "tools/list":
        # The cursor never advances.
        return result(ident, {"tools": tools(), "nextCursor": "0"})
    if method != "tools/call":
        return result(ident, {})
    name = params["name"]
    if name == "count":
        with lock:
            counted += 1
        return result(ident, text("counted %d in handshake %d" % (counted, handshakes)))
    if name == "nulls":
        odd = text("good")
        odd["content"] += [None, {"type": "image", "data": None, "mimeType": None}, {"type": "table", "rows": [1]}]
        return result(ident, odd)
    if name == "texterror":
        return {"jsonrpc": "2.0", "id": ident, "result": None, "error": "no paper"}
    if name == "noid":
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "no paper"}}
    if name == "nan":
        return '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"mean"}],"structuredContent":{"mean":NaN,"n":7}}}' % ident
    if name == "pretty":
        return json.dumps(result(float(ident), text("over lines")), indent=2)
    if name == "cut":
        return '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"cut o}' % ident
    if name == "fails":
        return result(ident, {"content": [], "isError": True})
    if name == "data":
        return {"jsonrpc": "2.0", "id": ident, "error": {"code": -32602, "message": "Invalid params", "data": {"errors": ["`at` must be a date"]}}}
    if name == "ask":
        return result(ident, text(json.dumps(ask({"message": "who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}))))
    if name == "wait":
        released.wait(60)
        return result(ident, text("waited"))
    if name == "release":
        released.set()
        return result(ident, text("released"))
    return result(ident, text(name))


def asking(say):
    def ask(params):
        with lock:
            ident = "q%d" % (len(asked) + 1)
            asked[ident] = queue.Queue()
        say({"jsonrpc": "2.0", "id": ident, "method": "elicitation/create", "params": params})
        return asked[ident].get(timeout=60)
    return ask


def heard(message):
    """Takes an answer to a question; whether it is one."""
    if "method" in message:
        return False
    asked[message["id"]].put(message.get("result", message.get("error")))
    return True


def stdio():
    def say(message):
        line = message if isinstance(message, str) else json.dumps(message)
        with lock:
            # With a byte order mark, as some consoles write it.
            sys.stdout.write("\ufeff" + line + "\n")
            sys.stdout.flush()

    def handle(message):
        say(answer(message, say, asking(say)))

    for line in sys.stdin:
        message = json.loads(line)
        if heard(message) or message.get("id") is None:
            continue
        threading.Thread(target=handle, args=(message,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body, kind="application/json", headers={}):
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in dict({"Content-Type": kind, "Content-Length": str(len(body))}, **headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if "--older" in args:
            return self.say(200, "event: endpoint\ndata: /messages?id=1\n\n", "text/event-stream")
        self.say(405, "")

    def do_DELETE(self):
        self.say(405, "")

    def refuse(self):
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: the session is not known"}}
        if lost == "400":
            return self.say(400, error)
        if lost == "plain":
            return self.say(400, "Server not initialized", "text/plain")
        if lost == "200":
            error["error"] = {"code": -32600, "message": "Server not initialized"}
            return self.say(200, error)
        return self.say(int(lost), "")

    def do_POST(self):
        global handshakes
        if "--older" in args:
            return self.say(405, "Method Not Allowed", "text/plain")
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize":
            handshakes += 1
            session = "session-%d" % handshakes
            sessions.add(session)
            return self.say(200, answer(message, None, None), headers={"Mcp-Session-Id": session})
        if session not in sessions:
            return self.refuse()
        if message.get("method") is None:
            heard(message)
            return self.say(202, "")
        if "id" not in message:
            return self.say(202, "")
        name = message.get("params", {}).get("name")
        if name == "forget":
            sessions.clear()
        if name == "http500":
            return self.say(500, {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32603, "message": "no paper"}})
        if name == "http429":
            return self.say(429, "come back later", "text/plain")
        if name == "plain":
            return self.say(200, "no paper at all", "text/plain")
        if name != "ask":
            return self.say(200, answer(message, None, None))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

        def event(said):
            self.wfile.write(("data: %s\n\n" % json.dumps(said)).encode())
            self.wfile.flush()
        event(answer(message, event, asking(event)))
        self.close_connection = True


if "--http" in args:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("http://127.0.0.1:%d/mcp" % server.server_address[1], flush=True)
    server.serve_forever()
else:
    stdio()
