"""hugginggpt batch, resume and batches: many inputs go in, a folder with results comes out."""
