"""`python -m planish`: the command line."""

from ._cli import main

main()
