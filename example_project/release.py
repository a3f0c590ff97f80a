"""Which release of the shop this process runs.

Release 1 has three bugs, release 2 fixes them. In a real shop they would be two commits; here one
environment variable tells them apart, so that the demo can deploy the fix by restarting its worker.
"""

import os

VARIABLE = "SHOP_RELEASE"

RELEASE = os.environ.get(VARIABLE, "1")
FIXED = RELEASE != "1"
