"""``python -m aotcompile.cli``."""
import sys

from .main import main

sys.exit(main())
