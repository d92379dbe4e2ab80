"""`python -m tactus` and the command `tactus`: the program beside this file, which a wheel has, replaces the
interpreter. Signals, Ctrl-C and exit statuses are therefore the program's own."""

import os
import signal
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("tactus")


def main() -> None:
    if not PROGRAM.is_file():
        sys.exit(
            f"tactus: this installation has no program ({PROGRAM}), because `pip install .` builds the library alone. "
            "Install a wheel of `scripts/package.sh wheel`, or build the program: scripts/build.sh release programs"
        )
    # Python ignores them, and a program that replaces it would inherit that.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    # The whole path: the program looks for its libraries beside the file that it was started as.
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()
