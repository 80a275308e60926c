"""python alone.py FILE WORDS...: as Python runs it, and then all that it started ends: threads of NCCL would wait."""

import os
import runpy
import sys
import traceback

import psutil

code = 1
try:
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    code = 0
except BaseException:
    traceback.print_exc()
sys.stdout.flush()
sys.stderr.flush()
for child in psutil.Process().children(recursive=True):
    child.kill()
os._exit(code)
