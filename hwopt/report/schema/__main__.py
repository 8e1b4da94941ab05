"""`python -m hwopt.report.schema` writes the committed schemas anew."""

from hwopt.report.schema.files import write

write()
