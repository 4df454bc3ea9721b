"""`python -m geoblanket`: the command line, also where the script `geoblanket` is not on the path."""

from geoblanket.cli import main

if __name__ == "__main__":
    main()
