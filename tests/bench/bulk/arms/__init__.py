"""Programs that run the task over a folder: python -m tests.bench.bulk.arms.NAME FOLDER OUT."""
