// own
