"""Programs that do the work on the files of a folder: python -m tests.bench.bulk.arms.NAME WORKLOAD FOLDER OUT."""
