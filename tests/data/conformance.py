"""The client that the conformance suite runs: it tells the test at the socket argv[1] which server to use, and waits.

The test is the client; what it writes back is why it failed, or nothing.
"""
import json, os, socket, sys

told = {
    "url": sys.argv[-1],
    "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
    "protocol": os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
    "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
}
test = socket.socket(socket.AF_UNIX)
test.connect(sys.argv[1])
test.sendall(json.dumps(told).encode() + b"\n")
why = test.makefile().read()
sys.exit(why or 0)
