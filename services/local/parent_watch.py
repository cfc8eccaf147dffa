"""Runs a module as `python -m` does and ends it when the parent process ends.

Usage: python -m services.local.parent_watch MODULE [ARGUMENT].

The parent holds the other end of standard input; however it dies, the system closes that end. Unlike a signal on the
parent's death this needs no Linux, no code in the module, and no moment between fork and exec in which it is missed.
"""

import os
import runpy
import signal
import sys
import threading
import time

GRACE_SECONDS = 15.0
"""Between SIGTERM and the end."""


def main() -> None:
    sys.argv = sys.argv[1:]
    threading.Thread(target=_follow_parent, name="leash", daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _follow_parent() -> None:
    while os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
