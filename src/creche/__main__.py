"""``python -m creche``."""

from creche.cli import main

main()
