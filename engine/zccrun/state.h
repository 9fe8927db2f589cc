/* The Lua state that runs a recipe. */
#ifndef ZCCRUN_STATE_H
#define ZCCRUN_STATE_H

#include <stdbool.h>

#include "zcc/transfer.h"

/* Runs a recipe and ends the program as it ended. `root` is the folder with lua/, recipes/ and policies/; args are
 * what follows the recipe on the command line. */
_Noreturn void state_run(zcc_comm *comm, const char *root, const char *recipe, int n_args, char **args, bool debug);

#endif
