import subprocess
import sys

import jopeq


def test_python_m_jopeq_is_the_command_line():
    command = [sys.executable, "-m", "jopeq", "version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [
        jopeq.__version__
    ]
