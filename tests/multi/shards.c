#include "shards.h"

#include <math.h>
#include <unistd.h>

enum { GUARD = 64, FILE_LEAD = 3 };

struct shard {
	int64_t bytes; /* 0 and data NULL where the rank stores nothing */
	char *block;   /* with a guard before and after */
	char *data;
	int64_t file_at;
	char *on_device; /* the block's other self */
};

typedef struct shard shard;

static zcc_error error;
static zcc_device *device;
static const char *transport;
static zcc_stream *stream;

void jobs_use_device(zcc_device *use, const char *way)
{
	zcc_stream_destroy(stream);
	stream = NULL;
	device = use;
	transport = way;
	if (device != NULL)
		MUST(zcc_stream_create(device, &stream, &error));
}

uint64_t dice_roll(dice *d)
{
	uint64_t z = (d->state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int64_t dice_below(dice *d, int64_t n)
{
	return (int64_t)(dice_roll(d) % (uint64_t)n);
}

/* ---- layouts ---- */

static void add_param(zcc_layout *layout, int32_t mesh, const param *p, int32_t side, const zcc_placement *placements,
                      int32_t n, const int32_t *cut_axes, int32_t n_cut_axes)
{
	zcc_param_options options;
	zcc_param_options_init(&options);
	options.dtype = side == ZCC_SOURCE ? p->source_dtype : p->target_dtype;
	options.scale = side == ZCC_SOURCE ? p->source_scale : p->target_scale;
	options.name = p->name;
	options.ndim = p->ndim;
	options.mesh = mesh;
	options.shape_elems = p->shape;
	options.placements = placements;
	options.n_placements = n;
	options.cut_axes = cut_axes;
	options.n_cut_axes = n_cut_axes;
	int32_t index;
	MUST(zcc_layout_add_param(layout, &options, &index, &error));
}

static void random_extents(dice *d, int64_t total, int64_t n, int64_t *extents)
{
	for (int64_t i = 0; i < n; i++) {
		extents[i] = i == n - 1 ? total : dice_below(d, total + 1);
		total -= extents[i];
	}
}

zcc_layout *random_layout(dice *d, const param *params, int32_t n_params, int32_t side, int32_t max_ranks)
{
	static const char *const names[] = {"", "a", "a,b", "a,b,c"};
	zcc_layout *layout;
	MUST(zcc_layout_create(&layout, &error));
	int32_t n_axes = 1 + (int32_t)dice_below(d, 3);
	int64_t sizes[3];
	int64_t ranks = 1;
	for (int32_t a = 0; a < n_axes; a++) {
		sizes[a] = 1 + dice_below(d, 4);
		if (ranks * sizes[a] > max_ranks)
			sizes[a] = 1;
		ranks *= sizes[a];
	}
	int32_t mesh;
	MUST(zcc_layout_add_mesh(layout, (int32_t)dice_below(d, 4), n_axes, names[n_axes], sizes, &mesh, &error));
	for (int32_t i = 0; i < n_params; i++) {
		const param *p = &params[i];
		zcc_placement placements[3] = {{0}};
		zcc_part parts[3];
		int64_t extents[3][8];
		int32_t cut_axes[3];
		int32_t n = 0;
		int32_t n_flat = 0;
		uint32_t dims_cut = 0;
		for (int32_t a = 0; a < n_axes; a++) {
			int64_t what = dice_below(d, 4);
			int32_t dim = p->ndim > 0 ? (int32_t)dice_below(d, p->ndim) : 0;
			if (what == 0) {
				cut_axes[n_flat++] = a;
			} else if (what <= 2 && p->ndim > 0 && (dims_cut >> dim & 1) == 0) {
				zcc_placement *place = &placements[n];
				*place = (zcc_placement){.kind = ZCC_PLACE_SHARD, .axis = a, .dim = dim};
				dims_cut |= 1u << dim;
				if (what == 1 && p->shape[dim] > 0) {
					parts[n] = (zcc_part){.size_elems = p->shape[dim],
					                      .units = p->shape[dim],
					                      .cut = ZCC_CUT_UNEVEN};
					place->n_parts = 1;
					place->parts = &parts[n];
				} else {
					random_extents(d, p->shape[dim], sizes[a], extents[n]);
					place->n_extents = (int32_t)sizes[a];
					place->extents = extents[n];
				}
				n++;
			}
		}
		add_param(layout, mesh, p, side, placements, n, cut_axes, n_flat);
	}
	return layout;
}

zcc_layout *simple_layout(const param *params, int32_t n_params, int32_t side, int32_t n_ranks, int32_t dim,
                          int32_t flat)
{
	zcc_layout *layout;
	int64_t size = n_ranks;
	int32_t mesh;
	MUST(zcc_layout_create(&layout, &error));
	MUST(zcc_layout_add_mesh(layout, 0, 1, "a", &size, &mesh, &error));
	for (int32_t i = 0; i < n_params; i++) {
		int32_t axis = 0;
		int32_t cut_dim = dim < params[i].ndim ? dim : 0;
		zcc_part part = {.size_elems = params[i].shape[cut_dim],
		                 .units = params[i].shape[cut_dim],
		                 .cut = ZCC_CUT_UNEVEN};
		zcc_placement place = {.kind = ZCC_PLACE_SHARD, .dim = cut_dim, .n_parts = 1, .parts = &part};
		add_param(layout, mesh, &params[i], side, &place, flat ? 0 : 1, &axis, flat ? 1 : 0);
	}
	return layout;
}

zcc_plan *random_plan(dice *d, zcc_layout *target, zcc_layout *source)
{
	zcc_plan *plan;
	MUST(zcc_plan_create(target, source, &plan, &error));
	int64_t n;
	const zcc_region *regions = zcc_plan_regions(plan, &n);
	for (int64_t i = 0; i < n; i++)
		MUST(zcc_plan_choose(plan, i, (int32_t)dice_below(d, regions[i].n_holders), &error));
	MUST(zcc_plan_build(plan, &error));
	return plan;
}

int32_t *random_endpoints(dice *d, int32_t n_ranks, int32_t size, int32_t file_chance)
{
	int32_t *process = malloc((size_t)n_ranks * sizeof *process);
	for (int32_t i = 0; i < n_ranks; i++)
		process[i] = dice_below(d, 100) < file_chance ? ZCC_ENDPOINT_FILE : (int32_t)dice_below(d, size);
	return process;
}

/* ---- values ---- */

/* The double of a parameter's element that is a float: few significant bits, so that every float dtype holds it. */
static double value_of(const job *j, int32_t p, int64_t element)
{
	dice d = {j->seed * 1000003 + (uint64_t)p * 7919 + (uint64_t)element};
	return (double)dice_below(&d, 255) - 127;
}

/* Nearest even with this many significant bits, and no finer than 2^least. */
static double round_to(double value, int bits, int least)
{
	int exponent;
	frexp(value, &exponent);
	int quantum = exponent - bits > least ? exponent - bits : least;
	return ldexp(nearbyint(ldexp(value, -quantum)), quantum);
}

static void store_float(char *out, int32_t dtype, double value)
{
	if (dtype == ZCC_F64) {
		memcpy(out, &value, 8);
	} else if (dtype == ZCC_F32 || dtype == ZCC_BF16) {
		float narrow = (float)(dtype == ZCC_F32 ? value : round_to(value, 8, -133));
		uint32_t bits;
		memcpy(&bits, &narrow, 4);
		uint16_t high = (uint16_t)(bits >> 16);
		memcpy(out, dtype == ZCC_F32 ? (void *)&bits : (void *)&high, dtype == ZCC_F32 ? 4 : 2);
	} else {
		double rounded = fabs(round_to(value, 11, -24));
		int exponent = 0;
		double mantissa = frexp(rounded, &exponent);
		uint16_t bits = (uint16_t)(signbit(value) ? 0x8000 : 0);
		if (rounded >= ldexp(1, -14))
			bits |= (uint16_t)((exponent + 14) << 10 | ((int)ldexp(mantissa, 11) - 1024));
		else
			bits |= (uint16_t)ldexp(rounded, 24);
		memcpy(out, &bits, 2);
	}
}

static void put_element(const job *j, int32_t p, int32_t side, int64_t element, char *out)
{
	const param *q = &j->params[p];
	int32_t dtype = side == ZCC_SOURCE ? q->source_dtype : q->target_dtype;
	if (q->source_dtype != q->target_dtype || q->source_scale != q->target_scale) {
		double value = value_of(j, p, element);
		if (side == ZCC_TARGET)
			value *= q->target_scale / q->source_scale;
		store_float(out, dtype, value);
		return;
	}
	dice d = {j->seed * 1000003 + (uint64_t)p * 7919 + (uint64_t)element};
	uint64_t bits = dice_roll(&d);
	memcpy(out, &bits, (size_t)zcc_dtype_bytes(dtype));
}

static int32_t elem_bytes(const job *j, int32_t p, int32_t side)
{
	return zcc_dtype_bytes(side == ZCC_SOURCE ? j->params[p].source_dtype : j->params[p].target_dtype);
}

static void put_piece(const job *j, int32_t p, int32_t side, const zcc_piece *piece, char *data, int64_t data_bytes)
{
	int64_t width = elem_bytes(j, p, side);
	int64_t at[4] = {0};
	for (int32_t a = 0; a < piece->ndim; a++)
		if (piece->shape_elems[a] == 0)
			return;
	for (;;) {
		int64_t element = 0;
		int64_t place = piece->dest_offset_elems;
		for (int32_t a = 0; a < piece->ndim; a++) {
			element = element * j->params[p].shape[a] + piece->origin_elems[a] + at[a];
			place += at[a] * piece->dest_strides_elems[a];
		}
		CHECK(place >= 0 && (place + 1) * width <= data_bytes, "element %lld of '%s'", (long long)element,
		      j->params[p].name);
		put_element(j, p, side, element, data + place * width);
		int32_t a = piece->ndim - 1;
		while (a >= 0 && ++at[a] == piece->shape_elems[a])
			at[a--] = 0;
		if (a < 0)
			return;
	}
}

/* What a shard holds: `other` bytes where it has no element. */
static void put_shard(const job *j, int32_t p, int32_t side, int32_t rank, int other, char *data, int64_t bytes)
{
	zcc_shard_info info;
	MUST(zcc_layout_shard(j->layouts[side], p, rank, &info, &error));
	memset(data, other, (size_t)bytes);
	zcc_piece *pieces = malloc((size_t)(info.n_pieces + 1) * sizeof *pieces);
	int64_t n;
	MUST(zcc_layout_pieces(j->layouts[side], p, rank, pieces, info.n_pieces, &n, &error));
	for (int64_t i = 0; i < n; i++)
		put_piece(j, p, side, &pieces[i], data, bytes);
	free(pieces);
}

/* ---- jobs ---- */

static int padding_of(int32_t side)
{
	return side == ZCC_SOURCE ? 0xee : 0xa5;
}

static void file_path(const job *j, int32_t side, int32_t rank, char path[128])
{
	snprintf(path, 128, "%s/%s-%d", j->folder, side == ZCC_SOURCE ? "source" : "target", rank);
}

static void upload(const shard *s)
{
	if (s->on_device == NULL)
		return;
	MUST(zcc_copy_async(stream, s->on_device, s->block, s->bytes + 2 * GUARD, &error));
	MUST(zcc_stream_wait(stream, &error));
}

static void download(const shard *s)
{
	if (s->on_device == NULL)
		return;
	MUST(zcc_copy_async(stream, s->block, s->on_device, s->bytes + 2 * GUARD, &error));
	MUST(zcc_stream_wait(stream, &error));
}

/* Process 0 makes the file, all open it. */
static void open_file(job *j, int32_t side, int32_t r)
{
	char path[128];
	file_path(j, side, j->ranks[side][r], path);
	int64_t at = FILE_LEAD;
	for (int32_t p = 0; p < j->n_params; p++) {
		j->shards[side][r][p].file_at = at;
		at += j->shards[side][r][p].bytes;
	}
	if (zcc_comm_rank(j->comm) == 0) {
		char *bytes = malloc((size_t)at);
		zcc_file *file;
		memset(bytes, padding_of(side), (size_t)at);
		for (int32_t p = 0; side == ZCC_SOURCE && p < j->n_params; p++) {
			shard *s = &j->shards[side][r][p];
			put_shard(j, p, side, j->ranks[side][r], padding_of(side), bytes + s->file_at, s->bytes);
		}
		MUST(zcc_file_create(path, at, &file, &error));
		MUST(zcc_file_write(file, 0, bytes, at, &error));
		zcc_file_close(file);
		free(bytes);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (side == ZCC_SOURCE)
		MUST(zcc_file_open(path, &j->files[side][r], &error));
	else
		MUST(zcc_file_open_write(path, &j->files[side][r], &error));
}

static void make_side(job *j, int32_t side, zcc_layout *layout, const int32_t *process)
{
	j->layouts[side] = layout;
	j->ranks[side] = zcc_layout_ranks(layout, &j->n_ranks[side]);
	size_t n = (size_t)j->n_ranks[side];
	j->process[side] = memcpy(malloc(n * sizeof *process), process, n * sizeof *process);
	j->shards[side] = calloc(n, sizeof *j->shards[side]);
	j->files[side] = calloc(n, sizeof *j->files[side]);
	for (int32_t r = 0; r < j->n_ranks[side]; r++) {
		j->shards[side][r] = calloc((size_t)j->n_params, sizeof **j->shards[side]);
		for (int32_t p = 0; p < j->n_params; p++) {
			zcc_shard_info info;
			shard *s = &j->shards[side][r][p];
			MUST(zcc_layout_shard(layout, p, j->ranks[side][r], &info, &error));
			s->bytes = info.present ? info.elems * elem_bytes(j, p, side) : 0;
			if (process[r] != zcc_comm_rank(j->comm) || !info.present)
				continue;
			s->block = malloc((size_t)s->bytes + 2 * GUARD);
			s->data = s->block + GUARD;
			memset(s->block, 0xc3, (size_t)s->bytes + 2 * GUARD);
			if (side == ZCC_SOURCE)
				put_shard(j, p, side, j->ranks[side][r], padding_of(side), s->data, s->bytes);
			if (device != NULL)
				MUST(zcc_device_malloc(device, s->bytes + 2 * GUARD, (void **)&s->on_device, &error));
			upload(s);
		}
		if (process[r] == ZCC_ENDPOINT_FILE)
			open_file(j, side, r);
	}
}

static void bind_rank(job *j, int32_t side, int32_t r)
{
	int32_t rank = j->ranks[side][r];
	MUST(zcc_transfer_place(j->transfer, side, rank, j->process[side][r], &error));
	for (int32_t p = 0; p < j->n_params; p++) {
		shard *s = &j->shards[side][r][p];
		zcc_shard_info info;
		MUST(zcc_layout_shard(j->layouts[side], p, rank, &info, &error));
		char *data = s->on_device != NULL ? s->on_device + GUARD : s->data;
		if (data != NULL)
			MUST(zcc_transfer_bind_memory(j->transfer, side, rank, p, data, s->bytes, &error));
		else if (j->files[side][r] != NULL && info.present)
			MUST(zcc_transfer_bind_file(j->transfer, side, rank, p, j->files[side][r], s->file_at, s->bytes,
			                            &error));
	}
}

void job_open(job *j, zcc_comm *comm, const param *params, int32_t n_params, uint64_t seed, zcc_plan *plan,
              zcc_layout *target, zcc_layout *source, int32_t *const process[2], const zcc_transfer_options *options)
{
	*j = (job){.comm = comm, .params = params, .n_params = n_params, .seed = seed};
	if (zcc_comm_rank(comm) == 0) {
		snprintf(j->folder, sizeof j->folder, "/tmp/zcc-multi-XXXXXX");
		CHECK(mkdtemp(j->folder) != NULL, "no temporary folder");
	}
	MUST(zcc_comm_broadcast(comm, j->folder, sizeof j->folder, 0, &error));
	make_side(j, ZCC_SOURCE, source, process[ZCC_SOURCE]);
	make_side(j, ZCC_TARGET, target, process[ZCC_TARGET]);
	MUST(zcc_transfer_create(plan, comm, options, &j->transfer, &error));
	if (device != NULL)
		MUST(zcc_transfer_set_device(j->transfer, device, transport, &error));
	dice d = {seed + (uint64_t)zcc_comm_rank(comm) + 1};
	for (int32_t turn = 0; turn < 2; turn++) {
		int32_t side = turn ^ (int32_t)(seed + (uint64_t)zcc_comm_rank(comm)) % 2;
		int32_t start = (int32_t)dice_below(&d, j->n_ranks[side]);
		for (int32_t r = 0; r < j->n_ranks[side]; r++)
			bind_rank(j, side, (start + r) % j->n_ranks[side]);
	}
	job_clear_targets(j);
}

void job_clear_targets(job *j)
{
	for (int32_t r = 0; r < j->n_ranks[ZCC_TARGET]; r++) {
		for (int32_t p = 0; p < j->n_params; p++) {
			shard *s = &j->shards[ZCC_TARGET][r][p];
			if (s->data != NULL)
				memset(s->data, padding_of(ZCC_TARGET), (size_t)s->bytes);
			upload(s);
		}
	}
}

static void compare(const job *j, int32_t r, int32_t p, const char *found, const char *want, int64_t bytes)
{
	for (int64_t i = 0; i < bytes; i++)
		CHECK(found[i] == want[i], "seed %llu, '%s' on target rank %d: byte %lld of %lld is %02x, not %02x",
		      (unsigned long long)j->seed, j->params[p].name, j->ranks[ZCC_TARGET][r], (long long)i,
		      (long long)bytes, (unsigned char)found[i], (unsigned char)want[i]);
}

void job_check(job *j)
{
	MPI_Barrier(MPI_COMM_WORLD);
	for (int32_t r = 0; r < j->n_ranks[ZCC_TARGET]; r++) {
		zcc_file *file = j->files[ZCC_TARGET][r];
		for (int32_t p = 0; p < j->n_params; p++) {
			shard *s = &j->shards[ZCC_TARGET][r][p];
			bool in_file = file != NULL && zcc_comm_rank(j->comm) == 0;
			if (s->data == NULL && !in_file)
				continue;
			download(s);
			char *want = malloc((size_t)s->bytes + 1);
			put_shard(j, p, ZCC_TARGET, j->ranks[ZCC_TARGET][r], padding_of(ZCC_TARGET), want, s->bytes);
			if (in_file) {
				char *found = malloc((size_t)s->bytes + 1);
				MUST(zcc_file_read(file, s->file_at, found, s->bytes, &error));
				compare(j, r, p, found, want, s->bytes);
				free(found);
			} else {
				compare(j, r, p, s->data, want, s->bytes);
				for (int32_t i = 0; i < GUARD; i++)
					CHECK(s->block[i] == (char)0xc3 && s->data[s->bytes + i] == (char)0xc3,
					      "bytes around '%s' on target rank %d", j->params[p].name,
					      j->ranks[ZCC_TARGET][r]);
			}
			free(want);
		}
	}
}

void job_close(job *j)
{
	zcc_transfer_destroy(j->transfer);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int32_t side = 0; side < 2; side++) {
		for (int32_t r = 0; r < j->n_ranks[side]; r++) {
			for (int32_t p = 0; p < j->n_params; p++) {
				free(j->shards[side][r][p].block);
				if (device != NULL)
					zcc_device_free(device, j->shards[side][r][p].on_device);
			}
			free(j->shards[side][r]);
			zcc_file_close(j->files[side][r]);
			char path[128];
			file_path(j, side, j->ranks[side][r], path);
			if (j->files[side][r] != NULL && zcc_comm_rank(j->comm) == 0)
				unlink(path);
		}
		free(j->shards[side]);
		free(j->files[side]);
		free(j->process[side]);
	}
	if (zcc_comm_rank(j->comm) == 0)
		rmdir(j->folder);
}

zcc_status run_in_slices(zcc_transfer *transfer, int64_t slice_ns, zcc_transfer_result *result, zcc_error *error)
{
	zcc_status status = zcc_transfer_submit(transfer, error);
	if (status != ZCC_OK)
		return status;
	int64_t before = 0;
	for (int32_t finished = 0; !finished;) {
		CHECK(zcc_transfer_test(transfer, slice_ns, &finished, error) == ZCC_OK, "%s", error->message);
		int64_t done;
		int64_t total;
		zcc_transfer_progress(transfer, &done, &total);
		CHECK(before <= done && done <= total, "%lld of %lld after %lld", (long long)done, (long long)total,
		      (long long)before);
		before = done;
	}
	return zcc_transfer_wait(transfer, result, error);
}
