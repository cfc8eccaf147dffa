"""Tables of webhooks and deliveries."""

WEBHOOKS = """
    CREATE TABLE webhooks (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        url TEXT NOT NULL,
        name TEXT NOT NULL,
        secret TEXT NOT NULL,
        created REAL NOT NULL,
        ended REAL
    );
    CREATE INDEX webhooks_by_tenant ON webhooks (tenant, created, id);
    CREATE TABLE deliveries (
        id TEXT PRIMARY KEY,
        webhook_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        policy INTEGER NOT NULL,
        payload TEXT NOT NULL,
        created REAL NOT NULL,
        state TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        due REAL,
        outcome TEXT NOT NULL
    );
    CREATE INDEX deliveries_by_webhook ON deliveries (webhook_id, created, id);
    CREATE INDEX deliveries_by_time ON deliveries (due) WHERE due IS NOT NULL
"""
"""Ended webhooks get no deliveries; finished deliveries have no due time. Secrets are stored because they sign."""

BATCHES = """
    ALTER TABLE deliveries ADD COLUMN batch_id TEXT NOT NULL DEFAULT '';
    ALTER TABLE ended_runs ADD COLUMN what TEXT NOT NULL DEFAULT 'ended runs'
"""
"""Keys of ended batches consist of the batch's id and round."""
