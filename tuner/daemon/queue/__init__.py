"""The queue: jobs that have not ended, their specs, and subscriptions to their events."""
