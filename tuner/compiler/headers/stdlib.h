// Stands in for <stdlib.h>: NVRTC knows malloc, free and abs by itself.
#pragma once
#include <stddef.h>
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
