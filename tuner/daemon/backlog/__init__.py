"""What should be tuned next without being asked, and what is kept up meanwhile."""
