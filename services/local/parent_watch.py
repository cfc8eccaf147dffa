"""Runs a module like `python -m` and ends it when its parent process ends.

Usage: python -m services.local.parent_watch MODULE [ARGUMENT].

The parent holds the other end of standard input, which the operating system closes when the parent ends for any reason.
Unlike prctl's signal on the parent's death this is not limited to Linux, needs no code in the module, and cannot miss a
parent that ends between fork and exec.
"""

import os
import runpy
import signal
import sys
import threading
import time

GRACE_SECONDS = 15.0
"""Between SIGTERM and the forced exit."""


def main() -> None:
    """Runs the module named by the first argument."""
    sys.argv = sys.argv[1:]
    threading.Thread(target=_follow_parent, name="parent-watch", daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _follow_parent() -> None:
    while os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
