"""The tables of a results file, and their history.

History (`PRAGMA user_version`):
    1  environments, profiles, minibatches, series.

A file is ours by its `PRAGMA application_id`. `environments` holds each distinct environment once, as JSON. `profiles`
holds a row per profile; its case, conditions, aggregates, flags and what telemetry says about itself are JSON. `key` is
the hash of its comparable conditions as the version that wrote it defined them, for whoever reads the file by hand.
`minibatches` holds the raw series, a row per minibatch. `series` holds a row per telemetry channel: sample times
(monotonic seconds) and values, each a sequence of little-endian 64-bit floats. `record_crc` and `raw_crc` are CRC-32
sums of a profile's row with its environment and of its minibatches and series: a page that was overwritten on disk may
still be a valid page.
"""

from __future__ import annotations

APPLICATION_ID = 0x6A657477  # "jetw"
VERSION = 1

TABLES = """
CREATE TABLE environments (
    id INTEGER PRIMARY KEY,
    content TEXT NOT NULL UNIQUE
);
CREATE TABLE profiles (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    case_id TEXT NOT NULL,
    key TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT NOT NULL,
    provenance TEXT NOT NULL,
    environment_id INTEGER NOT NULL REFERENCES environments (id),
    case_json TEXT NOT NULL,
    conditions_json TEXT NOT NULL,
    aggregates_json TEXT NOT NULL,
    flags_json TEXT NOT NULL,
    telemetry_json TEXT NOT NULL,
    record_crc INTEGER NOT NULL,
    raw_crc INTEGER NOT NULL
);
CREATE TABLE minibatches (
    profile_id INTEGER NOT NULL REFERENCES profiles (id),
    position INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    phase TEXT NOT NULL,
    start_s REAL NOT NULL,
    stall_ms REAL NOT NULL,
    compute_ms REAL NOT NULL,
    e2e_ms REAL NOT NULL,
    PRIMARY KEY (profile_id, position)
) WITHOUT ROWID;
CREATE TABLE series (
    profile_id INTEGER NOT NULL REFERENCES profiles (id),
    position INTEGER NOT NULL,
    channel TEXT NOT NULL,
    times_s BLOB NOT NULL,
    channel_values BLOB NOT NULL,
    PRIMARY KEY (profile_id, position)
);
"""
