"""Give a Ray that a run starts on a busy machine two minutes to appear, instead of the 30 s in Ray's own code.

Ray asks its GCS for the new node until 30 s have passed, by the function that is replaced here. No variable of Ray's
changes that limit. On two cores with a load of 38 the first command of a new user ended there.
"""

import sys
import time
from typing import Any

SECONDS = 120.0


def wait_longer() -> None:
    """For the `ray.init` of this process. Ray is imported already where a training starts."""
    from ray._private import services

    once = services.get_node
    if once.__module__ == __name__:  # by an earlier training of this process
        return

    def get_node(*args: Any) -> Any:
        began, told = time.monotonic(), False
        while True:
            try:
                return once(*args)
            except RuntimeError:  # the node is not known yet
                waited = time.monotonic() - began
                if waited > SECONDS:
                    raise
                if waited > SECONDS / 4 and not told:
                    told = True
                    print(f"Ray has not started in {waited:.0f} s, and gets {SECONDS:.0f}", file=sys.stderr)
                time.sleep(0.2)

    services.get_node = get_node
