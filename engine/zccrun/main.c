/* zccrun: runs a recipe, alone or as one of the processes of mpirun or srun. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launch.h"
#include "state.h"
#include "zcc/device.h"

static const char usage[] =
        "Usage: zccrun [--help] [--version] [--devices] [--debug] RECIPE.lua [argument ...]\n"
        "\n"
        "Runs a recipe: on this process alone, or on all processes of `mpirun -n N zccrun ...` or `srun`.\n"
        "\n"
        "  RECIPE.lua      a Lua file that returns zcc.recipe{...}; a bare name is also looked up among\n"
        "                  the recipes that come with zcc. `zccrun RECIPE.lua --help` prints its arguments.\n"
        "  -h, --help      print this help\n"
        "  --version       print the version\n"
        "  --devices       print the devices of this machine, by the names that --device and ZCC_DEVICE take\n"
        "  --debug         print a Lua traceback with an error (ZCC_DEBUG=1 does the same)\n"
        "\n"
        "Exit status: 0 done, 1 failed, 2 misused.\n";

static bool has_library(const char *root)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/lua/zcc/main.lua", root);
	return n > 0 && (size_t)n < sizeof path && access(path, R_OK) == 0;
}

/* The folder with lua/, recipes/ and policies/: ../share/zcc of an installed program, the source tree of one in
 * its build folder. */
static bool find_root(char root[PATH_MAX])
{
	char program[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	if (length > 0) {
		program[length] = '\0';
		*strrchr(program, '/') = '\0';
		int n = snprintf(root, PATH_MAX, "%s/../share/zcc", program);
		if (n > 0 && n < PATH_MAX && has_library(root) && realpath(root, program) != NULL) {
			strcpy(root, program);
			return true;
		}
	}
	snprintf(root, PATH_MAX, "%s", ZCC_SOURCE_FOLDER);
	return has_library(root);
}

static void print_devices(void)
{
	char name[32], about[256];
	int32_t found = 0;
	for (int32_t i = 0; zcc_device_list(i, name, about, &found, NULL) == ZCC_OK && found; i++)
		printf("%-10s %s\n", name, about);
}

/* A standard stream that the caller closed would leave its number to the next file that is opened, and messages would
 * be written into that file. What stands there instead can be neither read nor written. */
static void hold_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* A checkpoint has a file for every rank, and more than the usual 1024 may be open at once. */
static void allow_many_files(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char **argv)
{
	hold_standard_streams();
	allow_many_files();
	bool debug = getenv("ZCC_DEBUG") != NULL && strcmp(getenv("ZCC_DEBUG"), "0") != 0;
	bool help = false;
	bool version = false;
	bool list_devices = false;
	const char *unknown = NULL;
	int i = 1;
	for (; i < argc && argv[i][0] == '-' && unknown == NULL; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			help = true;
		else if (strcmp(argv[i], "--version") == 0)
			version = true;
		else if (strcmp(argv[i], "--devices") == 0)
			list_devices = true;
		else if (strcmp(argv[i], "--debug") == 0)
			debug = true;
		else
			unknown = argv[i];
	}

	zcc_comm *comm = NULL;
	if (!launch_begin(&argc, &argv, &comm))
		launch_end(comm, 1, NULL, false);
	bool first = zcc_comm_rank(comm) == 0;
	char message[PATH_MAX + 128];
	if (unknown != NULL) {
		snprintf(message, sizeof message,
		         "unknown option %.200s; a recipe's options come behind its name\nTry 'zccrun --help'.",
		         unknown);
		launch_end(comm, 2, message, false);
	}
	if (!help && (version || list_devices) && i < argc) {
		snprintf(message, sizeof message, "nothing belongs behind %s, found %.200s\nTry 'zccrun --help'.",
		         version ? "--version" : "--devices", argv[i]);
		launch_end(comm, 2, message, false);
	}
	if (help || version || list_devices) {
		if (first && help)
			fputs(usage, stdout);
		else if (first && version)
			printf("zccrun %s\n", zcc_version());
		else if (first)
			print_devices();
		launch_end(comm, 0, NULL, false);
	}
	if (i >= argc)
		launch_end(comm, 2, "no recipe is named\nTry 'zccrun --help'.", false);
	char root[PATH_MAX];
	if (!find_root(root)) {
		snprintf(message, sizeof message, "no Lua files in %s/lua", root);
		launch_end(comm, 1, message, false);
	}
	state_run(comm, root, argv[i], argc - i - 1, argv + i + 1, debug);
}
