/* A stand-in for the CUDA runtime, linked in place of libcudart into a plug-in for tests. It is harder on its user than
 * a GPU: nothing that was submitted runs before something waits for it, device memory faults when the program touches
 * it, memory that is freed while work needs it ends the program. Found in the loaded plug-in by name (dlsym). */
#ifndef ZCC_TESTS_CUDA_STANDIN_H
#define ZCC_TESTS_CUDA_STANDIN_H

#include <stdint.h>

#define STANDIN_API __attribute__((visibility("default")))

/* How often a call of the runtime ("cudaMalloc"), a kernel ("cast_bf16_f32") or a kind of work ("copy to pageable",
 * "copy from pageable") has been seen. */
STANDIN_API int64_t standin_count(const char *what);
/* The n-th call from now on of that name answers `code`. "work" stands for submitted work as it runs: the code is then
 * what every later call answers, as after a fault on a GPU. $STANDIN_FAIL says the same: "cudaMalloc,1,2". n = 0 takes
 * it back, and heals. */
STANDIN_API void standin_fail(const char *what, int64_t n, int32_t code);
/* Bytes of device memory in use; how much there is from now on. */
STANDIN_API int64_t standin_in_use(void);
STANDIN_API void standin_set_memory(int64_t bytes);
/* The calling thread's current device, as a framework in the same process would set it. */
STANDIN_API void standin_set_device(int32_t device);
STANDIN_API int32_t standin_device(void);
/* zcci_fail_alloc and zcci_fail_alloc_hit of the plug-in's own copy of engine/base/memory.c. */
STANDIN_API void standin_fail_alloc(int64_t n);
STANDIN_API int32_t standin_fail_alloc_hit(void);
/* Submitted work that has not run. */
STANDIN_API int64_t standin_pending(void);
/* The most bytes of copies that were submitted and had not run at one time, since the last call. A GPU with one copy
 * engine would make a small copy on another stream wait for so many. */
STANDIN_API int64_t standin_most_pending_bytes(void);
/* For the stand-in of a library that submits work of its own: `run` is called when its turn in the stream comes, again
 * and again until it says that it is done; under the lock. And where bytes of device memory really are, for `run`. */
STANDIN_API void standin_submit(void *stream, int32_t (*run)(void *context), void *context);
STANDIN_API void *standin_real(const void *data, int64_t bytes);

#endif
