"""Runs a command in a process group of its own and ends the group when whoever started it is gone.

    python supervise.py GRACE_S COMMAND …

Its standard input is a pipe that the starter holds and never writes to: it ends when the starter closes it, exits or is
killed. Then the group gets SIGTERM, and SIGKILL after GRACE_S seconds. A command that ends by itself takes what is
left of its group along; its exit code is this program's, 128 + N after signal N. A script of its own: it imports
nothing of the project.
"""

import os
import signal
import subprocess
import sys
import threading
import time


def end(group: int, grace_s: float) -> None:
    """SIGTERM, then SIGKILL to what is still there."""
    for sign, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 1.0)):
        try:
            os.killpg(group, sign)
            deadline = time.monotonic() + wait_s
            while time.monotonic() < deadline:
                time.sleep(0.05)
                os.killpg(group, 0)
        except ProcessLookupError:
            return


def main() -> None:
    grace_s = float(sys.argv[1])
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)  # only the pipe counts
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, preexec_fn=_as_usual, start_new_session=True)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end(child.pid, grace_s)

    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    end(child.pid, 2.0)
    sys.exit(128 - code if code < 0 else code)


def _as_usual() -> None:
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL)


if __name__ == "__main__":
    main()
