-- The program from outside: what it prints, where, and how it ends. $ZCCRUN is the program, $MPIRUN the launcher and
-- its options.

local program = assert(os.getenv "ZCCRUN")
local launcher = assert(os.getenv "MPIRUN")
local recipes = "tests/cli/recipes/"

package.path = "tests/cli/?.lua;" .. package.path

local slurp = require "outside".slurp

-- Runs a shell command without single quotes in it; returns its status, stdout and stderr.
local function shell(command)
	local out, err = os.tmpname(), os.tmpname()
	local script = ("( %s ) >%s 2>%s </dev/null; echo $?"):format(command, out, err)
	local pipe = io.popen(("bash -c '%s'"):format(script))
	local status = tonumber(pipe:read("*a"))
	pipe:close()
	local output, errors = slurp(out), slurp(err)
	os.remove(out)
	os.remove(err)
	return status, output, errors
end

local function zccrun(arguments)
	return shell(program .. " " .. arguments)
end

local function mpirun(processes, arguments)
	return shell(("timeout 200 %s -n %d %s %s"):format(launcher, processes, program, arguments))
end

-- Runs a command with --hook, and the shell lines `act` on its process $it as soon as that many processes are up.
-- Returns its status, stdout, stderr and how the names end of the files that it made at $mark.
local function signalled(command, processes, act)
	local mark = os.tmpname()
	local up = "true"
	for rank = 0, processes - 1 do
		up = up .. (" && [ -e $mark.up.%d ]"):format(rank)
	end
	-- It takes the place of the shell that knew its number; who acts is no child of it.
	local status, out, err = shell(([[
		it=$BASHPID; mark=%s
		( { until %s || ! kill -0 $it; do sleep 0.05; done; %s; } >/dev/null 2>&1 & )
		exec %s --hook $mark]]):format(mark, up, act, command))
	local pipe, marks = io.popen(("ls -d %s.*"):format(mark)), {}
	for path in pipe:lines() do
		marks[#marks + 1] = path:sub(#mark + 2)
	end
	pipe:close()
	table.sort(marks)
	os.execute(("rm -f %s %s.*"):format(mark, mark))
	return status, out, err, table.concat(marks, " ")
end

local function count(text, part)
	local n, from = 0, 1
	while true do
		local _, last = text:find(part, from, true)
		if not last then
			return n
		end
		n, from = n + 1, last + 1
	end
end

local function line_of(file, part)
	local number = 0
	for line in io.lines(file) do
		number = number + 1
		if line:find(part, 1, true) then
			return number
		end
	end
end

local ends = recipes .. "ends.lua"

describe("zccrun", function()
	it("prints_help_and_version_on_stdout", function()
		local status, out, err = zccrun("--help")
		assert.are.equal(0, status)
		assert.is_truthy(out:find("Usage: zccrun", 1, true))
		assert.are.equal("", err)
		status, out = zccrun("--version")
		assert.are.equal(0, status)
		assert.is_truthy(out:find("^zccrun %d+%.%d+%.%d+\n$"))
	end)

	it("lists_the_devices_of_this_machine_and_says_why_one_is_missing", function()
		local status, out, err = zccrun("--devices")
		assert.are.equal(0, status)
		assert.are.equal("", err)
		assert.is_truthy(out:find("^host +this machine"))
		assert.is_truthy(out:find("\nlate:host +for tests"))
		assert.is_truthy(out:find("\ncuda:?%d* +[^\n]+\n"))
		assert.is_truthy(select(2, zccrun("--help")):find("--devices", 1, true))
	end)

	it("prints_a_recipes_arguments", function()
		local status, out, err = zccrun(recipes .. "arguments.lua --staging nonsense --help")
		assert.are.equal(0, status)
		assert.are.equal("", err)
		assert.is_truthy(out:find("Prints the arguments that it got.", 1, true))
		assert.is_truthy(out:find("The staging budget. (default: 8MiB)", 1, true))
		out = select(2, zccrun("compare --help"))
		assert.is_truthy(out:find("^Usage: zccrun compare "), out)
	end)

	it("speaks_once_whatever_the_number_of_processes", function()
		local file = recipes .. "arguments.lua"
		for _, arguments in ipairs{ "--help", "--version", "--devices", file .. " --help", file } do
			local _, alone = zccrun(arguments)
			local status, out = mpirun(4, arguments)
			assert.are.equal(0, status)
			assert.are.equal(alone, out)
		end
	end)

	it("hands_the_recipe_its_arguments", function()
		local status, out = zccrun(recipes ..
			"arguments.lua --staging 1.5MiB --count 7 --policy lowest --dry-run --in tests/cli/recipes/ends.lua")
		assert.are.equal(0, status)
		assert.are.equal('{"count":7,"decay":0.5,"dry_run":true,"in":"tests/cli/recipes/ends.lua","policy":"lowest",' ..
			'"staging":1572864}\n', out)
	end)

	it("misuse_is_status_2_with_a_message_and_nothing_on_stdout", function()
		local cases = {
			[""] = "no recipe is named",
			["--nonsense"] = "unknown option --nonsense; a recipe's options come behind its name",
			["--devices host"] = "nothing belongs behind --devices, found host",
			["--version 2"] = "nothing belongs behind --version, found 2",
			["nowhere/at/all.lua"] = "no recipe nowhere/at/all.lua",
			["tests"] = "no recipe tests",
			[recipes .. "no_recipe.lua"] = "no_recipe.lua is no recipe: it returns a number",
			[recipes .. "arguments.lua --nonsense"] = "unknown option '--nonsense'",
			[recipes .. "arguments.lua stray"] = "unexpected argument 'stray'",
			[recipes .. "arguments.lua --count"] = "'--count' requires an argument",
			[recipes .. "arguments.lua --count ten"] = '--count: "ten" is no whole number',
			[recipes .. "arguments.lua --count -1"] = "--count: -1 is less than 1",
			[recipes .. "arguments.lua --count 10"] = "--count: 10 is more than 9",
			[recipes .. "arguments.lua --decay inf"] = '--decay: "inf" is no number',
			[recipes .. "arguments.lua --staging 8MiBs"] = "--staging: \"8MiBs\" is no amount of bytes",
			[recipes .. "arguments.lua --staging 1"] = "--staging: 1 is less than 4096",
			[recipes .. "arguments.lua --policy best"] = "must be one of 'balanced', 'lowest'",
			[recipes .. "arguments.lua --in nowhere"] = "--in: nowhere: No such file or directory",
			[ends] = "missing option '--how'",
			["bench/plan.lua --filter nosuch"] = "--filter: 'nosuch' matches none of the cases:\n  qwen3-8b dp=4",
			["bench/plan.lua --filter ["] = "--filter: '[' is no Lua pattern: ",
		}
		for arguments, message in pairs(cases) do
			local status, out, err = zccrun(arguments)
			assert.are.equal(2, status, arguments .. ": " .. err)
			assert.are.equal("", out)
			assert.is_truthy(err:find(message, 1, true), err)
		end
	end)

	it("misuse_is_said_once_under_mpirun", function()
		local status, _, err = mpirun(4, recipes .. "arguments.lua --count 10")
		assert.are.equal(2, status)
		assert.are.equal(1, count(err, "--count: 10 is more than 9"))
	end)

	it("an_error_in_a_recipe_is_status_1_with_file_line_and_message", function()
		local status, out, err = zccrun(ends .. " --how all_fail")
		assert.are.equal(1, status)
		assert.are.equal("", out)
		assert.are.equal(("zccrun: %s:%d: all of us\n"):format(ends, line_of(ends, 'error("all of us")')), err)
		local others = {
			[recipes .. "broken.lua"] = "broken.lua:1:",
			[recipes .. "misdeclared.lua"] = "misdeclared.lua: argument --in: type must be one of",
			[ends .. " --how table_error"] = "an error that is no text: table",
		}
		for arguments, message in pairs(others) do
			status, out, err = zccrun(arguments)
			assert.are.equal(1, status)
			assert.are.equal("", out)
			assert.is_truthy(err:find(message, 1, true), err)
		end
	end)

	it("a_module_that_zcc_lacks_is_an_error_at_the_recipes_line", function()
		local status, _, err = zccrun(ends .. " --how no_module")
		assert.are.equal(1, status)
		assert.is_truthy(err:find(("%s:%d: zcc has no nonsense"):format(ends, line_of(ends, "zcc.nonsense")), 1, true), err)
	end)

	it("debug_adds_a_traceback", function()
		local _, _, plain = zccrun(ends .. " --how all_fail")
		assert.are.equal(0, count(plain, "traceback"))
		for _, command in ipairs{ program .. " --debug ", "ZCC_DEBUG=1 " .. program .. " " } do
			local status, _, err = shell(command .. ends .. " --how all_fail")
			assert.are.equal(1, status)
			assert.are.equal(1, count(err, "stack traceback:"))
		end
	end)

	it("when_all_processes_fail_the_message_comes_once", function()
		local status, _, err = mpirun(4, ends .. " --how all_fail")
		assert.are.equal(1, status)
		assert.are.equal(1, count(err, ("%s:%d: all of us"):format(ends, line_of(ends, 'error("all of us")'))), err)
	end)

	it("when_one_fails_and_the_others_wait_for_it_all_end_with_its_message", function()
		local place = ("%s:%d: only one"):format(ends, line_of(ends, 'error("only one")'))
		local status, _, err = mpirun(4, ends .. " --how one_fails_in_a_barrier")
		assert.are.equal(1, status)
		assert.are.equal(1, count(err, "zccrun: process 2: " .. place), err)
		assert.are.equal(1, count(err, "only one"), err)
	end)

	it("when_one_fails_after_the_others_are_done_the_run_has_failed", function()
		local status, _, err = mpirun(4, ends .. " --how one_fails_alone --rank 0")
		assert.are.equal(1, status)
		assert.are.equal(1, count(err, "zccrun: process 0: "), err)
	end)

	it("an_agreed_fault_is_said_once_and_names_its_process", function()
		local status, _, err = mpirun(4, ends .. " --how together")
		assert.are.equal(1, status)
		assert.are.equal(1, count(err, "agreed on (ZCC_EINVAL, process 2)"), err)
		assert.are.equal(1, count(err, "agreed on"), err)
	end)

	it("a_fault_of_the_engine_names_the_recipes_line_and_the_engines", function()
		local status, _, err = mpirun(4, ends .. " --how engine")
		assert.are.equal(1, status)
		assert.are.equal(1, count(err, ("%s:%d: "):format(ends, line_of(ends, "comm:same"))), err)
		assert.is_truthy(err:find("%(ZCC_EAGREE, comm%.c:%d+"), err)
		assert.is_truthy(err:find("the answer", 1, true), err)
	end)

	it("a_fault_in_a_recipe_that_comes_with_zcc_names_no_line_of_it", function()
		for _, recipe in ipairs{ "compare", "recipes/compare.lua", "tests/../recipes/compare.lua" } do
			local command = recipe .. " --in nowhere --with nowhere"
			local status, _, err = zccrun(command)
			assert.are.equal(1, status)
			assert.are.equal("zccrun: nowhere does not exist (ZCC_EIO)\n", err)
			err = select(3, zccrun("--debug " .. command))
			assert.is_truthy(err:find("compare.lua:%d+"), err)
		end
	end)

	it("os_exit_ends_in_order_with_its_status", function()
		for _, wanted in ipairs{ 0, 3 } do
			local status, out = zccrun(("%s --how os_exit --status %d"):format(ends, wanted))
			assert.are.equal(wanted, status)
			assert.are.equal("written\n", out)
			local err
			status, out, err = mpirun(2, ("%s --how os_exit --status %d"):format(ends, wanted))
			assert.are.equal(wanted, status, err)
			assert.are.equal("written\nwritten\n", out)
			assert.is_nil(err:find("finalize", 1, true), err)
		end
	end)

	it("os_exit_with_what_is_no_status_is_a_failure", function()
		for _, wanted in ipairs{ 256, -1 } do
			assert.are.equal(1, (zccrun(("%s --how os_exit --status=%d"):format(ends, wanted))))
		end
	end)

	it("os_exit_of_one_process_does_not_hang_the_others", function()
		local status = mpirun(3, ends .. " --how os_exit_of_one --status 4")
		assert.are.equal(4, status)
	end)

	it("a_signal_stops_the_recipe_and_its_clean_up_runs", function()
		for _, how in ipairs{ "loop", "wait" } do
			local status, _, err, marks = signalled(("%s %s --how %s --rank 9"):format(program, ends, how), 1, "kill -TERM $it")
			assert.are.equal(1, status)
			assert.are.equal(1, count(err, "stopped by Terminated"), err)
			if how == "loop" then
				assert.is_truthy(err:find(("zccrun: %s:%%d+: stopped"):format(ends)), err)
			end
			assert.are.equal("clean.0 cleaning.0 up.0", marks)
		end
		for _, name in ipairs{ "INT", "HUP" } do
			local status, _, err = signalled(("%s %s --how loop"):format(program, ends), 1, "kill -" .. name .. " $it")
			assert.are.equal(1, status)
			assert.are.equal(1, count(err, "stopped by "), err)
		end
		-- One that was told to outlive its terminal does.
		local _, _, err = signalled(("nohup %s %s --how loop"):format(program, ends), 1,
			"kill -HUP $it; sleep 0.3; kill -TERM $it")
		assert.are.equal(1, count(err, "stopped by Terminated"), err)
	end)

	it("processes_that_are_started_for_different_work_are_refused", function()
		for _, other in ipairs{ ends .. " --how os_exit", recipes .. "arguments.lua", ends .. " --help" } do
			local status, _, err = shell(("timeout 200 %s -n 1 %s %s --how well : -n 2 %s %s"):format(launcher, program, ends,
				program, other))
			assert.are.equal(2, status)
			assert.are.equal(1, count(err, "process 1 was started as"), err)
		end
	end)

	it("one_that_knows_why_speaks_for_those_who_were_ended", function()
		local status, _, err = mpirun(3, ends .. " --how one_fails_in_a_barrier")
		assert.are.equal(1, status)
		assert.are.equal(1, count(err, "zccrun: "), err)
	end)

	it("clean_up_is_not_ended_by_further_signals", function()
		for _, how in ipairs{ "loop", "wait" } do
			local go = os.tmpname()
			os.remove(go)
			local command = ("%s %s --how %s --rank 9 --hook-until %s"):format(program, ends, how, go)
			local status, _, err, marks = signalled(command, 1,
				"kill -TERM $it; until [ -e $mark.cleaning.0 ] || ! kill -0 $it; do sleep 0.05; done; " ..
				"for i in 1 2 3; do kill -TERM $it; sleep 0.1; done; touch " .. go)
			os.remove(go)
			assert.are.equal(1, status)
			assert.are.equal(1, count(err, "stopped by Terminated"), err)
			assert.are.equal("clean.0 cleaning.0 up.0", marks)
		end
	end)

	it("a_signal_to_mpirun_ends_all_processes_and_their_clean_up_runs", function()
		-- mpirun kills what is left after its second signal, or so many seconds after its first.
		local status, _, err, marks = signalled(("env OMPI_MCA_odls_base_sigkill_timeout=8 %s -n 3 %s %s --how wait --rank 1")
			:format(launcher, program, ends), 3, "kill -TERM $it")
		assert.is_true(status > 0)
		-- Each was stopped at another place.
		assert.are.equal(1, count(err, "stopped by Terminated"), err)
		assert.are.equal("clean.0 clean.1 clean.2 cleaning.0 cleaning.1 cleaning.2 up.0 up.1 up.2", marks)
	end)

	it("lua_sees_the_processes_as_they_are", function()
		for _, processes in ipairs{ 1, 2, 4 } do
			local status, out, err = mpirun(processes, recipes .. "collective.lua")
			assert.are.equal(0, status, err)
			assert.are.equal(("checked on %d\n"):format(processes), out)
		end
	end)

	it("a_reader_that_goes_away_is_no_crash", function()
		local status, out, err = shell(("%s %s --how many_lines | head -1; exit ${PIPESTATUS[0]}"):format(program, ends))
		assert.are.equal("line\t1\n", out)
		assert.are.equal("", err)
		assert.are.equal(0, status)
	end)

	it("a_closed_stream_lends_its_number_to_no_file", function()
		for _, streams in ipairs{ "2>&-", "<&- >&- 2>&-" } do
			local path = os.tmpname()
			shell(("%s %s --how speak_with_a_file_open --hook %s %s"):format(program, ends, path, streams))
			assert.are.equal("content", slurp(path))
			os.remove(path)
		end
	end)

	it("as_many_files_may_be_open_as_the_system_allows", function()
		local status, _, err = shell(("ulimit -Sn 64; %s %s --how open_many_files"):format(program, ends))
		assert.are.equal(0, status, err)
	end)

	it("results_that_cannot_be_written_are_a_failure", function()
		local status, _, err = shell(("%s %s --how well >/dev/full"):format(program, ends))
		assert.are.equal(1, status)
		assert.is_truthy(err:find("stdout", 1, true), err)
	end)

	it("what_is_known_to_fail_at_the_end_fails_before_the_recipe_runs", function()
		local arguments = "recipes/copyback.lua --elems 1000"
		for _, run in ipairs { zccrun, function(...) return mpirun(2, ...) end } do
			local status, out, err = run(arguments .. " --report /no/such/folder/report.json")
			assert.are.equal(1, status, err)
			assert.are.equal("", out)
			assert.are.equal(1, count(err, "/no/such/folder/report.json"), err)
		end
		for _, number in ipairs { "abc", "0", "-1", "0x2", "100000", "2.5", "\\ " } do
			local status, out, err = shell(("ZCC_THREADS=%s %s %s"):format(number, program, arguments))
			assert.are.equal(2, status, err)
			assert.are.equal("", out)
			assert.are.equal(1, count(err, "$ZCC_THREADS is "), err)
		end
		assert.are.equal(0, (shell(("ZCC_THREADS=1 %s %s"):format(program, arguments))))
	end)
end)
