"""How a reading follows power: models, their inverse, identification and the store of what was found."""
