"""What is best, of all that is known now; and what should be measured next so that it stays true."""
