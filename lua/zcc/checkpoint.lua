-- Checkpoints as recipes see them: what lies at a path (a safetensors file, a Hugging Face folder, a folder that
-- zcc wrote), which tensors it holds, and how its bytes are bound to a transfer.
--
-- An unsharded checkpoint is never loaded: its files are the source, read by byte ranges. Of a sharded one every
-- process loads the rank files of the ranks placed on it.
local fault = require "zcc.error"
local json = require "zcc.json"
local store = require "zcc.store"
local version = require "zcc.version"

local M = {}

M.MANIFEST = "manifest.json"
M.INDEX = "model.safetensors.index.json"
M.SINGLE = "model.safetensors"

--- The file of one rank of a sharded checkpoint of `world` ranks.
function M.rank_file(rank, world)
	return ("rank-%05d-of-%05d.safetensors"):format(rank, world)
end

local Checkpoint = {}
Checkpoint.__index = Checkpoint

local function invalid(...)
	fault.raise("ZCC_EFORMAT", ...)
end

-- ---- the three kinds ----

local function add_file(self, name)
	local file = store.open_safetensors(self.folder .. "/" .. name)
	self.files[#self.files + 1] = file
	return file
end

-- Every tensor of an unsharded checkpoint: { name, dtype, shape, bytes, file, offset }.
local function add_tensor(self, tensor, file)
	tensor.file = file
	self.tensors[#self.tensors + 1] = tensor
	self.by_name[tensor.name] = tensor
end

local function open_single(self, name)
	local file = add_file(self, name)
	self.metadata = file:metadata()
	for _, tensor in ipairs(file:tensors()) do
		add_tensor(self, tensor, file)
	end
end

-- A name in an index or manifest must lie in the folder itself.
local function inside(path, name)
	if type(name) ~= "string" or name == "" or name:find("/", 1, true) or name == "." or name == ".." then
		invalid("%s names the file %q, which is not in its own folder", path, tostring(name))
	end
	return name
end

local function sorted_keys(t)
	local keys = {}
	for key in pairs(t) do
		keys[#keys + 1] = key
	end
	table.sort(keys)
	return keys
end

local function open_index(self)
	local path = self.folder .. "/" .. M.INDEX
	local map = json.decode_object_file(path).weight_map
	if type(map) ~= "table" or json.is_array(map) or next(map) == nil then
		invalid("%s has no \"weight_map\" object with tensors", path)
	end
	local names = {}
	for _, tensor in ipairs(sorted_keys(map)) do
		local file = inside(path, map[tensor])
		names[file] = names[file] or {}
		names[file][tensor] = true
	end
	for _, name in ipairs(sorted_keys(names)) do
		if store.path_kind(self.folder .. "/" .. name) ~= "file" then
			invalid("%s names %s, which is not there", path, name)
		end
		local file = add_file(self, name)
		self.metadata = self.metadata or file:metadata()
		for _, tensor in ipairs(file:tensors()) do
			if names[name][tensor.name] then
				add_tensor(self, tensor, file)
				names[name][tensor.name] = nil
			elseif map[tensor.name] then
				invalid("tensor %s is in %s, but %s places it in %s", tensor.name, name, M.INDEX, map[tensor.name])
			else
				invalid("tensor %s is in %s, but %s does not name it", tensor.name, name, M.INDEX)
			end
		end
		local missing = next(names[name]) and sorted_keys(names[name])
		if missing then
			invalid("%s places %s in %s, which does not hold it%s", path, missing[1], name,
				#missing > 1 and (" (and %d more)"):format(#missing - 1) or "")
		end
	end
	for _, name in ipairs(store.list(self.folder)) do
		if name:match("%.safetensors$") and not names[name] then
			self.ignored[#self.ignored + 1] = name
		end
	end
end

local function open_manifest(self)
	local path = self.folder .. "/" .. M.MANIFEST
	local manifest = json.decode_object_file(path)
	if manifest.format ~= "zcc checkpoint" then
		invalid("%s is not the manifest of a zcc checkpoint", path)
	end
	if manifest.version ~= 1 then
		invalid("%s has version %s, this zcc reads version 1", path, tostring(manifest.version))
	end
	for _, key in ipairs { "meshes", "params", "files" } do
		if not json.is_array(manifest[key]) then
			invalid("%s has no list %q", path, key)
		end
	end
	if type(manifest.layout) ~= "string" then
		invalid("%s has no \"layout\"", path)
	end
	self.manifest, self.layout = manifest, manifest.layout
	self.description = { layout = manifest.layout, meshes = manifest.meshes, params = manifest.params }
	for key, value in pairs(manifest.metadata or {}) do
		if type(key) ~= "string" or type(value) ~= "string" then
			invalid("%s: \"metadata\" has to be an object of strings", path)
		end
	end
	self.metadata = manifest.metadata
	for i, entry in ipairs(manifest.files) do
		if type(entry) ~= "table" then
			invalid("%s: entry %d of \"files\" is no object", path, i)
		end
		local name = inside(path, entry.name)
		if store.path_kind(self.folder .. "/" .. name) ~= "file" then
			invalid("%s names %s, which is not there", path, name)
		end
		local file = store.open_file(self.folder .. "/" .. name)
		local bytes = file:bytes()
		file:close()
		if bytes ~= entry.bytes then
			invalid("%s/%s has %.0f bytes, its manifest says %s", self.folder, name, bytes, tostring(entry.bytes))
		end
	end
end

-- The parameters that a manifest describes, as tensors of an unsharded checkpoint are listed.
local function manifest_tensors(params, path)
	local tensors = {}
	for i, param in ipairs(params) do
		local width = type(param) == "table" and type(param.dtype) == "string" and store.dtype_bytes(param.dtype)
		if not width or type(param.name) ~= "string" or type(param.shape) ~= "table" then
			invalid("%s: parameter %d has no name, known dtype and shape", path, i)
		end
		local bytes = width
		for axis, extent in ipairs(param.shape) do
			if type(extent) ~= "number" or extent < 0 or extent % 1 ~= 0 then
				invalid("%s: parameter %s: extent %s of axis %d", path, param.name, tostring(extent), axis - 1)
			end
			bytes = bytes * extent
		end
		tensors[i] = { name = param.name, dtype = param.dtype, shape = param.shape, bytes = bytes }
	end
	return tensors
end

-- Whether there is a file. What is no file could not be read, or only by waiting for ever.
local function is_there(path)
	local kind = store.path_kind(path)
	if kind == "folder" or kind == "other" then
		invalid("%s is no file", path)
	end
	return kind == "file"
end

local function open_folder(self)
	local there = {}
	for _, name in ipairs { M.MANIFEST, "config.json", M.INDEX, M.SINGLE } do
		there[name] = is_there(self.folder .. "/" .. name)
	end
	if there[M.MANIFEST] then
		open_manifest(self)
	end
	if there["config.json"] then
		self.config = json.decode_object_file(self.folder .. "/config.json")
	end
	if self.manifest and self.layout ~= "full" then
		self.sharded, self.tensors = true, manifest_tensors(self.manifest.params, self.folder .. "/" .. M.MANIFEST)
	elseif there[M.INDEX] then
		open_index(self)
	elseif there[M.SINGLE] then
		open_single(self, M.SINGLE)
	else
		invalid("%s holds no %s, %s or %s", self.folder, M.MANIFEST, M.INDEX, M.SINGLE)
	end
end

-- One file by its own path. Named as a folder's only file it stands for that folder, with what lies beside it. Any
-- other name does not say that it has anything to do with its neighbours; unless it is one of a set, which alone would
-- pass for a whole model.
local function open_file(self, path)
	local name = path:match("[^/]*$")
	self.folder = path:match("^(.*)/[^/]*$") or "."
	if self.folder == "" then
		self.folder = "/"
	end
	if name:match("^rank%-%d+%-of%-%d+%.safetensors$") and is_there(self.folder .. "/" .. M.MANIFEST) then
		invalid("%s holds one rank's shards of a checkpoint; name its folder, %s", path, self.folder)
	end
	open_single(self, name)
	if name == M.SINGLE then
		self.side_folder = self.folder
		if is_there(self.folder .. "/config.json") then
			self.config = json.decode_object_file(self.folder .. "/config.json")
		end
	elseif name:match("%-%d+%-of%-%d+%.safetensors$") and is_there(self.folder .. "/" .. M.INDEX) then
		self.part_of = self.folder
	end
end

--- What lies at `path`. Headers are read and checked, no tensor data is. Fields: `layout` (a layout string),
--- `sharded`, `tensors` ({ name, dtype, shape, bytes } each, in file order), `config` (config.json, or nil),
--- `metadata`, `ignored` (safetensors files in the folder that no index names), `side_folder` (whose small files go
--- with the checkpoint, or nil), `part_of` (the folder of which only this one file was opened, or nil).
function M.open(path)
	local self = setmetatable({ path = path, files = {}, tensors = {}, by_name = {}, ignored = {}, layout = "full",
		read_bytes = 0, rank_files = {} }, Checkpoint)
	local kind = store.path_kind(path)
	if kind == "nothing" then
		fault.raise("ZCC_EIO", "%s does not exist", path)
	elseif kind == "file" then
		open_file(self, path)
	elseif kind == "folder" then
		self.folder = path:gsub("(.)/+$", "%1")
		self.side_folder = self.folder
		open_folder(self)
	else
		invalid("%s is neither a file nor a folder", path)
	end
	return self
end

local function check_sum(self, entry)
	local file = store.open_file(self.folder .. "/" .. entry.name)
	local found = file:hash()
	file:close()
	if found ~= entry.xxh3 then
		fault.raise("ZCC_EVERIFY", "%s/%s has checksum %s, its manifest says %s", self.folder, entry.name, found,
			tostring(entry.xxh3))
	end
end

--- Compares the checksums that the manifest holds, if there is one; those of rank files are compared when they are
--- loaded anyway. `share(i)` tells whether this process does file number i. report(done, total), which may be nil, is
--- called with bytes of this process.
function Checkpoint:check_sums(share, report)
	local mine, done, total = {}, 0, 0
	for i, entry in ipairs(self.manifest and self.manifest.files or {}) do
		if share(i) and not (self.sharded and entry.name:match("^rank%-")) then
			mine[#mine + 1], total = entry, total + entry.bytes
		end
	end
	for _, entry in ipairs(mine) do
		check_sum(self, entry)
		done = done + entry.bytes
		if report then
			report(done, total)
		end
	end
end

-- ---- binding ----

-- The open rank file, its tensors held against the layout's shards.
local function rank_file(self, layout, rank)
	if self.rank_files[rank] then
		return self.rank_files[rank]
	end
	local ranks = layout:ranks()
	local file = store.open_safetensors(self.folder .. "/" .. M.rank_file(rank, #ranks))
	local path, expected = file:file():path(), 0
	for index, param in ipairs(layout:params()) do
		local shard = layout:shard(index, rank)
		if shard then
			expected = expected + 1
			local tensor = file:find(param.name)
			if not tensor then
				invalid("%s does not hold %s, which layout %s stores on rank %d", path, param.name, self.layout, rank)
			end
			if tensor.dtype ~= param.dtype or table.concat(tensor.shape, ",") ~= table.concat(shard.shape, ",") then
				invalid("%s holds %s as %s [%s], layout %s stores %s [%s] there", path, param.name, tensor.dtype,
					table.concat(tensor.shape, ", "), self.layout, param.dtype, table.concat(shard.shape, ", "))
			end
		end
	end
	if #file:tensors() ~= expected then
		invalid("%s holds %d tensors, layout %s stores %d on rank %d", path, #file:tensors(), self.layout, expected, rank)
	end
	self.rank_files[rank] = file
	return file
end

--- Calls bind(rank, param index, file, offset, bytes) for every shard of the layout, all of them files.
function Checkpoint:each_shard_file(layout, bind)
	for _, rank in ipairs(layout:ranks()) do
		local file = self.sharded and rank_file(self, layout, rank)
		for index, param in ipairs(layout:params()) do
			if layout:shard(index, rank) then
				local tensor = file and file:find(param.name) or self.by_name[param.name]
				bind(rank, index, (file or tensor.file):file(), tensor.offset, tensor.bytes)
			end
		end
	end
end

-- A rank file that took another's place, or lost a bit, has the right size and the right header.
function Checkpoint:check_rank_sum(rank, world)
	local name = M.rank_file(rank, world)
	for _, entry in ipairs(self.manifest.files) do
		if entry.name == name then
			return check_sum(self, entry)
		end
	end
	invalid("%s/%s lists no checksum of %s", self.folder, M.MANIFEST, name)
end

--- Binds the source side: the files themselves (unsharded), or the shards of the ranks that `placement` puts on
--- this process, loaded. report(done, total), which may be nil, is called as that goes on.
function Checkpoint:bind(transfer, layout, placement, report)
	if not self.sharded then
		self:each_shard_file(layout, function(rank, index, file, offset, bytes)
			transfer:bind_file("source", rank, index, file, offset, bytes)
		end)
		return
	end
	-- A file is read twice: all of it for its checksum, then its tensors.
	local done, total = 0, 0
	for _, rank in ipairs(placement:here()) do
		total = total + 2 * rank_file(self, layout, rank):file():bytes()
	end
	local function read(bytes)
		done = done + bytes
		if report then
			report(done, total)
		end
	end
	for _, rank in ipairs(placement:here()) do
		local file = rank_file(self, layout, rank)
		self:check_rank_sum(rank, #layout:ranks())
		local start = file:data_offset()
		read(file:file():bytes() + start)
		local buffer = store.buffer(file:file():bytes() - start)
		file:file():read(start, buffer, read)
		self.read_bytes = self.read_bytes + buffer.bytes
		for index, param in ipairs(layout:params()) do
			local tensor = layout:shard(index, rank) and file:find(param.name)
			if tensor then
				transfer:bind_memory("source", rank, index, buffer, tensor.offset - start, tensor.bytes)
			end
		end
	end
end

--- The manifest of a checkpoint to be written, as ordered pairs: where every parameter lies, and what was carried
--- over from `input`.
function M.manifest(description, input)
	for _, param in ipairs(description.params) do
		json.array(param.shape)
	end
	return { { "format", "zcc checkpoint" }, { "version", 1 }, { "zcc", version }, { "layout", description.layout },
		{ "metadata", input.metadata }, { "meshes", description.meshes }, { "params", json.array(description.params) } }
end

function Checkpoint:close()
	for _, file in ipairs(self.files) do
		file:close()
	end
	for _, file in pairs(self.rank_files) do
		file:close()
	end
	self.files, self.rank_files = {}, {}
end

return M
