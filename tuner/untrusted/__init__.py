"""What comes from outside (files, compilers, devices, clients) is held to bounds before it is used."""
