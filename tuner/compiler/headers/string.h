// Stands in for <string.h>: of it, device code has memcpy and memset, which NVRTC knows by itself.
#pragma once
#include <stddef.h>
