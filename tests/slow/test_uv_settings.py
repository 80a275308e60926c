"""What setup_env.sh tells uv of pip's settings: the real script, asked the way the shell asks it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "requirements/uv_settings.py"
NAMES = ("PIP_", "UV_", "SSL_", "ALL_PROXY")


@pytest.fixture
def told(tmp_path):
    """told(configuration, VARIABLE=value, ...) -> what the shell then has."""

    def tell(configuration: str = "", **variables: str) -> dict[str, str]:
        (tmp_path / "pip.conf").write_text(configuration)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
        environment = {**clean, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": str(tmp_path), **variables}
        script = f"""eval "$('{sys.executable}' '{SCRIPT}')"; echo "UV_FLAGS=${{UV_FLAGS[*]}}"; env"""
        answer = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
        found = dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)
        return {name: value for name, value in found.items() if name.startswith(NAMES[1:]) and value}

    return tell


CONFIGURATION = """[global]
index-url = https://user:se'cret@mirror/simple
extra-index-url = https://a/simple
    https://b/simple
find-links = /wheels file:///more%20wheels
trusted-host = mirror
cert = /certificates.pem
timeout = 60
retries = 9
proxy = proxy:3128
"""


def test_indexes_certificates_and_patience(told):
    assert told(CONFIGURATION) == {
        "UV_DEFAULT_INDEX": "https://user:se'cret@mirror/simple",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_FIND_LINKS": "/wheels,file:///more%20wheels",
        "UV_INSECURE_HOST": "mirror",
        "SSL_CERT_FILE": "/certificates.pem",
        "UV_HTTP_TIMEOUT": "60",
        "UV_HTTP_RETRIES": "9",
        "ALL_PROXY": "http://proxy:3128",
    }


def test_what_is_for_install_wins_over_global_and_a_variable_over_both(told):
    configuration = "[global]\nindex-url = https://global\nretries = 1\n[install]\nindex-url = https://install\n"
    found = told(configuration)
    assert (found["UV_DEFAULT_INDEX"], found["UV_HTTP_RETRIES"]) == ("https://install", "1")
    assert told(configuration, PIP_INDEX_URL="https://variable")["UV_DEFAULT_INDEX"] == "https://variable"


def test_what_uv_is_told_directly_wins(told):
    assert told(PIP_INDEX_URL="https://pip", UV_DEFAULT_INDEX="https://uv")["UV_DEFAULT_INDEX"] == "https://uv"


@pytest.mark.parametrize("value, flags", [("1", "--no-index"), ("0", None), ("", None)])
def test_no_index_is_a_flag(told, value, flags):
    assert told(PIP_NO_INDEX=value).get("UV_FLAGS") == flags
