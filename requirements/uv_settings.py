"""What pip is told about indexes and the network, in uv's terms: uv reads none of pip's settings.

eval "$(python requirements/uv_settings.py)"     a variable that is set already wins
"""

import ast
import os
import shlex
import subprocess
import sys

VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "retries": "UV_HTTP_RETRIES",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}


def pip_settings() -> dict[str, str]:
    """From pip's files and variables, the way in which pip merges them."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for section in ("global.", "install.", ":env:."):  # the later one wins
        for line in listed.stdout.splitlines():
            name, _, value = line.removeprefix(section).partition("=")
            if line.startswith(section):
                found[name] = ast.literal_eval(value)
    return found


def for_uv(name: str, value: str) -> str:
    if name == "find-links":
        return ",".join(value.split())
    if name == "proxy" and "://" not in value:
        return f"http://{value}"
    return " ".join(value.split())


if __name__ == "__main__":
    settings = pip_settings()
    for name, variable in VARIABLES.items():
        if settings.get(name) and variable not in os.environ:
            print(f"export {variable}={shlex.quote(for_uv(name, settings[name]))}")
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        print("UV_FLAGS+=(--no-index)")
