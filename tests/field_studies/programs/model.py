"""The model and the slow peer that the programs of this folder share."""

import http.server
import socketserver
import threading
import time

import torch
from torch import nn


def make(width=64):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(model, optimizer, batches):
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()


def some_batches(count=30, width=64):
    return (torch.randn(256, width) for _ in range(count))


class _Slow(http.server.BaseHTTPRequestHandler):
    pause_s = 0.0

    def do_GET(self):
        time.sleep(self.pause_s)
        self.send_response(200)
        self.send_header("Content-Length", "256")
        self.end_headers()
        self.wfile.write(bytes(256))

    def do_PUT(self):
        time.sleep(self.pause_s)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def slow_server(pause_s):
    """The address of a store that takes so long for each request."""
    handler = type("Slow", (_Slow,), {"pause_s": pause_s})
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}/"
