"""Whether the database and its mirror are whole: rows verified, compared, repaired, salvaged, isolated."""
