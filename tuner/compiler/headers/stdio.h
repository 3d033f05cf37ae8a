// Stands in for <stdio.h>: of it, device code has printf, which NVRTC knows by itself.
#pragma once
#include <stddef.h>
