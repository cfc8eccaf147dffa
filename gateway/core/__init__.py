"""Operations of the gateway that every protocol shares: runs, pipelines, batches, files and the catalog."""
