"""A scripted MCP server for the tests: each tool is a way to behave, good or bad.

With --http it is a server at an address, which it prints. Arguments: --starts FILE gets a line for each start; --fail ends at once; --mute never answers; --mute-if FILE does so where FILE is; --noise writes what is no
message; --modern knows no handshake; --many N has N more tools, many0 and so on. It speaks MCP 2025-11-25 over standard input and output.
"""
import json, os, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

args = sys.argv[1:]
if "--starts" in args:
    with open(args[args.index("--starts") + 1], "a") as file:
        file.write("%d %s\n" % (os.getpid(), os.getcwd()))
if "--fail" in args:
    sys.exit("no luck today")

mute = "--mute" in args or "--mute-if" in args and os.path.exists(args[args.index("--mute-if") + 1])
extra = ["many%d" % n for n in range(int(args[args.index("--many") + 1]))] if "--many" in args else []
asked = 0
cancelled = []
NAMES = ["echo", "env", "roots", "progress", "hang", "crash", "flood", "grow", "image", "big", "fail", "ask", "cancelled", "child", "reword", "link"]
about = "The tool %s."


# Where a thread writes, if not to standard output.
here = threading.local()


def send(message):
    text = json.dumps(dict(message, jsonrpc="2.0"))
    if hasattr(here, "stream"):
        here.stream.write(("event: message\ndata: %s\n\n" % text).encode())
        here.stream.flush()
        return
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# What came while something else was waited for.
backlog = []


def next_message():
    return backlog.pop(0) if backlog else read()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def request(method, params):
    """Asks the client, and gives its answer."""
    global asked
    asked += 1
    send({"id": "s%d" % asked, "method": method, "params": params})
    while True:
        message = read()
        if message.get("id") == "s%d" % asked and "method" not in message:
            return message.get("result", message.get("error"))
        backlog.append(message)


def tools():
    # As long as that of a real tool.
    said = {"type": "string", "description": "What it says. " * 60}
    many = {"type": "object", "properties": {"text": said}}
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    hint = {"readOnlyHint": True}
    names = [name for name in NAMES if name not in args] + extra
    return [{"name": name, "description": about % name, "inputSchema": many if name.startswith("many") else schema, "annotations": hint} for name in names]


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def call(name, given, token):
    if name == "echo":
        return text(given.get("text", ""))
    if name == "env":
        return text(json.dumps(dict(os.environ, cwd=os.getcwd())))
    if name == "roots":
        return text(json.dumps(request("roots/list", {})))
    if name == "progress":
        for n in range(1, 4):
            progress = {"progressToken": token, "progress": n, "total": 3, "message": "part %d" % n}
            send({"method": "notifications/progress", "params": progress})
            time.sleep(0.3)
        return text("all parts")
    if name == "hang":
        while True:
            message = read()
            if message.get("method") == "notifications/cancelled":
                cancelled.append(message["params"]["requestId"])
                return None
            backlog.append(message)
    if name == "crash":
        sys.stderr.write("about to crash\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    if name == "grow":
        extra.append("grown%d" % (len(extra) + 1))
        send({"method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "reword":
        global about
        about = "The tool %s does something else."
        send({"method": "notifications/tools/list_changed"})
        return text("reworded")
    if name == "image":
        return {"content": [{"type": "image", "data": "iVBORw0KGgoA", "mimeType": "image/png"}]}
    if name == "big":
        return text("".join("line %d\n" % n for n in range(20000)))
    if name == "fail":
        return dict(text("it did not work"), isError=True)
    if name == "ask":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return text(json.dumps(request("elicitation/create", {"message": "Who are you?", "requestedSchema": schema})))
    if name == "link":
        link = {"type": "resource_link", "uri": "note:///one", "name": "one", "description": "The first note."}
        return {"content": [{"type": "text", "text": "see"}, link]}
    if name == "cancelled":
        return text(json.dumps(cancelled))
    if name == "child":
        child = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        return text(str(child.pid))
    return text("a new tool: %s" % name)


def answer(message):
    """The answer to a request; nothing if it gets none."""
    method, ident, params = message.get("method"), message.get("id"), message.get("params", {})
    if "--modern" in args:
        return modern(method, ident, params)
    return classic(method, ident, params)


def modern(method, ident, params):
    """Without a handshake: each request says what it speaks, and a call may want input first."""
    meta = params.get("_meta", {})
    if method == "initialize":
        data = {"supported": ["2026-07-28"]}
        return {"id": ident, "error": {"code": -32022, "message": "no handshake", "data": data}}
    if meta.get("io.modelcontextprotocol/protocolVersion") != "2026-07-28":
        return {"id": ident, "error": {"code": -32602, "message": "no version"}}
    if "elicitation" not in meta.get("io.modelcontextprotocol/clientCapabilities", {}):
        return {"id": ident, "error": {"code": -32021, "message": "no capabilities"}}
    if method == "server/discover":
        info = {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "2"}}
        capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
        result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": info}
    elif method == "subscriptions/listen":
        return None
    elif method == "tools/call" and params["name"] == "ask" and "inputResponses" not in params:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        form = {"mode": "form", "message": "Who are you?", "requestedSchema": schema}
        wanted = {"who": {"method": "elicitation/create", "params": form}, "where": {"method": "roots/list"}}
        return {"id": ident, "result": {"resultType": "input_required", "inputRequests": wanted, "requestState": "s7"}}
    elif method == "tools/call" and params["name"] == "ask":
        result = text(json.dumps([params["requestState"], params["inputResponses"]["who"], len(params["inputResponses"])]))
    else:
        answered = classic(method, ident, params)
        if answered is None or "error" in answered:
            return answered
        result = answered["result"]
    return {"id": ident, "result": dict(result, resultType="complete")}


def classic(method, ident, params):
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}}
        info = {"name": "scripted", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": tools()}
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments", {}), params.get("_meta", {}).get("progressToken"))
        if result is None:
            return None
    elif method == "resources/list":
        result = {"resources": [{"uri": "note:///one", "name": "one", "description": "The first note."}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": [{"uriTemplate": "note:///{name}", "name": "notes"}]}
    elif method == "resources/read":
        if params["uri"] != "note:///one":
            return {"id": ident, "error": {"code": -32002, "message": "no such note"}}
        result = {"contents": [{"uri": params["uri"], "text": "the text of note one"}]}
    elif method == "prompts/list":
        given = [{"name": "what", "required": True}, {"name": "how"}]
        result = {"prompts": [{"name": "review", "description": "Reviews something.", "arguments": given}]}
    elif method == "prompts/get":
        said = "review: %s" % json.dumps(params["arguments"], sort_keys=True)
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    elif method == "ping":
        result = {}
    else:
        return {"id": ident, "error": {"code": -32601, "message": "unknown method"}}
    return {"id": ident, "result": result}


def serve():
    while True:
        message = next_message()
        if mute:
            continue
        if message.get("method") == "notifications/cancelled":
            cancelled.append(message["params"]["requestId"])
        if message.get("id") is None:
            continue
        if "--noise" in args:
            sys.stdout.write("Server is ready!\n\n")
        answered = answer(message)
        if answered is not None:
            send(answered)


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP: calls are answered by a stream, the rest by JSON. A connection has a name, and all wants a token."""

    def log_message(self, *_):
        pass

    def head(self, status, kind=None, more={}):
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self):
        self.head(405)

    def do_DELETE(self):
        if self.headers["Mcp-Session-Id"] not in connections:
            return self.head(404)
        connections.remove(self.headers["Mcp-Session-Id"])
        self.head(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message.get("method")
        if self.headers.get("Authorization") != "Bearer open-sesame":
            self.head(401, "text/plain")
            self.wfile.write(b"who are you?")
            return
        if method != "initialize":
            if self.headers.get("Mcp-Session-Id") not in connections:
                return self.head(404)
            if method != "notifications/initialized" and self.headers.get("MCP-Protocol-Version") != "2025-11-25":
                return self.head(400)
        if message.get("id") is None:
            if method == "notifications/cancelled":
                cancelled.append(message["params"]["requestId"])
            return self.head(202)
        if method == "tools/call":
            if message["params"]["name"] == "forget":
                connections.clear()
                return self.head(404)
            if message["params"]["name"] == "cut":
                return self.head(200, "text/event-stream")
            if message["params"]["name"] == "connections":
                self.head(200, "application/json")
                result = text(" ".join(connections))
                return self.wfile.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
            self.head(200, "text/event-stream")
            self.wfile.write(b"id: 1\ndata:\n\n")
            here.stream = self.wfile
            send(answer(message))
            del here.stream
            return
        more = {}
        if method == "initialize":
            connections.append("connection-%d" % len(starts))
            starts.append(1)
            more = {"Mcp-Session-Id": connections[-1]}
        self.head(200, "application/json", more)
        self.wfile.write(json.dumps(dict(answer(message), jsonrpc="2.0")).encode())


if "--http" in args:
    connections, starts = [], []
    NAMES += ["forget", "cut", "connections"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("http://127.0.0.1:%d/mcp" % server.server_port, flush=True)
    server.serve_forever()
serve()
