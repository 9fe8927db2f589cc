/* Files: safetensors shards, ranged reads and writes, folders that appear complete or not at all. */
#ifndef ZCC_STORE_H
#define ZCC_STORE_H

#include "base.h"

/* ---- files ---- */

/* An open regular file. Reads and writes name their own offset, so several threads may use one. */
typedef struct zcc_file zcc_file;

/* ZCC_EIO with errno and path; ZCC_EFORMAT where it is not a regular file; ZCC_ENOMEM. */
ZCC_API zcc_status zcc_file_open(const char *path, zcc_file **file, zcc_error *error);
/* Creates a new file (an existing one is ZCC_EEXIST) of exactly `bytes` zero bytes, space reserved at once, so that a
 * full disk is known here and not in the middle. Readable and writable. */
ZCC_API zcc_status zcc_file_create(const char *path, int64_t bytes, zcc_file **file, zcc_error *error);
/* Opens an existing file for reading and writing. */
ZCC_API zcc_status zcc_file_open_write(const char *path, zcc_file **file, zcc_error *error);
/* Closing does not sync. NULL is allowed. A busy file (bound to a transfer) stays open until that drops it. */
ZCC_API void zcc_file_close(zcc_file *file);
ZCC_API int64_t zcc_file_bytes(const zcc_file *file);
ZCC_API const char *zcc_file_path(const zcc_file *file);
/* All `bytes` or a fault: a range past the end is ZCC_EIO and names path, range and size. Blocks. */
ZCC_API zcc_status zcc_file_read(zcc_file *file, int64_t offset_bytes, void *data, int64_t bytes, zcc_error *error);
ZCC_API zcc_status zcc_file_write(zcc_file *file, int64_t offset_bytes, const void *data, int64_t bytes,
                                  zcc_error *error);
/* fdatasync. */
ZCC_API zcc_status zcc_file_sync(zcc_file *file, zcc_error *error);
/* XXH3-64 of the whole file as 16 lower-case hex digits and a NUL; reads it in pieces. */
ZCC_API zcc_status zcc_file_hash(zcc_file *file, char hex[17], zcc_error *error);

/* ---- safetensors ---- */

/* A checked header and the open file behind it. */
typedef struct zcc_safetensors zcc_safetensors;

typedef struct zcc_tensor_info {
	const char *name; /* owned by the handle */
	int32_t dtype;
	int32_t ndim;
	int64_t shape_elems[ZCC_MAX_NDIM];
	int64_t elems;
	int64_t offset_bytes; /* from the start of the file */
	int64_t bytes;
} zcc_tensor_info;

/* Opens and checks everything the format demands: header length within the file and at most 100,000,000, valid UTF-8
 * JSON object, no duplicate names, known dtypes, shapes whose product times the element size is the byte range, ranges
 * that start at 0, follow each other without hole or overlap and end at the end of the file. At most ZCC_MAX_NDIM axes.
 * ZCC_EFORMAT names path, tensor and numbers; ZCC_EIO, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_safetensors_open(const char *path, zcc_safetensors **tensors, zcc_error *error);
ZCC_API void zcc_safetensors_close(zcc_safetensors *tensors);
ZCC_API int32_t zcc_safetensors_count(const zcc_safetensors *tensors);
/* Tensors in the order of their bytes in the file. index out of range: ZCC_EINVAL. */
ZCC_API zcc_status zcc_safetensors_tensor(const zcc_safetensors *tensors, int32_t index, zcc_tensor_info *info,
                                          zcc_error *error);
/* Index by name, −1 where there is none. Not linear. */
ZCC_API int32_t zcc_safetensors_find(const zcc_safetensors *tensors, const char *name);
/* The file, borrowed: valid until the handle is closed. */
ZCC_API zcc_file *zcc_safetensors_file(const zcc_safetensors *tensors);
/* __metadata__ pairs; index from 0; *key is NULL past the last one. */
ZCC_API void zcc_safetensors_metadata(const zcc_safetensors *tensors, int32_t index, const char **key,
                                      const char **value);

/* Collects a header, then creates the file whole, with space reserved and data bytes zero. Tensors of larger elements
 * lie before those of smaller ones, otherwise in the order they were added; the header is padded with spaces to a
 * multiple of 8 bytes. So every tensor is aligned to its element. Equal calls give equal bytes. One thread. */
typedef struct zcc_safetensors_writer zcc_safetensors_writer;
ZCC_API zcc_status zcc_safetensors_writer_create(zcc_safetensors_writer **writer, zcc_error *error);
ZCC_API void zcc_safetensors_writer_destroy(zcc_safetensors_writer *writer);
/* ZCC_EINVAL: name taken or "__metadata__", unknown dtype, negative extent; ZCC_EOVERFLOW; ZCC_ENOMEM. */
ZCC_API zcc_status zcc_safetensors_writer_add(zcc_safetensors_writer *writer, const char *name, int32_t dtype,
                                              int32_t ndim, const int64_t *shape_elems, zcc_error *error);
ZCC_API zcc_status zcc_safetensors_writer_metadata(zcc_safetensors_writer *writer, const char *key, const char *value,
                                                   zcc_error *error);
/* Bytes of the file to come. A header over 100,000,000 bytes is ZCC_EFORMAT. */
ZCC_API zcc_status zcc_safetensors_writer_bytes(zcc_safetensors_writer *writer, int64_t *bytes, zcc_error *error);
/* Creates the file at `path` (ZCC_EEXIST where there is one) with its header. Its tensors' places are then read back
 * with zcc_safetensors_open. */
ZCC_API zcc_status zcc_safetensors_writer_finish(zcc_safetensors_writer *writer, const char *path, zcc_error *error);

/* ---- folders ---- */

/* A folder being written under a temporary name beside its target. One thread. */
typedef struct zcc_folder zcc_folder;

/* Makes PATH.tmp.<nonce> and missing parents. PATH may be missing or an empty folder; anything else is ZCC_EEXIST
 * unless `replace` (a folder is then replaced as a whole at publication; a file never). A PATH that is a symbolic link
 * stands for the folder it leads to: the link stays. ZCC_EINVAL for an empty path, one that ends in "." or "..", and
 * the root of a mounted file system, since nothing can be renamed into their place; ZCC_EIO, ZCC_ENOMEM. One process
 * does this; the others use its path. */
ZCC_API zcc_status zcc_folder_begin(const char *path, int32_t replace, zcc_folder **folder, zcc_error *error);
/* The temporary path; relative where the one given was; owned by the handle. */
ZCC_API const char *zcc_folder_path(const zcc_folder *folder);
/* Syncs every file in it and the folder, renames it to its final name in one step, syncs the parent, then removes what
 * it replaced. After a crash at any instant the final name is the old content or the new one; only where a file system
 * cannot exchange two names (some network file systems) there is an instant between two renames with neither, and the
 * old content then lies at PATH.old.<nonce>. On a fault before the rename the temporary folder stays for discard. The
 * message of a later fault says that the new content is in place. ZCC_EIO, ZCC_EINTR (before the rename only),
 * ZCC_EEXIST where PATH has been taken meanwhile, ZCC_EINVAL a second time, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_folder_publish(zcc_folder *folder, zcc_error *error);
/* Removes the temporary folder and what is in it, never following a link out of it. Nothing after publish. Does not
 * give way to signals. ZCC_EIO, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_folder_discard(zcc_folder *folder, zcc_error *error);
/* Frees the handle; does not touch the disk. NULL is allowed. */
ZCC_API void zcc_folder_close(zcc_folder *folder);

/* What lies at a path, behind symbolic links: sets *kind to 0 nothing, 1 regular file, 2 folder, 3 something else (a
 * link to nothing too). ZCC_EIO where that cannot be told. */
ZCC_API zcc_status zcc_path_kind(const char *path, int32_t *kind, zcc_error *error);
/* *below = 1 where `path` lies in `folder` or deeper, links followed; 0 where it is the folder itself, lies elsewhere,
 * or one of the two is not there. ZCC_EIO, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_path_below(const char *path, const char *folder, int32_t *below, zcc_error *error);
/* Names in a folder, sorted bytewise, without "." and ".."; one NUL-terminated name after the other in *names, freed
 * with zcc_path_list_free. ZCC_EIO, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_path_list(const char *path, char **names, int32_t *n_names, zcc_error *error);
ZCC_API void zcc_path_list_free(char *names);

#endif
