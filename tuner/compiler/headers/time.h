// Stands in for <time.h>: of it, device code has clock and clock_t, which NVRTC knows by itself.
#pragma once
#include <stddef.h>
