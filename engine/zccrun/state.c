#include "state.h"

#include <dlfcn.h>
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"

typedef struct request {
	const char *root;
	const char *recipe;
	int n_args;
	char **args;
	bool debug;
} request;

static lua_State *state;
static zcc_comm *group;
/* Set once clean-up has begun, which a signal must not cut short. */
static volatile sig_atomic_t ending;
static struct sigaction note_signal[NSIG];
static struct timespec first_signal;

/* Runs inside the interpreter at the next call, return or instruction after a signal. */
static void stop(lua_State *L, lua_Debug *where)
{
	lua_sethook(L, NULL, 0, 0);
	/* What runs is at level 0 here, for a hook has no frame; a function of C knows no line. */
	luaL_checkstack(L, 4, NULL);
	lua_pushliteral(L, "");
	for (int level = 0; lua_getstack(L, level, where); level++) {
		lua_getinfo(L, "Sl", where);
		if (where->currentline > 0) {
			lua_pushfstring(L, "%s:%d: ", where->short_src, where->currentline);
			break;
		}
	}
	lua_pushfstring(L, "%sstopped by %s", lua_tostring(L, -1), strsignal(zcc_interrupted()));
	lua_error(L);
}

/* The library's own handler notes the signal for its waits; lua_sethook is what LuaJIT's own program calls in a
 * handler. A loop that cannot be stopped is ended by a signal that comes two seconds or more after the first; before
 * that it is the same wish, told by a launcher that signals each process and then those that are left. */
static void on_signal(int number)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (zcc_interrupted()) {
		if (now.tv_sec - first_signal.tv_sec > 1) {
			signal(number, SIG_DFL);
			raise(number);
		}
		return;
	}
	first_signal = now;
	note_signal[number].sa_handler(number);
	if (!ending)
		lua_sethook(state, stop, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

static void disregard(int number)
{
	(void)number;
}

static void watch_signals(void)
{
	zcc_interrupt_watch();
	struct sigaction action = {.sa_handler = on_signal};
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, &note_signal[SIGINT]);
	sigaction(SIGTERM, &action, &note_signal[SIGTERM]);
	/* The terminal that went away, unless nohup says that it may. */
	struct sigaction hangup;
	sigaction(SIGHUP, NULL, &hangup);
	if (hangup.sa_handler != SIG_IGN) {
		note_signal[SIGHUP] = note_signal[SIGTERM];
		sigaction(SIGHUP, &action, NULL);
	}
	/* Writing to a pipe that nobody reads, or beyond the size that a file may have, fails by itself. A handler and
	 * not SIG_IGN, which programs started by a recipe would inherit. */
	struct sigaction failure = {.sa_handler = disregard, .sa_flags = SA_RESTART};
	sigemptyset(&failure.sa_mask);
	sigaction(SIGPIPE, &failure, NULL);
	sigaction(SIGXFSZ, &failure, NULL);
}

static int begin_end(lua_State *L)
{
	ending = 1;
	lua_sethook(L, NULL, 0, 0);
	/* Those that clean up are not ended by the launcher of a job that is being ended, nor by impatience. */
	struct sigaction action = {.sa_handler = disregard, .sa_flags = SA_RESTART};
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	return 0;
}

/* What os.exit becomes: Lua's finalizers, MPI and buffered output get their due. */
static int exit_program(lua_State *L)
{
	int status = (int)luaL_checkinteger(L, 1);
	lua_close(L);
	launch_end(group, status, NULL, false);
}

static void set_function(lua_State *L, const char *name, lua_CFunction function)
{
	lua_pushcfunction(L, function);
	lua_setfield(L, -2, name);
}

/* package.loaded["zcc.program"]: what the Lua side needs to know of this program. Leaves it on the stack. */
static void push_program(lua_State *L, const request *r)
{
	lua_getglobal(L, "package");
	lua_getfield(L, -1, "loaded");
	lua_newtable(L);
	Dl_info library;
	if (dladdr((void *)(intptr_t)zcc_version, &library) != 0 && library.dli_fname != NULL) {
		lua_pushstring(L, library.dli_fname);
		lua_setfield(L, -2, "library");
	}
	lua_pushlightuserdata(L, group);
	lua_setfield(L, -2, "comm");
	lua_pushstring(L, r->recipe);
	lua_setfield(L, -2, "recipe");
	lua_createtable(L, r->n_args, 0);
	for (int i = 0; i < r->n_args; i++) {
		lua_pushstring(L, r->args[i]);
		lua_rawseti(L, -2, i + 1);
	}
	lua_setfield(L, -2, "args");
	lua_pushboolean(L, r->debug);
	lua_setfield(L, -2, "debug");
	lua_pushboolean(L, isatty(STDERR_FILENO));
	lua_setfield(L, -2, "stderr_is_terminal");
	set_function(L, "begin_end", begin_end);
	set_function(L, "exit", exit_program);
	lua_pushvalue(L, -1);
	lua_setfield(L, -3, "zcc.program");
}

static void set_path(lua_State *L, const char *root)
{
	lua_getglobal(L, "package");
	lua_pushfstring(L, "%s/lua/?.lua;%s/lua/?/init.lua;", root, root);
	lua_getfield(L, -2, "path");
	lua_concat(L, 2);
	lua_setfield(L, -2, "path");
	lua_pop(L, 1);
}

/* Protected. Returns what zcc.main's run returns. */
static int run_main(lua_State *L)
{
	const request *r = lua_touserdata(L, 1);
	luaL_openlibs(L);
	set_path(L, r->root);
	push_program(L, r);
	lua_getglobal(L, "require");
	lua_pushliteral(L, "zcc.main");
	lua_call(L, 1, 1);
	lua_getfield(L, -1, "run");
	lua_pushvalue(L, -3);
	lua_call(L, 1, 3);
	return 3;
}

_Noreturn void state_run(zcc_comm *comm, const char *root, const char *recipe, int n_args, char **args, bool debug)
{
	request r = {root, recipe, n_args, args, debug};
	group = comm;
	state = luaL_newstate();
	if (state == NULL)
		launch_end(comm, 1, "no memory for the Lua state", true);
	watch_signals();
	int status = 1;
	bool name_process = true;
	char *message = NULL;
	lua_pushcfunction(state, run_main);
	lua_pushlightuserdata(state, &r);
	if (lua_pcall(state, 1, 3, 0) == 0) {
		status = (int)lua_tointeger(state, -3);
		name_process = !lua_toboolean(state, -1);
		lua_pop(state, 1);
	}
	const char *text = lua_tostring(state, -1);
	if (text != NULL)
		message = strdup(text);
	else if (status != 0)
		message = strdup("an error that is no text");
	ending = 1;
	lua_close(state);
	launch_end(comm, status, message, name_process);
}
