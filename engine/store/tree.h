/* Folders by descriptor: what is below one is listed, synced and removed without following a symbolic link. */
#ifndef ZCCI_TREE_H
#define ZCCI_TREE_H

#include "zcc/store.h"

/* `path` is only for messages in all of these. */

/* As zcc_path_list, of an open folder, which stays open. */
zcc_status zcci_folder_list(int fd, const char *path, char **names, int32_t *n_names, zcc_error *error);
/* fsync of a file or folder. */
zcc_status zcci_sync(int fd, const char *path, zcc_error *error);
/* Syncs every regular file below the folder `name` of `parent`, every folder after what is in it, itself last.
 * ZCC_EINTR between files. */
zcc_status zcci_tree_sync(int parent, const char *name, const char *path, zcc_error *error);
/* Removes `name` in `parent` and, where it is a folder, what is in it. Nothing there is no fault. */
zcc_status zcci_tree_remove(int parent, const char *name, const char *path, zcc_error *error);

#endif
