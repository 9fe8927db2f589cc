-- Shapes documents: a checkpoint without its bytes,
-- {"model":…,"tensors":[{"name":…,"shape":[…],"dtype":"BF16"}],"config":{…}}.

local fault = require "zcc.error"
local json = require "zcc.json"
local models = require "zcc.models"
local rules = require "zcc.rules"
local textfile = require "zcc.textfile"
local words = require "zcc.words"
local zffi = require "zcc.ffi"

local lib = zffi.lib

local M = {}

-- Bytes of a tensor; 0 elements for a shape with an empty axis.
local function count_bytes(tensor, what)
	local elems = 1
	for _, extent in ipairs(tensor.shape) do elems = elems * extent end
	local bytes = elems * lib.zcc_dtype_bytes(lib.zcc_dtype_parse(tensor.dtype))
	if bytes > 2 ^ 53 then
		fault.raise("ZCC_EOVERFLOW", "%s: '%s' of shape %s has more bytes than can be counted", what, tensor.name,
			words.shape(tensor.shape))
	end
	return bytes
end

local function check_tensor(tensor, index, what, seen)
	local function fail(format, ...) fault.raise("ZCC_EFORMAT", "%s: tensor %d: %s", what, index, format:format(...)) end
	if type(tensor) ~= "table" or type(tensor.name) ~= "string" or tensor.name == "" then fail("has no name") end
	if seen[tensor.name] then fail("'%s' is there already, as tensor %d", tensor.name, seen[tensor.name]) end
	seen[tensor.name] = index
	if type(tensor.dtype) ~= "string" or lib.zcc_dtype_parse(tensor.dtype) == 0 then
		fail("'%s' has the unknown dtype '%s'", tensor.name, tostring(tensor.dtype))
	end
	if type(tensor.shape) ~= "table" or #tensor.shape > 8 then fail("'%s' has no shape of at most 8 axes", tensor.name) end
	local shape = {}
	for axis, extent in ipairs(tensor.shape) do
		if type(extent) ~= "number" or extent % 1 ~= 0 or extent < 0 then
			fail("'%s': extent %s of axis %d is no whole number of 0 or more", tensor.name, tostring(extent), axis - 1)
		end
		shape[axis] = extent
	end
	local checked = { name = tensor.name, shape = shape, dtype = tensor.dtype }
	checked.bytes = count_bytes(checked, what)
	return checked
end

--- A checked document from a JSON text: { model =, config = (may be nil), tensors = { { name =, dtype =, shape =,
--- bytes = }, … } }.
function M.parse(text, what)
	what = what or "shapes document"
	local document = json.decode(text, what)
	if type(document) ~= "table" or type(document.tensors) ~= "table" then
		fault.raise("ZCC_EFORMAT", "%s: has no list \"tensors\"", what)
	end
	local tensors, seen = {}, {}
	for index, tensor in ipairs(document.tensors) do tensors[index] = check_tensor(tensor, index, what, seen) end
	if #tensors == 0 then fault.raise("ZCC_EFORMAT", "%s: names no tensor", what) end
	local config = document.config
	if config == json.null then config = nil end
	if config ~= nil and type(config) ~= "table" then fault.raise("ZCC_EFORMAT", "%s: \"config\" is no object", what) end
	return { model = type(document.model) == "string" and document.model or what, tensors = tensors, config = config }
end

--- The document in a file.
function M.read(path)
	return M.parse(textfile.read(path), path)
end

--- The JSON text of a document.
function M.format(document)
	local tensors = {}
	for index, tensor in ipairs(document.tensors) do
		tensors[index] = json.ordered{ { "name", tensor.name }, { "shape", json.array(tensor.shape) },
			{ "dtype", tensor.dtype } }
	end
	return json.encode(json.ordered{ { "model", document.model }, { "config", document.config },
		{ "tensors", json.array(tensors) } })
end

--- Writes a document to a file, whole or not at all.
function M.write(path, document)
	textfile.write(path, M.format(document) .. "\n")
end

local function known_names()
	local known = {}
	for key in pairs(models.configs) do known[#known + 1] = key end
	table.sort(known)
	return known
end

local function named_config(name)
	local known = known_names()
	return models.configs[name] or fault.raise("ZCC_EINVAL", "model '%s' is not known%s; known are %s", tostring(name),
		words.suggestion(tostring(name), known), table.concat(known, ", "))
end

--- The document of a family's model with this config ("qwen3", {…}), or of a model that zcc.models knows by name
--- ("qwen3-8b"). dtype is "BF16" where left out.
function M.generate(name, config, dtype)
	local family = name
	if not config then
		config = named_config(name)
		family = rules.detect({}, config).name
	end
	local tensors = models.tensors(family, config, dtype)
	for _, tensor in ipairs(tensors) do tensor.bytes = count_bytes(tensor, name) end
	return { model = name, config = config, tensors = tensors }
end

--- The document that an argument --shapes names: that of a model that zcc knows, or that in a file. Neither is misuse.
function M.choose(name)
	if models.configs[name] then return M.generate(name) end
	local file, why = io.open(name, "rb")
	if not file then
		local known = known_names()
		fault.misuse("--shapes: '%s' is no model that zcc knows (%s)%s, and as a file: %s", name,
			table.concat(known, ", "), words.suggestion(name, known), why)
	end
	file:close()
	return M.read(name)
end

--- What one of args.dp ranks holds of each parameter, padded as ZeRO 3 pads it, and how the model is called, for the
--- arguments --shapes (the demo model where it is left out), --elems and --dp: a list of { name =, elems =, shape = }.
--- What is cut is flat and has no shape.
function M.shards(args)
	if args.elems then
		if args.shapes then fault.misuse("--shapes and --elems: one or the other says how large the model is") end
		return { { name = "w", elems = math.ceil(args.elems / args.dp) } }, ("%d parameters"):format(args.elems)
	end
	local document = M.choose(args.shapes or "demo")
	local list = {}
	for i, tensor in ipairs(document.tensors) do
		local elems = tensor.bytes / lib.zcc_dtype_bytes(lib.zcc_dtype_parse(tensor.dtype))
		list[i] = { name = tensor.name, elems = math.ceil(elems / args.dp),
			shape = args.dp == 1 and tensor.shape or nil }
	end
	return list, document.model
end

return M
