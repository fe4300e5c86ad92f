"""A command line as a user types it, in a process of its own that says how it ended, what CPU time it took and whether torch was imported."""

import json
import sys
import time

from ssrl.app import main

try:
    main(sys.argv[1:])
    code = 0
except SystemExit as end:
    code = end.code
print(json.dumps({"code": code, "cpu_s": time.process_time(), "torch": "torch" in sys.modules}))
