"""Prints the wheel of pip that came with this Python: it runs as it is, and venv takes five seconds to unpack it."""

import ensurepip
import sys
import sysconfig
from itertools import chain
from pathlib import Path

# Debian and Fedora keep their wheels apart from Python's own folder.
places = Path(ensurepip.__file__).parent / "_bundled", Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "/nowhere")
wheels = chain.from_iterable(sorted(place.glob("pip-*.whl")) for place in places)
wheel = next(wheels, None) or sys.exit(f"no wheel of pip in {' or '.join(map(str, places))}")
print(wheel)
