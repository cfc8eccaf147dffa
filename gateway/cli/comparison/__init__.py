"""hugginggpt compare: runs several models of one task on the same files."""
