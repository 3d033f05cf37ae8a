"""What outlives a process: runs and trials, jobs and their events, in one SQLite file and its mirror."""
