"""Bounds of what is read, each far above what real files need and checked before memory is taken.

Docs: "Limits of files" in ``docs/kernel-files.md``.
"""

KIB = 2**10
MIB = 2**20

TEXT_BYTES = MIB
"""Of a kernel file, a source, a header beside it, and a file of settings."""

SOURCE_BYTES = 8 * MIB
"""Of all headers of one kernel that are handed to the compiler as text."""

TOML_DEPTH = 32
TOML_KEY_PARTS = 16
TOML_KEY_CHARACTERS = 1000
TOML_KEYS = 20_000

JSON_BYTES = 64 * MIB
JSON_DEPTH = 100
JSON_VALUES = 500_000
JSON_CONTAINERS = 200_000
"""Values, and objects and lists, of a small file; a large one may have more in proportion to its bytes."""

JSON_BYTES_PER_VALUE = 4
JSON_BYTES_PER_CONTAINER = 64
"""Least bytes of a value and of a container beyond those: what is denser takes much more memory than disk."""

ARCHIVE_MEMBERS = 10_000
ARCHIVE_BYTES = 64 * MIB
"""Of all members of a recording or one of its members, inflated."""

ARCHIVE_RATIO = 50
ARCHIVE_RATIO_FROM = 4 * MIB
"""Inflated bytes per byte of the file, where the inflated ones are more than this."""

TRACE_BYTES = 32 * MIB
TRACE_SAMPLES = 500_000
"""Of a recorded power trace: hours of the fastest sensor."""

CUBIN_BYTES = 64 * MIB
"""Of a cached answer of the compiler."""

DATABASE_BYTES = 16 * 2**30
"""Of a database file whose runs are merged."""

RUN_BYTES = 64 * MIB
"""Of a run that is merged, with its trials: some 50,000 of them."""

OPTIONS = 256
OPTION_CHARACTERS = 4000
"""Of the compiler options of a kernel, and of one of them."""
