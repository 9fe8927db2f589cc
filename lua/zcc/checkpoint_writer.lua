-- A checkpoint being written: under a temporary name, published by one rename after all processes are done. All
-- calls are collective.
--
-- A sharded layout gives one rank file per rank, filled from memory by the process that the rank is placed on.
-- `full` gives safetensors files with an index, into which every process writes its byte ranges directly.
local checkpoint = require "zcc.checkpoint"
local json = require "zcc.json"
local store = require "zcc.store"
local textfile = require "zcc.textfile"

local M = {}

-- Files of an unsharded checkpoint are filled up to this size, as Hugging Face's are.
local FULL_FILE_BYTES = 5000000000

local Writer = {}
Writer.__index = Writer

-- ---- the files to come ----

local function full_files(params)
	local files, bytes = { {} }, 0
	for index, param in ipairs(params) do
		if bytes > 0 and bytes + param.bytes > FULL_FILE_BYTES then
			files[#files + 1] = {}
			bytes = 0
		end
		local file = files[#files]
		file[#file + 1] = { index = index, name = param.name, dtype = param.dtype, shape = param.shape }
		bytes = bytes + param.bytes
	end
	for i, file in ipairs(files) do
		file.name = #files == 1 and checkpoint.SINGLE or ("model-%05d-of-%05d.safetensors"):format(i, #files)
	end
	return files
end

local function rank_files(layout)
	local files, ranks = {}, layout:ranks()
	for i, rank in ipairs(ranks) do
		local file = { name = checkpoint.rank_file(rank, #ranks), rank = rank }
		for index, param in ipairs(layout:params()) do
			local shard = layout:shard(index, rank)
			if shard then
				file[#file + 1] = { index = index, name = param.name, dtype = param.dtype, shape = shard.shape }
			end
		end
		files[i] = file
	end
	return files
end

-- The header's metadata in an order that is the same everywhere. Readers of the format ask for the key "format".
local function sorted_pairs(metadata)
	local list = {}
	for key, value in pairs(metadata or { format = "pt" }) do
		list[#list + 1] = { key, value }
	end
	table.sort(list, function(a, b) return a[1] < b[1] end)
	return list
end

--- Opens OUT.tmp.<nonce>. options: path, replace, comm, layout (target Layout), full (whether it is the unsharded
--- checkpoint), placement (of target ranks), metadata ({ key = value }, or nil), progress (nil, or called with what is
--- done, and the bytes done and to do of this process).
function M.begin(options)
	local self = setmetatable({ comm = options.comm, layout = options.layout, full = options.full,
		placement = options.placement, metadata = sorted_pairs(options.metadata), written_bytes = 0,
		progress = options.progress or function() end, open_files = {}, buffers = {} }, Writer)
	self.files = self.full and full_files(self.layout:params()) or rank_files(self.layout)
	self.comm:together(function()
		if self.comm.rank == 0 then
			self.folder_handle = store.begin_folder(options.path, options.replace)
		end
	end)
	self.folder = self.comm:broadcast(self.folder_handle and self.folder_handle:path(), 0)
	return self
end

-- Whether this process creates and checksums file number i.
function Writer:mine(i)
	if self.full then
		return (i - 1) % self.comm.size == self.comm.rank
	end
	return self.placement:process(self.files[i].rank) == self.comm.rank
end

--- Creates every file with its header and space reserved, and binds the target side of the transfer.
function Writer:bind(transfer)
	self.comm:together(function()
		for i, file in ipairs(self.files) do
			if self:mine(i) then
				local header = store.safetensors_writer()
				for _, tensor in ipairs(file) do
					header:add(tensor.name, tensor.dtype, tensor.shape)
				end
				for _, pair in ipairs(self.metadata) do
					header:metadata(pair[1], pair[2])
				end
				header:finish(self.folder .. "/" .. file.name)
			end
		end
	end)
	self.comm:together(function()
		for i, file in ipairs(self.files) do
			if self.full or self:mine(i) then
				self:bind_file(transfer, file)
			end
		end
	end)
end

function Writer:bind_file(transfer, file)
	local path = self.folder .. "/" .. file.name
	local tensors = store.open_safetensors(path)
	local handle = store.open_file_for_writing(path)
	local start, buffer = tensors:data_offset(), nil
	if not self.full then
		buffer = store.buffer(handle:bytes() - start)
		self.buffers[#self.buffers + 1] = { buffer = buffer, file = handle, start = start }
	end
	for _, entry in ipairs(file) do
		local tensor = tensors:find(entry.name)
		if self.full then
			transfer:bind_file("target", self.layout:ranks()[1], entry.index, handle, tensor.offset, tensor.bytes)
		else
			transfer:bind_memory("target", file.rank, entry.index, buffer, tensor.offset - start, tensor.bytes)
		end
	end
	tensors:close()
	self.open_files[#self.open_files + 1] = handle
end

--- Writes the shards in memory to their files. Call after the transfer.
function Writer:write()
	self.comm:together(function()
		local total = 0
		for _, shard in ipairs(self.buffers) do
			total = total + shard.buffer.bytes
		end
		for _, shard in ipairs(self.buffers) do
			shard.file:write(shard.start, shard.buffer, function(bytes)
				self.written_bytes = self.written_bytes + bytes
				self.progress("writing", self.written_bytes, total)
			end)
		end
	end)
end

--- Closes files and frees shards in memory; after write.
function Writer:close_files()
	for _, file in ipairs(self.open_files) do
		file:close()
	end
	for _, shard in ipairs(self.buffers) do
		shard.buffer:close()
	end
	self.open_files, self.buffers = {}, {}
end

--- Calls bind(rank, param index, file, offset, bytes) for every shard, all of them files. For verification.
function Writer:each_shard_file(bind)
	for _, file in ipairs(self.files) do
		local tensors = store.open_safetensors(self.folder .. "/" .. file.name)
		for _, entry in ipairs(file) do
			local tensor = tensors:find(entry.name)
			bind(file.rank or self.layout:ranks()[1], entry.index, tensors:file(), tensor.offset, tensor.bytes)
		end
		tensors:close()
	end
end

-- Small text files that make a model folder usable: configuration, tokenizer, templates.
local function side_files(folder)
	local names = {}
	for _, name in ipairs(store.list(folder)) do
		local wanted = name:match("%.json$") or name:match("%.txt$") or name:match("%.jinja$")
			or name:match("^tokenizer%.model$")
		if wanted and name ~= checkpoint.MANIFEST and not name:match("%.index%.json$")
			and store.path_kind(folder .. "/" .. name) == "file" then
			names[#names + 1] = name
		end
	end
	return names
end

local function write_index(self)
	local map, total = {}, 0
	for _, file in ipairs(self.files) do
		for _, entry in ipairs(file) do
			map[entry.name] = file.name
			total = total + self.layout:params()[entry.index].bytes
		end
	end
	textfile.write(self.folder .. "/" .. checkpoint.INDEX,
		json.encode({ metadata = { total_size = total }, weight_map = map }, { indent = 2 }) .. "\n")
end

-- { name, bytes, xxh3 } of every file in the folder. Each process hashes its own share and brings 0 for the rest;
-- a digest's 64 bits do not fit a number, so its halves are summed apart.
local function checksums(self, names)
	local sums, digests = {}, json.array {}
	self.comm:together(function()
		local own, done, total = {}, 0, 0
		for i, name in ipairs(names) do
			if i > #self.files and self.comm.rank == 0 or i <= #self.files and self:mine(i) then
				own[i] = store.open_file(self.folder .. "/" .. name)
				total = total + own[i]:bytes()
			end
		end
		for i in ipairs(names) do
			local high, low, bytes = 0, 0, 0
			if own[i] then
				local hex = own[i]:hash()
				bytes, high, low = own[i]:bytes(), tonumber(hex:sub(1, 8), 16), tonumber(hex:sub(9), 16)
				own[i]:close()
				done = done + bytes
				self.progress("checksums of what was written", done, total)
			end
			sums[3 * i - 2], sums[3 * i - 1], sums[3 * i] = bytes, high, low
		end
	end)
	sums = self.comm:sum(sums)
	for i, name in ipairs(names) do
		digests[i] = json.ordered { { "name", name }, { "bytes", sums[3 * i - 2] },
			{ "xxh3", ("%08x%08x"):format(sums[3 * i - 1], sums[3 * i]) } }
	end
	return digests
end

--- Writes the index, side files from `side_folder` (or nil) and last the manifest (the pairs in `manifest` and the
--- list of files), then publishes. `before_publish` (may be nil) runs when all but the manifest is in place: the
--- place to verify.
function Writer:publish(manifest, side_folder, before_publish)
	local names = {}
	for i, file in ipairs(self.files) do
		names[i] = file.name
	end
	local extra
	self.comm:together(function()
		extra = side_folder and side_files(side_folder) or {}
		if self.comm.rank == 0 then
			for _, name in ipairs(extra) do
				store.copy_file(side_folder .. "/" .. name, self.folder .. "/" .. name)
			end
			if self.full and #self.files > 1 then
				write_index(self)
			end
		end
	end)
	for _, name in ipairs(extra) do
		names[#names + 1] = name
	end
	if self.full and #self.files > 1 then
		names[#names + 1] = checkpoint.INDEX
	end
	if before_publish then
		before_publish()
	end
	manifest[#manifest + 1] = { "files", checksums(self, names) }
	self.comm:together(function()
		if self.comm.rank == 0 then
			textfile.write(self.folder .. "/" .. checkpoint.MANIFEST, json.encode(json.ordered(manifest),
				{ indent = 2 }) .. "\n")
			self.folder_handle:publish()
		end
	end)
end

--- Removes the temporary folder; returns whether it was published before, and nothing was left to remove. Not
--- collective; for the failure path.
function Writer:discard()
	if not self.folder_handle then
		return false
	end
	local published = store.path_kind(self.folder_handle:path()) == "nothing"
	self.folder_handle:discard()
	return published
end

return M
