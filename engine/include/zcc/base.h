/* Status, errors, dtypes, plain memory and time: what every other topic header builds on. */
#ifndef ZCC_BASE_H
#define ZCC_BASE_H

#ifdef ZCC_CDEF
#define ZCC_API
#else
#include <stddef.h>
#include <stdint.h>
#define ZCC_API __attribute__((visibility("default")))
#endif

/* 0 = done; negative = which kind of fault. */
typedef int32_t zcc_status;

enum {
	ZCC_OK = 0,
	ZCC_EINVAL = -1,     /* an argument that no call may bring */
	ZCC_ENOMEM = -2,     /* memory ran out */
	ZCC_EIO = -3,        /* the operating system refused; `code` is errno */
	ZCC_EFORMAT = -4,    /* a malformed document or file */
	ZCC_EMAP = -5,       /* a map that breaks coverage, tiling, agreement or bounds */
	ZCC_ELAYOUT = -6,    /* legitimate geometry that is not supported, or sizes that do not fit each other */
	ZCC_EPOLICY = -7,    /* a policy chose what is no holder, or did not choose */
	ZCC_EAGREE = -8,     /* processes disagree on what they are about to do */
	ZCC_EPEER = -9,      /* another process failed */
	ZCC_EMPI = -10,      /* MPI refused; `code` is its error class */
	ZCC_EVERIFY = -11,   /* bytes differ from what they must be */
	ZCC_EINTR = -12,     /* SIGINT or SIGTERM; `code` is the signal */
	ZCC_EEXIST = -13,    /* the place to write to is taken */
	ZCC_EOVERFLOW = -14, /* a product or sum of sizes does not fit 63 bits */
	ZCC_EDEVICE = -15,   /* a device or its driver refused; `code` is its error number */
	ZCC_ESTALE = -16,    /* a handle to what has been replaced or freed */
	ZCC_EBUSY = -17      /* refused because something is in flight */
};

#ifdef ZCC_CDEF
enum { ZCC_MAX_NDIM = 8 };
#else
#define ZCC_MAX_NDIM 8
#endif

/* Owned by the caller; filled where a fault is first seen, untouched on success. Strings end in NUL. */
typedef struct zcc_error {
	zcc_status status;
	int32_t code;       /* errno, MPI error class or signal number; 0 where there is none */
	int32_t process;    /* the process that saw the fault first, -1 where it is this one */
	int32_t line;       /* C source line */
	char file[64];      /* C source file, without its folder */
	char operation[64]; /* the public call or the step within it */
	char message[1024]; /* what was asked, of which parameter, rank or file, the numbers found and allowed */
} zcc_error;

/* "MAJOR.MINOR.PATCH"; static. */
ZCC_API const char *zcc_version(void);
/* The CMake build type, and "+ sanitizers" where they are built in: "Release". Static. Benches refuse any other. */
ZCC_API const char *zcc_build_type(void);
/* The FFI declarations of this very build; static. */
ZCC_API const char *zcc_cdef(void);
/* "ZCC_EMAP" and so on; static; "ZCC_E?" for a number that is no status. */
ZCC_API const char *zcc_status_name(zcc_status status);

/* One row per public struct and member, compiled from the headers; a row with member == "" gives the struct's size
 * in `offset`. The table ends at struct_name == NULL. Static. */
typedef struct zcc_abi_row {
	const char *struct_name;
	const char *member;
	int64_t offset;
} zcc_abi_row;
ZCC_API const zcc_abi_row *zcc_abi_table(void);

/* Monotonic clock, nanoseconds. Any thread. */
ZCC_API int64_t zcc_clock_ns(void);

/* From here on SIGINT and SIGTERM are only noted, and every blocking call of the library gives way to them with
 * ZCC_EINTR. Once per program, main thread. */
ZCC_API void zcc_interrupt_watch(void);
/* The signal noted, or 0. Any thread. */
ZCC_API int32_t zcc_interrupted(void);
/* Nanoseconds from the signal that ends a job until its launcher kills what is left: a second, as Open MPI has it, or
 * what it was told in $OMPI_MCA_odls_base_sigkill_timeout. */
ZCC_API int64_t zcc_stop_ns(void);

/* dtypes: the names and meaning of the safetensors format. Sub-byte dtypes are not supported. */
enum {
	ZCC_BOOL = 1,
	ZCC_U8,
	ZCC_I8,
	ZCC_F8_E5M2,
	ZCC_F8_E4M3,
	ZCC_F8_E8M0,
	ZCC_I16,
	ZCC_U16,
	ZCC_F16,
	ZCC_BF16,
	ZCC_I32,
	ZCC_U32,
	ZCC_F32,
	ZCC_F64,
	ZCC_I64,
	ZCC_U64,
	ZCC_C64
};
/* Bytes of one element; 0 for a number that is no dtype. */
ZCC_API int32_t zcc_dtype_bytes(int32_t dtype);
/* "BF16"; NULL for a number that is no dtype. Static. */
ZCC_API const char *zcc_dtype_name(int32_t dtype);
/* The dtype of that exact name, 0 where there is none. */
ZCC_API int32_t zcc_dtype_parse(const char *name);

/* Zeroed pages straight from the system, aligned to at least 4096 bytes; a page costs nothing until it is touched.
 * bytes = 0 gives a pointer that may be freed. The caller owns it. ZCC_EINVAL (negative), ZCC_ENOMEM. */
ZCC_API zcc_status zcc_memory_create(int64_t bytes, void **data, zcc_error *error);
/* `bytes` as it was asked for. NULL is allowed. */
ZCC_API void zcc_memory_destroy(void *data, int64_t bytes);
/* Fills bytes with a sequence of the seed alone (splitmix64, little endian, cut at the end). Any thread. */
ZCC_API void zcc_memory_fill_random(void *data, int64_t bytes, int64_t seed);

#endif
