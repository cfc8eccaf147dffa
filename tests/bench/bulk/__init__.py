"""Bulk mode compared with other ways to run the same task over many files, each as a program of its own."""
