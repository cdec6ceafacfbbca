"""A scripted MCP server that wants a login, and its authorization server, at one address, which it prints.

Tokens end at once where --short is given, so each is renewed before its use. A GET of /revoke makes every token invalid.
With --secret KIND each client gets a secret, and has to prove itself so: `post`, `basic`, `both` (Basic, with `client_id` in the form
too, as the official Python SDK wants it), or `either` (by the method of its registration). What is absent is `null` there.
"""
import base64, hashlib, json, sys, urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

short = "--short" in sys.argv
secret = sys.argv[sys.argv.index("--secret") + 1] if "--secret" in sys.argv else None
METHODS = {"post": ["client_secret_post"], "basic": ["client_secret_basic"], "both": ["client_secret_basic"], "either": ["client_secret_post", "client_secret_basic"]}
registered = {}
codes, access, refresh = {}, set(), set()
count = 0


def tokens():
    global count
    count += 1
    access.add("access-token-%d" % count)
    refresh.add("refresh-token-%d" % count)
    return {
        "access_token": "access-token-%d" % count,
        "refresh_token": "refresh-token-%d" % count,
        "token_type": "Bearer",
        "expires_in": 1 if short else 3600,
    }


def proves(form, header):
    """Whether a client proves itself as --secret wants it."""
    basic = base64.b64encode(b"client-1:secret%201").decode()
    in_header, in_form = header == "Basic " + basic, form.get("client_secret") == "secret 1"
    has_id = form.get("client_id") == "client-1"
    kind = secret if secret != "either" else {"client_secret_post": "post", "client_secret_basic": "both"}[registered["token_endpoint_auth_method"]]
    if kind == "post":
        return has_id and in_form and not header
    return in_header and not in_form and has_id == (kind == "both")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, value=None, headers={}):
        body = json.dumps(value).encode() if value is not None else b""
        self.send_response(status)
        for name, text in dict({"Content-Type": "application/json", "Content-Length": str(len(body))}, **headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/metadata":
            return self.say(200, {"resource": base + "/mcp", "authorization_servers": [base + "/as"], "scopes_supported": ["tools"]})
        if url.path == "/.well-known/oauth-authorization-server/as":
            return self.say(200, {
                "issuer": base + "/as",
                "authorization_endpoint": base + "/authorize",
                "token_endpoint": base + "/token",
                "registration_endpoint": base + "/register",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                **({"token_endpoint_auth_methods_supported": METHODS[secret], "scopes_supported": None} if secret else {}),
            })
        if url.path == "/authorize":
            assert query["resource"] == base + "/mcp" and query["code_challenge_method"] == "S256" and query["scope"] == "tools"
            codes["code/1"] = query
            back = {"code": "code/1", "state": query["state"], "iss": base + "/as"}
            return self.say(302, None, {"Location": query["redirect_uri"] + "?" + urllib.parse.urlencode(back)})
        if url.path == "/revoke":
            access.clear()
            refresh.clear()
            return self.say(200, {})
        self.say(404 if url.path != "/mcp" else 405, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/register":
            asked = json.loads(body)
            registered.update(asked)
            given = {"client_secret": "secret 1", "client_secret_expires_at": None} if secret else {"client_secret": None}
            return self.say(201, dict(asked, client_id="client-1", **given))
        if self.path == "/token":
            form = dict(urllib.parse.parse_qsl(body))
            if secret and not proves(form, self.headers.get("Authorization", "")):
                return self.say(401, {"error": "invalid_client", "error_description": None})
            if not secret and form.get("client_id") != "client-1" or form.get("resource") != base + "/mcp":
                return self.say(400, {"error": "invalid_client"})
            if form["grant_type"] == "refresh_token":
                if form["refresh_token"] not in refresh:
                    return self.say(400, {"error": "invalid_grant"})
                # Good for one use.
                refresh.remove(form["refresh_token"])
                return self.say(200, tokens())
            query = codes.pop(form["code"])
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            if challenge != query["code_challenge"] or form["redirect_uri"] != query["redirect_uri"]:
                return self.say(400, {"error": "invalid_grant"})
            return self.say(200, tokens())
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in access:
            wants = 'Bearer error="invalid_token", resource_metadata="%s/metadata"' % base
            return self.say(401, {}, {"WWW-Authenticate": wants})
        message = json.loads(body)
        method, ident = message["method"], message.get("id")
        if ident is None:
            return self.say(202)
        result = {}
        if method == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "o", "version": "1"}}
        if method == "tools/list":
            result = {"tools": [{"name": "who", "description": "Says who asks.", "inputSchema": {"type": "object"}}]}
        if method == "tools/call":
            result = {"content": [{"type": "text", "text": "a person who has logged in"}]}
        self.say(200, {"jsonrpc": "2.0", "id": ident, "result": result})


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
base = "http://127.0.0.1:%d" % server.server_address[1]
print(base, flush=True)
server.serve_forever()
