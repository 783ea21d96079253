"""Has no database."""
import sys

sys.exit("no database")
