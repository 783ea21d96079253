"""zot: extensions that stay up and talk in frames."""
