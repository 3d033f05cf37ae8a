"""Results that outlive a process: runs, trials, jobs and their events, in one SQLite file and its mirror."""
