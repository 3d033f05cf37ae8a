"""What is stored, for those who look back: runs, their trials, answers and samples."""
