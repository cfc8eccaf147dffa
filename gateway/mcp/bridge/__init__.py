"""The same tools over standard input and output, for agents on the machine where the files are."""
