// Stands in for <stddef.h>: what NVRTC does not declare by itself.
#pragma once
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(__type, __member) ((size_t)__INTADDR__(&(((__type*)0)->__member)))
#endif
typedef struct {
    long long __integer;
    double __real;
} max_align_t;
