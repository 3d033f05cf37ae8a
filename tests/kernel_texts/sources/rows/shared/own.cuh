// hidden by the one beside the file
