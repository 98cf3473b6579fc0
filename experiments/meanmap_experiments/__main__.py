"""`python -m meanmap_experiments`."""

from meanmap_experiments.command import main

if __name__ == "__main__":
    main()
