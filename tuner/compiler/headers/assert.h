// Stands in for <assert.h>: NVRTC has assert by itself. NDEBUG counts where this is included, each time.
#ifdef NDEBUG
#undef assert
#define assert(__condition) ((void)0)
#endif
