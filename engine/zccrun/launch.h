/* Starting and ending a process that may be one of several. */
#ifndef ZCCRUN_LAUNCH_H
#define ZCCRUN_LAUNCH_H

#include <stdbool.h>

#include "zcc/transfer.h"

/* Joins the others where a launcher started this process, else stands alone without MPI. On a fault a message is
 * printed. */
bool launch_begin(int *argc, char ***argv, zcc_comm **comm);

/* Meets the other processes, has one of them print `message` (NULL for none) to stderr, and ends the program.
 * `comm` may be NULL. A process that failed waits only so long for the others and then ends them; one that is done
 * waits for all. */
_Noreturn void launch_end(zcc_comm *comm, int status, const char *message, bool name_process);

#endif
