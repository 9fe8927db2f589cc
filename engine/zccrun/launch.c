#include "launch.h"

#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

/* Processes that fail by themselves within this time are heard together; then the others count as stuck. */
static const int64_t FAILED_WAIT_NS = 10000000000;
/* A launcher that was told to end the job kills what is left soon after its first signal: half of that time. */
enum { STOPPED_WAIT_SHARE = 2 };
/* For ever, and no sum with the clock overflows. */
static const int64_t DONE_WAIT_NS = INT64_MAX / 4;
/* MPI_Finalize after a fault may hang on what was left half done. */
enum { FINALIZE_SECONDS = 20 };

/* Sanitized builds: MPI loads plug-ins that leak and unloads them again, so that their leaks have no name to be
 * suppressed by. What it takes while it starts is not counted, and the count is made before it ends. */
static void disregard_leaks(bool yes)
{
#ifdef __SANITIZE_ADDRESS__
	if (yes)
		__lsan_disable();
	else
		__lsan_enable();
#else
	(void)yes;
#endif
}

static void check_leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
	__lsan_do_leak_check();
#endif
}

static bool under_launcher(void)
{
	static const char *const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
		if (getenv(marks[i]) != NULL)
			return true;
	return false;
}

/* A launcher of another MPI starts each process as a world of its own, and every one would do the whole work. */
static bool world_is_what_was_launched(void)
{
	const char *told = getenv("OMPI_COMM_WORLD_SIZE");
	if (told == NULL)
		told = getenv("PMI_SIZE");
	int size = 0;
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (told == NULL || atoi(told) == size)
		return true;
	fprintf(stderr,
	        "zccrun: the launcher started %s processes but MPI sees %d; it belongs to another MPI library\n", told,
	        size);
	return false;
}

bool launch_begin(int *argc, char ***argv, zcc_comm **comm)
{
	zcc_error error = {0};
	zcc_status status;
	if (under_launcher()) {
		int provided = 0;
		disregard_leaks(true);
		MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
		disregard_leaks(false);
		if (!world_is_what_was_launched())
			return false;
		status = zcc_comm_create_mpi(comm, &error);
	} else {
		status = zcc_comm_create_local(comm, &error);
	}
	if (status != ZCC_OK)
		fprintf(stderr, "zccrun: %s (%s, %s:%d)\n", error.message, zcc_status_name(status), error.file,
		        error.line);
	return status == ZCC_OK;
}

/* Results go to stdout: a full disk there is a failure. A reader that went away (`| head`) is none. */
static bool flush_results(void)
{
	bool lost = fflush(stdout) != 0;
	int code = errno;
	lost |= ferror(stdout) != 0;
	struct pollfd out = {.fd = STDOUT_FILENO};
	if (!lost || (poll(&out, 1, 0) == 1 && (out.revents & POLLERR)))
		return true;
	fprintf(stderr, "zccrun: results could not be written to stdout: %s\n", strerror(code));
	return false;
}

static void default_signals(void)
{
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
}

/* A signal to all stops each process at a place of its own, and that is one message. */
static bool tells_of_a_signal(const char *message)
{
	return message != NULL &&
	       (zcc_interrupted() || strstr(message, "stopped by ") != NULL || strstr(message, "ZCC_EINTR") != NULL);
}

_Noreturn void launch_end(zcc_comm *comm, int status, const char *message, bool name_process)
{
	if (!flush_results() && status == 0)
		status = 1;
	/* Nothing is left to clean up: a signal now ends the program, but not before it has said what it has to say. */
	if (status == 0)
		default_signals();
	int initialized = 0;
	MPI_Initialized(&initialized);
	int32_t speak = 1;
	int32_t all_here = !initialized;
	int32_t process = 0;
	int32_t processes = 1;
	if (comm != NULL) {
		process = zcc_comm_rank(comm);
		processes = zcc_comm_size(comm);
		int64_t wait_ns = status == 0         ? DONE_WAIT_NS
		                  : zcc_interrupted() ? zcc_stop_ns() / STOPPED_WAIT_SHARE
		                                      : FAILED_WAIT_NS;
		bool stopped = tells_of_a_signal(message);
		zcc_comm_farewell(comm, stopped ? "stopped" : message, stopped, wait_ns, &speak, &all_here);
	}
	if (message != NULL && speak) {
		if (name_process && processes > 1)
			fprintf(stderr, "zccrun: process %d: %s\n", process, message);
		else
			fprintf(stderr, "zccrun: %s\n", message);
	}
	default_signals();
	if (initialized && !all_here) {
		MPI_Abort(MPI_COMM_WORLD, status);
		_exit(status);
	}
	if (status != 0)
		alarm(FINALIZE_SECONDS);
	zcc_comm_destroy(comm);
	if (initialized) {
		check_leaks();
		MPI_Finalize();
	}
	exit(status);
}
