"""`python -m framework`. No torch."""

import sys

from framework.cli import main

sys.exit(main())
