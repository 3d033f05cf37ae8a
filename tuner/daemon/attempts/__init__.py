"""Jobs in processes of their own, and who else is on the GPU."""
