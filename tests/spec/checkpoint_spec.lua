local checkpoint = require "zcc.checkpoint"
local json = require "zcc.json"
local store = require "zcc.store"

local folder

local function write(name, text)
	local file = assert(io.open(folder .. "/" .. name, "wb"))
	file:write(text)
	file:close()
end

-- One U8 tensor of four elements per name.
local function shard(file, names)
	local writer = store.safetensors_writer()
	for _, name in ipairs(names) do
		writer:add(name, "U8", { 4 })
	end
	writer:finish(folder .. "/" .. file)
end

local function index(map)
	json.encode_file(folder .. "/" .. checkpoint.INDEX, { weight_map = map })
end

local function fails_with(...)
	local ok, fault = pcall(checkpoint.open, folder)
	assert.is_false(ok)
	for _, text in ipairs { ... } do
		assert.truthy(tostring(fault):find(text, 1, true), tostring(fault) .. " lacks " .. text)
	end
end

describe("checkpoint", function()
	before_each(function()
		folder = os.tmpname()
		os.remove(folder)
		assert.equal(0, os.execute("mkdir " .. folder))
	end)
	after_each(function() os.execute("rm -rf " .. folder) end)

	it("opens a single file by its path and by its folder", function()
		shard("model.safetensors", { "a", "b" })
		for _, path in ipairs { folder, folder .. "/", folder .. "/model.safetensors" } do
			local found = checkpoint.open(path)
			assert.equal("full", found.layout)
			assert.is_nil(found.sharded)
			assert.same({ "a", "b" }, { found.tensors[1].name, found.tensors[2].name })
			found:close()
		end
	end)

	it("reads config.json where there is one", function()
		shard("model.safetensors", { "a" })
		write("config.json", '{"model_type":"mine"}')
		assert.equal("mine", checkpoint.open(folder).config.model_type)
	end)

	it("takes what lies beside a file only where its name says that they belong together", function()
		write("config.json", '{"model_type":"mine"}')
		shard("model.safetensors", { "a" })
		shard("other.safetensors", { "a" })
		local found = checkpoint.open(folder .. "/model.safetensors")
		assert.same({ "mine", folder }, { found.config.model_type, found.side_folder })
		found = checkpoint.open(folder .. "/other.safetensors")
		assert.is_nil(found.config or found.side_folder or found.part_of)
	end)

	it("does not take one file of a set for the whole", function()
		shard("model-00001-of-00002.safetensors", { "a" })
		shard("model-00002-of-00002.safetensors", { "b" })
		assert.is_nil(checkpoint.open(folder .. "/model-00001-of-00002.safetensors").part_of)
		index { a = "model-00001-of-00002.safetensors", b = "model-00002-of-00002.safetensors" }
		assert.equal(folder, checkpoint.open(folder .. "/model-00001-of-00002.safetensors").part_of)
		shard("rank-00000-of-00002.safetensors", { "a" })
		local path = folder .. "/rank-00000-of-00002.safetensors"
		assert.equal("full", checkpoint.open(path).layout)
		write("manifest.json", "{}")
		local ok, fault = pcall(checkpoint.open, path)
		assert.is_false(ok)
		assert.truthy(tostring(fault):find("one rank's shards of a checkpoint; name its folder, " .. folder, 1, true))
	end)

	it("takes the tensors an index names, and says which other files it ignores", function()
		shard("one.safetensors", { "a" })
		shard("two.safetensors", { "b" })
		shard("stale.safetensors", { "b" })
		index { a = "one.safetensors", b = "two.safetensors" }
		local found = checkpoint.open(folder)
		assert.same({ "a", "b" }, { found.tensors[1].name, found.tensors[2].name })
		assert.same({ "stale.safetensors" }, found.ignored)
	end)

	it("refuses an index that names what is not there or not in the folder", function()
		shard("one.safetensors", { "a" })
		index { a = "one.safetensors", b = "two.safetensors" }
		fails_with("two.safetensors", "not there")
		index { a = "../one.safetensors" }
		fails_with("../one.safetensors")
		index { a = "one.safetensors", b = "one.safetensors" }
		fails_with("b", "one.safetensors")
		write(checkpoint.INDEX, '{"weight_map":[]}')
		fails_with("weight_map")
		write(checkpoint.INDEX, '{"weight_map":{"a":7}}')
		fails_with("7")
	end)

	it("refuses a tensor that another file holds than the index says, or that the index lacks", function()
		shard("one.safetensors", { "a", "b" })
		shard("two.safetensors", { "c" })
		index { a = "one.safetensors", b = "two.safetensors", c = "two.safetensors" }
		fails_with("tensor b", "one.safetensors", "two.safetensors")
		index { a = "one.safetensors" }
		fails_with("tensor b", "does not name it")
	end)

	it("refuses documents that are no objects", function()
		shard("model.safetensors", { "a" })
		for _, name in ipairs { "config.json", "manifest.json", checkpoint.INDEX } do
			for _, text in ipairs { "7", "null", "true", "[1]", '"text"' } do
				write(name, text)
				fails_with(name)
			end
			os.remove(folder .. "/" .. name)
		end
	end)

	it("refuses what is no file, and does not wait for a pipe to speak", function()
		shard("model.safetensors", { "a" })
		for _, name in ipairs { "config.json", "manifest.json", checkpoint.INDEX } do
			for _, make in ipairs { "mkdir", "mkfifo" } do
				os.execute(("%s %s/%s"):format(make, folder, name))
				fails_with(name, "no file")
				os.execute(("rm -r %s/%s"):format(folder, name))
			end
		end
	end)

	it("refuses a folder without a checkpoint and a path without anything", function()
		fails_with(folder, "model.safetensors")
		local ok, fault = pcall(checkpoint.open, folder .. "/nowhere")
		assert.is_false(ok)
		assert.truthy(tostring(fault):find("nowhere does not exist", 1, true))
	end)

	it("refuses a manifest that is none, of another version, or that names files which are not so", function()
		local good = { format = "zcc checkpoint", version = 1, layout = "dp=1", meshes = json.array {},
			params = json.array {}, files = json.array { { name = "rank-00000-of-00001.safetensors", bytes = 16, xxh3 = "" } } }
		local function with(changes, ...)
			local manifest = {}
			for key, value in pairs(good) do
				manifest[key] = value
			end
			for key, value in pairs(changes) do
				manifest[key] = value
			end
			json.encode_file(folder .. "/manifest.json", manifest)
			fails_with(...)
		end
		with({}, "rank-00000-of-00001.safetensors", "not there")
		write("rank-00000-of-00001.safetensors", "fifteen bytes..")
		with({}, "15", "16")
		with({ format = "other" }, "manifest.json")
		with({ version = 2 }, "version 2")
		with({ layout = 7 }, "layout")
		write("rank-00000-of-00001.safetensors", "sixteen bytes...")
		with({ params = { { name = "w", dtype = "BF17", shape = { 1 } } } }, "parameter 1")
		with({ params = { { name = "w", dtype = "BF16", shape = { -1 } } } }, "w", "-1")
		with({ files = { { name = "../x", bytes = 1 } } }, "../x")
		for _, odd in ipairs { json.null, 7, "seven", true, { a = 1 } } do
			for _, key in ipairs { "meshes", "params", "files" } do
				with({ [key] = odd }, "manifest.json", key)
			end
			with({ files = json.array { odd } }, "manifest.json")
		end
		with({ metadata = { format = 1 } }, "metadata")
		with({ metadata = json.array { "pt" } }, "metadata")
		write("manifest.json", "{")
		fails_with("manifest.json")
	end)
end)
