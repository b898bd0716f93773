"""`python -m carpal` is the `carpal` command."""

from carpal.cli import main

if __name__ == "__main__":
    main()
