"""hugginggpt compare: the same files through several models of one task, side by side."""
