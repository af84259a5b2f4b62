"""``python -m widegp.cli`` is ``widegp``."""

from widegp.cli import main

main()
