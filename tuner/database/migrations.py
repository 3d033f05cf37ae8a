"""The tables, as the changes that made them: only ever added to, so that every database can be brought up."""

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "runs-and-trials",
        (
            """CREATE TABLE runs (
                id INTEGER PRIMARY KEY,
                fingerprint TEXT NOT NULL,      -- everything --resume must find again
                workload_key TEXT NOT NULL,     -- the co-running set, in canonical order
                objective TEXT NOT NULL,
                device_uuid TEXT NOT NULL,
                status TEXT NOT NULL,           -- running, finished, interrupted, limited, failed
                owner TEXT NOT NULL,            -- process that measures it (tuner.system.ownership)
                started_at TEXT NOT NULL,       -- UTC, ISO 8601
                ended_at TEXT,
                conditions TEXT NOT NULL,       -- JSON: what the answer is bound to
                answer TEXT                     -- JSON: the document of --json, without its trials
            )""",
            "CREATE INDEX runs_by_workloads ON runs (workload_key, device_uuid, objective, id)",
            "CREATE INDEX runs_by_fingerprint ON runs (fingerprint, id)",
            """CREATE TABLE trials (
                run_id INTEGER NOT NULL REFERENCES runs (id),
                number INTEGER NOT NULL,
                trial TEXT NOT NULL,            -- JSON: configurations and clock
                measurement TEXT NOT NULL,      -- JSON: what the search saw
                confirmed TEXT,                 -- JSON: fresh bursts of a contender for the answer, joined
                status TEXT NOT NULL,
                makespan_s REAL,
                energy_j REAL,
                ended_at TEXT NOT NULL,
                PRIMARY KEY (run_id, number)
            ) WITHOUT ROWID""",
            "CREATE UNIQUE INDEX one_measurement_a_trial ON trials (run_id, trial)",
        ),
    ),
    (
        "jobs",
        (
            """CREATE TABLE jobs (
                id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, also when the last is forgotten
                ordered TEXT NOT NULL,          -- JSON: what is to be done (tuner.model.jobs.Order)
                origin TEXT NOT NULL,
                priority REAL NOT NULL,
                state TEXT NOT NULL,
                reason TEXT NOT NULL,
                run_id INTEGER REFERENCES runs (id),
                attempts INTEGER NOT NULL,
                submitter INTEGER,              -- user id; NULL for the daemon itself
                created_at TEXT NOT NULL,       -- UTC, ISO 8601
                started_at TEXT,
                ended_at TEXT
            )""",
            "CREATE INDEX jobs_by_state ON jobs (state, id)",
            """CREATE TABLE job_events (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
                kind TEXT NOT NULL,
                at TEXT NOT NULL,               -- UTC, ISO 8601
                data TEXT NOT NULL              -- JSON
            )""",
            "CREATE INDEX job_events_by_job ON job_events (job_id, id)",
            "ALTER TABLE runs ADD COLUMN job_id INTEGER REFERENCES jobs (id) ON DELETE SET NULL",
            "CREATE INDEX runs_by_job ON runs (job_id, id)",
        ),
    ),
    (
        "ledger",
        (
            "CREATE TABLE uses (key TEXT PRIMARY KEY, count REAL NOT NULL) WITHOUT ROWID",
            """CREATE TABLE analytical (
                key TEXT PRIMARY KEY,
                document TEXT NOT NULL          -- JSON
            ) WITHOUT ROWID""",
            """CREATE TABLE samples (
                id INTEGER PRIMARY KEY,
                run_id INTEGER NOT NULL REFERENCES runs (id),
                at TEXT NOT NULL,               -- UTC, ISO 8601
                document TEXT NOT NULL          -- JSON
            )""",
            "CREATE INDEX samples_by_run ON samples (run_id, id)",
            """CREATE TABLE spending (
                day TEXT NOT NULL,
                device_uuid TEXT NOT NULL,
                seconds REAL NOT NULL,
                joules REAL NOT NULL,
                PRIMARY KEY (day, device_uuid)
            ) WITHOUT ROWID""",
        ),
    ),
    (
        "writes",
        (
            # One row. The count goes up with every transaction, in the database and in its mirror.
            """CREATE TABLE writes (
                one INTEGER PRIMARY KEY CHECK (one = 1),
                identity TEXT NOT NULL,         -- of this database: a mirror of another one has another
                count INTEGER NOT NULL
            )""",
            "INSERT INTO writes SELECT 1, lower(hex(randomblob(16))), count(*) FROM runs",
            # Order of runs in time by that count, as clocks jump. Of earlier runs, the clock is all there is:
            # the number of runs that had ended by then keeps their order, and is below any later count.
            "ALTER TABLE runs ADD COLUMN began INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE runs ADD COLUMN ended INTEGER",
            """UPDATE runs SET
                began = (SELECT count(*) FROM runs AS other WHERE other.ended_at <= runs.started_at),
                ended = CASE WHEN ended_at IS NULL THEN NULL ELSE
                    (SELECT count(*) FROM runs AS other WHERE other.ended_at <= runs.ended_at) END""",
        ),
    ),
    (
        "checksums",
        (
            # The transaction that wrote a row, and what tells whether it still says so (checksums.py). Rows
            # of before get theirs when all changes are made.
            *(
                f"ALTER TABLE {table} ADD COLUMN {column}"
                for table in (
                    *("runs", "trials", "jobs", "job_events"),
                    *("uses", "analytical", "samples", "spending"),
                )
                for column in ("version INTEGER NOT NULL DEFAULT 0", "checksum INTEGER")
            ),
            # Rows that neither file had soundly.
            """CREATE TABLE isolated (
                id INTEGER PRIMARY KEY,
                "of" TEXT NOT NULL,             -- its table
                key TEXT NOT NULL,              -- JSON: its primary key, an array
                main BLOB,                      -- JSON: its columns in the database
                mirror BLOB,                    -- JSON: its columns in the mirror
                why TEXT NOT NULL,
                found_at TEXT NOT NULL,         -- UTC, ISO 8601
                version INTEGER NOT NULL DEFAULT 0,
                checksum INTEGER
            )""",
        ),
    ),
    (
        "models",
        (
            """CREATE TABLE models (
                kernel TEXT NOT NULL,
                key TEXT NOT NULL,              -- of the objective and the GPU
                document TEXT NOT NULL,         -- JSON: tuner.prediction.model
                version INTEGER NOT NULL DEFAULT 0,
                checksum INTEGER,
                PRIMARY KEY (kernel, key)
            ) WITHOUT ROWID""",
        ),
    ),
    (
        "merged",
        (
            # Runs that were taken over from other databases, and where they come from.
            """CREATE TABLE merged (
                run_id INTEGER PRIMARY KEY REFERENCES runs (id),
                content TEXT NOT NULL UNIQUE,   -- hash of all that the run says (run_content.py)
                source TEXT NOT NULL,           -- the file, address or host that it was read from
                identity TEXT NOT NULL,         -- of the database that it was measured for; may be empty
                number INTEGER NOT NULL,        -- of the run in there
                at TEXT NOT NULL,               -- UTC, ISO 8601: when it was taken over
                version INTEGER NOT NULL DEFAULT 0,
                checksum INTEGER
            )""",
        ),
    ),
)
"""Name and statements of every change."""
