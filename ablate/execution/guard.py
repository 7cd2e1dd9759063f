"""A process that runs a command and leaves none of its processes behind; it imports nothing of ablate.

`python guard.py LOG COMMAND...` starts the command with its output appended to LOG, and writes its exit code to stdout.
When its own stdin closes, because whoever started it closed it or died, it ends the whole process group: by SIGTERM,
and two seconds later by SIGKILL.
"""

import os
import signal
import subprocess
import sys
import threading
import time

assert sys.platform != "win32", "processes have groups"
_GRACE_SECONDS = 2.0


def _end_group() -> None:
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline and (child is None or child.poll() is None):
        time.sleep(0.02)
    os.killpg(0, signal.SIGKILL)


def _end_with_starter() -> None:
    while os.read(0, 1):
        pass
    _end_group()


child = None
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # a handler, unlike SIG_IGN, is not inherited
    threading.Thread(target=_end_with_starter, daemon=True).start()
    with open(sys.argv[1], "ab") as log:
        try:
            child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            code = str(child.wait())
        except OSError as error:
            code = f"{type(error).__name__}: {error}"
    os.write(1, f"{code}\n".encode())
    os.killpg(0, signal.SIGKILL)  # what the command left running, and this process
