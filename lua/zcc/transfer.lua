-- Carrying out a plan between processes, and verifying what came out: objects over zcc/transfer.h.
local fault = require "zcc.error"
local object = require "zcc.object"
local options_of = require "zcc.options"
local zffi = require "zcc.ffi"

local ffi, lib = zffi.ffi, zffi.lib

local M = {}

local side_number = { source = lib.ZCC_SOURCE, target = lib.ZCC_TARGET }

-- ---- placement ----

local Placement = {}
Placement.__index = Placement

--- Spreads ranks (an ascending list) over the processes of comm in equal blocks, neighbours together.
function M.spread(ranks, comm)
	local self = setmetatable({ by_rank = {}, ranks = ranks, comm = comm }, Placement)
	for i, rank in ipairs(ranks) do
		self.by_rank[rank] = math.floor((i - 1) * comm.size / #ranks)
	end
	return self
end

--- The process a rank is placed on.
function Placement:process(rank)
	return self.by_rank[rank]
end

--- The ranks placed on this process, ascending.
function Placement:here()
	local here = {}
	for _, rank in ipairs(self.ranks) do
		if self.by_rank[rank] == self.comm.rank then
			here[#here + 1] = rank
		end
	end
	return here
end

-- ---- transfers ----

local Transfer = object.class("transfer", lib.zcc_transfer_destroy)

local create_schema = {
	staging_bytes = { type = "bytes" }, device = { type = "table" },
	transport = { type = "choice", choices = { "mpi", "nccl" } },
}

--- A built plan on the processes of comm. Options: staging_bytes (per peer); device, where all memory that is bound
--- lies; transport: how bytes go from a process's device to another's, "mpi" (through pinned memory) or "nccl".
function M.create(plan, comm, given)
	local options = options_of.check(create_schema, given, "transfer")
	if options.transport and not options.device then
		fault.raise("ZCC_EINVAL", "transfer: transport %s goes between devices, option device is missing",
			options.transport)
	end
	local opts, out, err = ffi.new("zcc_transfer_options"), ffi.new("zcc_transfer *[1]"), zffi.new_error()
	lib.zcc_transfer_options_init(opts)
	if options.staging_bytes then
		opts.staging_bytes = options.staging_bytes
	end
	zffi.check(lib.zcc_transfer_create(plan:pointer(), comm:pointer(), opts, out, err), err)
	local made = object.wrap(Transfer, out[0], { plan, comm, options.device })
	if options.device then
		local done, problem = pcall(zffi.check, lib.zcc_transfer_set_device(made:pointer(), options.device:pointer(),
			options.transport, err), err)
		if not done then
			made:close()
			error(problem, 0)
		end
	end
	return made
end

--- The endpoint table of one side: a Placement, or "file" for ranks that are storage files.
function Transfer:place(side, ranks, placement)
	local err = zffi.new_error()
	for _, rank in ipairs(ranks) do
		local process = placement == "file" and lib.ZCC_ENDPOINT_FILE or placement:process(rank)
		zffi.check(lib.zcc_transfer_place(self:pointer(), side_number[side], rank, process, err), err)
	end
end

--- `param` is the index in that side's layout, from 1. The buffer is kept alive by the transfer.
function Transfer:bind_memory(side, rank, param, buffer, offset_bytes, bytes)
	local err = zffi.new_error()
	zffi.check(lib.zcc_transfer_bind_memory(self:pointer(), side_number[side], rank, param - 1,
		buffer:at(offset_bytes, bytes),
		bytes, err), err)
	self.pins[buffer] = true
end

function Transfer:bind_file(side, rank, param, file, offset_bytes, bytes)
	local err = zffi.new_error()
	zffi.check(lib.zcc_transfer_bind_file(self:pointer(), side_number[side], rank, param - 1,
		file:pointer(), offset_bytes, bytes, err),
		err)
end

local result_fields = { "staging_peak_bytes", "wire_bytes", "copied_bytes", "read_bytes", "written_bytes", "ns" }

-- How long the engine works before it is asked how far it has come.
local SLICE_NS = 50000000

-- Works on a run until this process has nothing left to do.
local function advance(self, report, slice_ns)
	local err, finished, bytes = zffi.new_error(), ffi.new("int32_t[1]"), ffi.new("int64_t[2]")
	zffi.check(lib.zcc_transfer_submit(self:pointer(), err), err)
	repeat
		zffi.check(lib.zcc_transfer_test(self:pointer(), slice_ns or SLICE_NS, finished, err), err)
		if report then
			lib.zcc_transfer_progress(self:pointer(), bytes, bytes + 1)
			report(zffi.number(bytes[0]), zffi.number(bytes[1]))
		end
	until finished[0] == 1
end

--- Collective. What this process did, as a table of zcc_transfer_result's fields. report(done, total), which may be
--- nil, is called with the bytes of this process: several times a second, or after slice_ns nanoseconds of work each.
function Transfer:run(report, slice_ns)
	local ok, why = pcall(advance, self, report, slice_ns)
	-- A signal or a fault of report in the middle of a run: the others wait to hear of its end all the same.
	if not ok and lib.zcc_transfer_test(self:pointer(), 0, ffi.new("int32_t[1]"), nil) ~= 0 then
		error(why, 0)
	end
	local result, err = ffi.new("zcc_transfer_result"), zffi.new_error()
	zffi.check(lib.zcc_transfer_wait(self:pointer(), result, err), err)
	if not ok then
		error(why, 0)
	end
	local done = {}
	for _, field in ipairs(result_fields) do
		done[field] = zffi.number(result[field], field)
	end
	return done
end

-- ---- verification ----

local Verify = object.class("verification", lib.zcc_verify_destroy)

--- Compares two stored layouts element by element, without a plan. Both sides are bound as files.
function M.verify(target, source)
	local out, err = ffi.new("zcc_verify *[1]"), zffi.new_error()
	zffi.check(lib.zcc_verify_create(target:pointer(), source:pointer(), out, err), err)
	return object.wrap(Verify, out[0], { target, source })
end

function Verify:bind_file(side, rank, param, file, offset_bytes, bytes)
	local err = zffi.new_error()
	zffi.check(lib.zcc_verify_bind_file(self:pointer(), side_number[side], rank, param - 1, file:pointer(),
		offset_bytes, bytes, err),
		err)
end

--- Collective. Bytes compared by all processes; a difference is raised on all. report(done, total), which may be nil,
--- is called several times a second with the bytes of this process.
function Verify:run(comm, report)
	local bytes, finished, err = ffi.new("int64_t[2]"), ffi.new("int32_t[1]"), zffi.new_error()
	local ok, why = pcall(function()
		while report and finished[0] == 0 do
			-- A fault is told by the run, to all.
			lib.zcc_verify_test(self:pointer(), comm:pointer(), SLICE_NS, finished, err)
			lib.zcc_verify_progress(self:pointer(), bytes, bytes + 1)
			report(zffi.number(bytes[0]), zffi.number(bytes[1]))
		end
	end)
	zffi.check(lib.zcc_verify_run(self:pointer(), comm:pointer(), bytes, err), err)
	if not ok then
		error(why, 0)
	end
	return zffi.number(bytes[0], "bytes compared")
end

return M
