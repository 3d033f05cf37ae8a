// Stands in for <stdbool.h>: C++ has bool by itself.
#pragma once
