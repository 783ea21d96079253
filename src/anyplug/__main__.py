"""`python -m anyplug`: the command line."""

from anyplug.frontends.cli.main import main

if __name__ == "__main__":
    main()
