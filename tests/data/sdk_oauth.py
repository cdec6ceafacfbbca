"""A server with a login made with FastMCP, whose handlers of OAuth are those of the official Python SDK; prints its address."""
import socket, sys

# Beside this file is another `mcp`.
sys.path.pop(0)
from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import ClientRegistrationOptions

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
base = "http://127.0.0.1:%d" % port
options = ClientRegistrationOptions(enabled=True, valid_scopes=["tools"], default_scopes=["tools"])
auth = InMemoryOAuthProvider(base_url=base, client_registration_options=options, required_scopes=["tools"])
server = FastMCP("sdk", auth=auth)


@server.tool
def who() -> str:
    """Says who asks."""
    return "a person who has logged in"


print(base, flush=True)
server.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="error")
