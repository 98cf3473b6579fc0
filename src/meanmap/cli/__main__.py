"""`python -m meanmap.cli` is `meanmap`."""

from meanmap.cli import main

if __name__ == "__main__":
    main()
