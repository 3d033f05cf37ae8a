// step
