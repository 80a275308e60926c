"""What a process group of this machine's alone listens on."""

import json
import subprocess
import sys

# A group as torch makes it, then one as a run's policy makes it: what each has listen.
GROUPS = """
import json, os, socket
import psutil, torch.distributed as dist
from real_openrlhf.hooks.fixes.loopback_stores import keep_stores_here

def listening():
    return {tuple(c.laddr) for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"}

def group():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    before = listening()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    dist.barrier()
    found = sorted({ip for ip, _ in listening() - before})
    dist.destroy_process_group()
    return found

upstream = group()
keep_stores_here()
print(json.dumps([upstream, group()]))
"""


def test_stores_listen_on_the_loopback(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    done = subprocess.run([sys.executable, "-c", GROUPS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    upstream, ours = json.loads(done.stdout)
    assert "::" in upstream or "0.0.0.0" in upstream  # else there would be nothing to do
    assert ours == ["127.0.0.1"]
