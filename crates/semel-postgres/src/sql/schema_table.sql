-- One row for each migration that ran. Lock: the caller holds the advisory lock of migrations.
CREATE TABLE IF NOT EXISTS semel_schema (
    part text NOT NULL,
    version integer NOT NULL,
    name text NOT NULL,
    min_binary integer NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (part, version)
);
