// Stands in for <stdarg.h>: NVRTC has va_list, va_start, va_arg and va_end by itself.
#pragma once
