/* Verification of stored layouts. Files are written element by element from layouts.h, which shares nothing with the
 * engine's maps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/memory.h"
#include "kernels/strided.h"
#include "layouts.h"
#include "scratch.h"
#include "zcc/transfer.h"

enum { MOST_RANKS = 8, N_PARAMS = 3, GAP_BYTES = 5 };

static zcc_comm *comm;

static int setup(void **state)
{
	seed_random(20240611);
	return scratch_make(state) || zcc_comm_create_local(&comm, NULL);
}

static int teardown(void **state)
{
	zcc_comm_destroy(comm);
	return scratch_remove(state);
}

/* ---- layouts: a matrix [13, 6], a bias [13], a scalar ---- */

enum { FULL, ROWS, COLS, FLAT, VOCAB, ROWS_FLAT, GATHERED, N_KINDS };

static const struct mesh {
	int32_t n_axes;
	const char *names;
	int64_t sizes[2];
} meshes[N_KINDS] = {
        [FULL] = {1, "tp", {1}},           [ROWS] = {2, "dp,tp", {2, 2}}, [COLS] = {1, "tp", {3}},
        [FLAT] = {1, "dp", {4}},           [VOCAB] = {1, "tp", {4}},      [ROWS_FLAT] = {2, "dp,tp", {2, 2}},
        [GATHERED] = {2, "dp,tp", {2, 3}},
};

static const int64_t shapes[N_PARAMS][2] = {{13, 6}, {13}, {0}};
static const int32_t ndims[N_PARAMS] = {2, 1, 0};
static const char *const names[N_PARAMS] = {"w", "layers.0.bias", "scalar"};

/* Parts and placements live as long as the options. */
typedef struct how {
	zcc_param_options options;
	zcc_part part;
	zcc_placement placement;
	int32_t cut_axis;
} how;

static void describe(how *h, int kind, int param, int32_t dtype, double scale)
{
	memset(h, 0, sizeof *h);
	zcc_param_options_init(&h->options);
	h->options.name = names[param];
	h->options.dtype = dtype;
	h->options.ndim = ndims[param];
	h->options.shape_elems = shapes[param];
	h->options.scale = scale;
	int64_t extent = 13;
	h->part = (zcc_part){.size_elems = 13, .units = 13, .cut = ZCC_CUT_UNEVEN};
	h->placement = (zcc_placement){
	        .kind = ZCC_PLACE_SHARD, .axis = meshes[kind].n_axes - 1, .n_parts = 1, .parts = &h->part};
	bool cuts = param < 2 && kind != FULL && kind != FLAT;
	if (kind == COLS || kind == GATHERED) {
		h->placement.dim = 1;
		extent = 6;
		cuts = param == 0;
	}
	h->part.size_elems = h->part.units = extent;
	if (kind == VOCAB) {
		h->part.cut = ZCC_CUT_EVEN;
		h->part.padded_elems = 16;
	}
	if (cuts) {
		h->options.n_placements = 1;
		h->options.placements = &h->placement;
	}
	if (kind == FLAT || kind == ROWS_FLAT || kind == GATHERED) {
		h->options.n_cut_axes = 1;
		h->options.cut_axes = &h->cut_axis;
	}
}

/* ---- one stored side ---- */

typedef struct stored {
	int kind;
	int32_t n_ranks;
	int32_t dtype;
	zcc_layout *layout;
	tensor shards[MOST_RANKS][N_PARAMS];
	int64_t at_bytes[MOST_RANKS][N_PARAMS];
	int64_t bytes[MOST_RANKS];
	char *content[MOST_RANKS];
	zcc_file *files[MOST_RANKS];
	char paths[MOST_RANKS][128];
} stored;

static uint64_t values[N_PARAMS][128];

static void roll_values(int32_t dtype)
{
	for (int p = 0; p < N_PARAMS; p++)
		for (int k = 0; k < 128; k++) {
			uint64_t bits = (uint64_t)pick(0, 0x3fffffff) << 34 ^ (uint64_t)pick(0, 0x3fffffff) << 17 ^
			                (uint64_t)pick(0, 0x3fffffff);
			/* Exponents near 1, so that no conversion meets infinity, and now and then a NaN. */
			if (dtype == ZCC_F32)
				bits = (bits & 0x80ffffff) | 0x3e000000 | (pick(0, 20) == 0 ? 0x7fc00000 : 0);
			values[p][k] = bits;
		}
}

static void put_element(char *out, int32_t dtype, int32_t from_dtype, double factor, int p, int64_t element)
{
	zcci_convert(out, dtype, &values[p][element], from_dtype, factor, 1);
}

static void rewrite(stored *s, int32_t rank)
{
	FILE *file = fopen(s->paths[rank], "r+b");
	assert_non_null(file);
	assert_int_equal(fwrite(s->content[rank], 1, (size_t)s->bytes[rank], file), s->bytes[rank]);
	assert_int_equal(fclose(file), 0);
}

static zcc_layout *layout_of(int kind, int32_t dtype, double scale)
{
	zcc_layout *layout;
	int32_t mesh, index;
	assert_int_equal(zcc_layout_create(&layout, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, meshes[kind].n_axes, meshes[kind].names, meshes[kind].sizes,
	                                     &mesh, NULL),
	                 ZCC_OK);
	for (int p = 0; p < N_PARAMS; p++) {
		how h;
		describe(&h, kind, p, dtype, scale);
		h.options.mesh = mesh;
		assert_int_equal(zcc_layout_add_param(layout, &h.options, &index, NULL), ZCC_OK);
	}
	return layout;
}

static void store_side(stored *s, const char *side, int kind, int32_t dtype, int32_t from_dtype, double factor)
{
	memset(s, 0, sizeof *s);
	s->kind = kind;
	s->dtype = dtype;
	s->layout = layout_of(kind, dtype, factor);
	s->n_ranks = 1;
	for (int32_t a = 0; a < meshes[kind].n_axes; a++)
		s->n_ranks *= (int32_t)meshes[kind].sizes[a];
	int32_t width = zcc_dtype_bytes(dtype);
	for (int32_t r = 0; r < s->n_ranks; r++) {
		int64_t at_bytes = GAP_BYTES;
		for (int p = 0; p < N_PARAMS; p++) {
			how h;
			describe(&h, kind, p, dtype, 1);
			s->shards[r][p] = lay_out(&h.options, meshes[kind].n_axes, meshes[kind].sizes, r);
			s->at_bytes[r][p] = at_bytes;
			at_bytes += s->shards[r][p].elems * width + GAP_BYTES;
		}
		s->bytes[r] = at_bytes;
		s->content[r] = malloc((size_t)at_bytes);
		memset(s->content[r], 0xee, (size_t)at_bytes);
		for (int p = 0; p < N_PARAMS; p++)
			for (int64_t k = 0; k < s->shards[r][p].elems; k++) {
				char *out = s->content[r] + s->at_bytes[r][p] + k * width;
				memset(out, 0, (size_t)width);
				if (s->shards[r][p].at[k] >= 0)
					put_element(out, dtype, from_dtype, factor, p, s->shards[r][p].at[k]);
			}
		snprintf(s->paths[r], sizeof s->paths[r], "%s/%s-%d", scratch, side, r);
		put_file(s->paths[r], s->content[r], (size_t)at_bytes);
		assert_int_equal(zcc_file_open(s->paths[r], &s->files[r], NULL), ZCC_OK);
	}
}

static void drop_side(stored *s)
{
	for (int32_t r = 0; r < s->n_ranks; r++) {
		zcc_file_close(s->files[r]);
		free(s->content[r]);
		for (int p = 0; p < N_PARAMS; p++)
			free(s->shards[r][p].at);
	}
	zcc_layout_destroy(s->layout);
}

static zcc_status bind_side(zcc_verify *verify, int32_t side, const stored *s, zcc_error *error)
{
	for (int32_t r = 0; r < s->n_ranks; r++)
		for (int p = 0; p < N_PARAMS; p++) {
			zcc_status status =
			        zcc_verify_bind_file(verify, side, r, p, s->files[r], s->at_bytes[r][p],
			                             s->shards[r][p].elems * zcc_dtype_bytes(s->dtype), error);
			if (status != ZCC_OK)
				return status;
		}
	return ZCC_OK;
}

/* Step by step: bytes looked at grow up to the end, which comes with *finished, and a fault is told there already. */
static void verify_in_steps(zcc_verify *verify)
{
	int64_t done, total, before = 0, steps = 0;
	int32_t finished = 0;
	zcc_error error = {0};
	zcc_status status = ZCC_OK;
	zcc_verify_progress(verify, &done, &total);
	assert_int_equal(done, 0);
	assert_int_equal(total, 0);
	while (!finished) {
		assert_int_equal(status, ZCC_OK);
		status = zcc_verify_test(verify, comm, 0, &finished, &error);
		zcc_verify_progress(verify, &done, &total);
		assert_true(done >= before && done <= total);
		before = done;
		steps++;
	}
	if (status == ZCC_OK) {
		assert_int_equal(done, total);
		assert_true(total > 0);
		assert_true(steps >= N_PARAMS);
	}
	zcc_error again = {0};
	assert_int_equal(zcc_verify_test(verify, comm, -5, &finished, &again), status);
	assert_int_equal(finished, 1);
	assert_string_equal(again.message, error.message);
}

static zcc_status verify_once(const stored *target, const stored *source, int64_t *bytes, zcc_error *error)
{
	zcc_verify *verify = NULL;
	zcc_status status = zcc_verify_create(target->layout, source->layout, &verify, error);
	if (status == ZCC_OK)
		status = bind_side(verify, ZCC_TARGET, target, error);
	if (status == ZCC_OK)
		status = bind_side(verify, ZCC_SOURCE, source, error);
	if (status == ZCC_OK && pick(0, 1))
		verify_in_steps(verify);
	if (status == ZCC_OK)
		status = zcc_verify_run(verify, comm, bytes, error);
	zcc_verify_destroy(verify);
	return status;
}

/* ---- what must come out ---- */

/* The lowest rank that stores an element. */
static int32_t lowest_of(const stored *s, int p, int64_t element)
{
	for (int32_t r = 0; r < s->n_ranks; r++)
		for (int64_t k = 0; k < s->shards[r][p].elems; k++)
			if (s->shards[r][p].at[k] == element)
				return r;
	return -1;
}

static int64_t held_bytes(const stored *s, bool replicas_only)
{
	int64_t n = 0;
	for (int p = 0; p < N_PARAMS; p++)
		for (int32_t r = 0; r < s->n_ranks; r++)
			for (int64_t k = 0; k < s->shards[r][p].elems; k++)
				n += s->shards[r][p].at[k] >= 0 &&
				     (!replicas_only || lowest_of(s, p, s->shards[r][p].at[k]) != r);
	return n * zcc_dtype_bytes(s->dtype);
}

/* "parameter w, element [12, 5]:" */
static void name_element(char *out, size_t bytes, int p, int64_t element)
{
	if (ndims[p] == 2)
		snprintf(out, bytes, "parameter %s, element [%d, %d]: ", names[p], (int)(element / 6),
		         (int)(element % 6));
	else if (ndims[p] == 1)
		snprintf(out, bytes, "parameter %s, element [%d]: ", names[p], (int)element);
	else
		snprintf(out, bytes, "parameter %s, element []: ", names[p]);
}

static void name_value(char *out, size_t bytes, const stored *s, const char *side, int32_t r, int p, int64_t k,
                       const char *before)
{
	int32_t width = zcc_dtype_bytes(s->dtype);
	int length = snprintf(out, bytes, "%s0x", before);
	for (int32_t i = width - 1; i >= 0; i--)
		length += snprintf(out + length, bytes - (size_t)length, "%02x",
		                   (unsigned char)s->content[r][s->at_bytes[r][p] + k * width + i]);
	snprintf(out + length, bytes - (size_t)length, " on %s rank %d (%s)", side, r, s->paths[r]);
}

static int64_t place_of(const stored *s, int32_t r, int p, int64_t element)
{
	for (int64_t k = 0; k < s->shards[r][p].elems; k++)
		if (s->shards[r][p].at[k] == element)
			return k;
	return -1;
}

/* Flips one bit of element k of a shard in the file, verifies, and puts it back. */
static void flip_and_look(stored *target, stored *source, int32_t side, int32_t r, int p, int64_t k, int byte)
{
	stored *s = side == ZCC_SOURCE ? source : target;
	char *at_byte = s->content[r] + s->at_bytes[r][p] + k * zcc_dtype_bytes(s->dtype) + byte;
	*at_byte = (char)(*at_byte ^ 1 << pick(0, 7));
	char original = *at_byte;
	rewrite(s, r);
	int64_t element = s->shards[r][p].at[k], bytes = -7;
	zcc_error error = {0};
	zcc_status status = verify_once(target, source, &bytes, &error);
	char text[512];
	if (side == ZCC_SOURCE && element < 0) {
		assert_int_equal(status, ZCC_OK);
	} else if (element < 0) {
		assert_int_equal(status, ZCC_EVERIFY);
		snprintf(text, sizeof text, "parameter %s, padding [", names[p]);
		assert_says(&error, text);
		name_value(text, sizeof text, s, "target", r, p, k, " of the shard: ");
		assert_says(&error, text);
		assert_int_equal(bytes, -7);
	} else {
		assert_int_equal(status, ZCC_EVERIFY);
		assert_int_equal(bytes, -7);
		name_element(text, sizeof text, p, element);
		assert_says(&error, text);
		int32_t lowest = lowest_of(source, p, element);
		name_value(text, sizeof text, source, "source", lowest, p, place_of(source, lowest, p, element),
		           ", but ");
		assert_says(&error, text);
		if (side == ZCC_TARGET || r != lowest) {
			name_value(text, sizeof text, s, side == ZCC_TARGET ? "target" : "source", r, p, k, ": ");
			assert_says(&error, text);
		}
	}
	assert_int_equal(*at_byte, original);
}

static void restore(stored *s, int32_t r, int p, int64_t k, const char *old)
{
	int32_t width = zcc_dtype_bytes(s->dtype);
	memcpy(s->content[r] + s->at_bytes[r][p] + k * width, old, (size_t)width);
	rewrite(s, r);
}

static void every_pair_of_layouts_passes_and_any_changed_byte_is_named(void **state)
{
	(void)state;
	for (int from = 0; from < N_KINDS; from++)
		for (int to = 0; to < N_KINDS; to++) {
			int32_t dtype = (from + to) % 2 ? ZCC_BF16 : ZCC_I64;
			stored source, target;
			roll_values(dtype);
			store_side(&source, "source", from, dtype, dtype, 1);
			store_side(&target, "target", to, dtype, dtype, 1);
			zcc_error error = {0};
			int64_t bytes = -1;
			zcc_status status = verify_once(&target, &source, &bytes, &error);
			if (status != ZCC_OK)
				fail_msg("%d to %d: %s", from, to, error.message);
			assert_int_equal(bytes, held_bytes(&target, false) + held_bytes(&source, true));
			/* First, last and some byte of some shard of each side. */
			for (int round = 0; round < 24; round++) {
				int32_t side = round % 2;
				stored *s = side == ZCC_SOURCE ? &source : &target;
				int p = round < 12 ? 0 : pick(0, 2);
				int32_t r = pick(0, s->n_ranks - 1), width = zcc_dtype_bytes(dtype);
				int64_t n = s->shards[r][p].elems;
				if (n == 0)
					continue;
				int64_t k = round % 6 < 2 ? 0 : round % 6 < 4 ? n - 1 : pick(0, (int32_t)n - 1);
				char old[8];
				memcpy(old, s->content[r] + s->at_bytes[r][p] + k * width, (size_t)width);
				flip_and_look(&target, &source, side, r, p, k,
				              round % 6 < 2   ? 0
				              : round % 6 < 4 ? width - 1
				                              : pick(0, width - 1));
				restore(s, r, p, k, old);
			}
			drop_side(&source);
			drop_side(&target);
		}
}

static void every_byte_of_a_padded_target_counts(void **state)
{
	(void)state;
	stored source, target;
	roll_values(ZCC_BF16);
	store_side(&source, "source", ROWS, ZCC_BF16, ZCC_BF16, 1);
	store_side(&target, "target", VOCAB, ZCC_BF16, ZCC_BF16, 1);
	for (int32_t r = 0; r < target.n_ranks; r++)
		for (int p = 0; p < N_PARAMS; p++)
			for (int64_t k = 0; k < target.shards[r][p].elems; k++)
				for (int byte = 0; byte < 2; byte++) {
					char old[2];
					memcpy(old, target.content[r] + target.at_bytes[r][p] + k * 2, 2);
					flip_and_look(&target, &source, ZCC_TARGET, r, p, k, byte);
					restore(&target, r, p, k, old);
				}
	drop_side(&source);
	drop_side(&target);
}

static void other_dtypes_and_scales_are_compared_after_conversion(void **state)
{
	(void)state;
	const int32_t dtypes[] = {ZCC_BF16, ZCC_F16, ZCC_F64, ZCC_F32};
	for (int i = 0; i < 4; i++)
		for (int scaled = 0; scaled < 2; scaled++) {
			double factor = scaled ? 0.3125 : 1;
			stored source, target;
			roll_values(ZCC_F32);
			store_side(&source, "source", ROWS_FLAT, ZCC_F32, ZCC_F32, 1);
			store_side(&target, "target", COLS, dtypes[i], ZCC_F32, factor);
			zcc_error error = {0};
			int64_t bytes = -1;
			zcc_status status = verify_once(&target, &source, &bytes, &error);
			if (status != ZCC_OK)
				fail_msg("%s: %s", zcc_dtype_name(dtypes[i]), error.message);
			assert_int_equal(bytes, held_bytes(&target, false) + held_bytes(&source, true));
			char old[8];
			int32_t width = zcc_dtype_bytes(dtypes[i]);
			int64_t k = 7;
			memcpy(old, target.content[1] + target.at_bytes[1][0] + k * width, (size_t)width);
			target.content[1][target.at_bytes[1][0] + k * width] ^= 1;
			rewrite(&target, 1);
			assert_int_equal(verify_once(&target, &source, &bytes, &error), ZCC_EVERIFY);
			char text[512];
			name_element(text, sizeof text, 0, target.shards[1][0].at[k]);
			assert_says(&error, text);
			name_value(text, sizeof text, &target, "target", 1, 0, k, ": ");
			assert_says(&error, text);
			if (dtypes[i] != ZCC_F32 || scaled) {
				/* What the source comes to, in the target's dtype. */
				snprintf(text, sizeof text, " (F32 times %.17g, as %s 0x", factor,
				         zcc_dtype_name(dtypes[i]));
				size_t length = strlen(text);
				for (int32_t b = width - 1; b >= 0; b--, length += 2)
					snprintf(text + length, sizeof text - length, "%02x", (unsigned char)old[b]);
				assert_says(&error, text);
			}
			drop_side(&source);
			drop_side(&target);
		}
}

static void what_is_not_bound_or_does_not_fit_is_refused_with_numbers(void **state)
{
	(void)state;
	stored source, target;
	roll_values(ZCC_BF16);
	store_side(&source, "source", COLS, ZCC_BF16, ZCC_BF16, 1);
	store_side(&target, "target", FULL, ZCC_BF16, ZCC_BF16, 1);
	zcc_verify *verify;
	zcc_error error = {0};
	int64_t bytes = -7;
	assert_int_equal(zcc_verify_create(target.layout, source.layout, &verify, &error), ZCC_OK);
	assert_int_equal(bind_side(verify, ZCC_TARGET, &target, &error), ZCC_OK);
	int32_t finished = 0;
	assert_int_equal(zcc_verify_test(verify, comm, 0, &finished, &error), ZCC_EINVAL);
	assert_int_equal(finished, 1);
	assert_int_equal(zcc_verify_run(verify, comm, &bytes, &error), ZCC_EINVAL);
	assert_says(&error, "parameter w, source rank 0: no file is bound to its 26 elements");
	assert_int_equal(bytes, -7);
	assert_int_equal(zcc_verify_bind_file(verify, 2, 0, 0, source.files[0], 0, 52, &error), ZCC_EINVAL);
	assert_int_equal(zcc_verify_bind_file(verify, ZCC_SOURCE, 3, 0, source.files[0], 0, 52, &error), ZCC_EINVAL);
	assert_says(&error, "source rank 3");
	assert_int_equal(zcc_verify_bind_file(verify, ZCC_SOURCE, 0, 3, source.files[0], 0, 52, &error), ZCC_EINVAL);
	assert_int_equal(zcc_verify_bind_file(verify, ZCC_SOURCE, 0, 0, source.files[0], 0, 51, &error), ZCC_EINVAL);
	assert_says(&error, "51 bytes");
	assert_int_equal(zcc_verify_bind_file(verify, ZCC_SOURCE, 0, 0, source.files[0], -1, 52, &error), ZCC_EINVAL);
	assert_int_equal(
	        zcc_verify_bind_file(verify, ZCC_SOURCE, 0, 0, source.files[0], source.bytes[0] - 51, 52, &error),
	        ZCC_EINVAL);
	assert_int_equal(zcc_verify_bind_file(verify, ZCC_SOURCE, 0, 0, source.files[0], INT64_MAX, INT64_MAX, &error),
	                 ZCC_EINVAL);
	zcc_verify_destroy(verify);

	/* A file that shrank after it was bound. */
	assert_int_equal(zcc_verify_create(target.layout, source.layout, &verify, &error), ZCC_OK);
	assert_int_equal(bind_side(verify, ZCC_TARGET, &target, &error), ZCC_OK);
	assert_int_equal(bind_side(verify, ZCC_SOURCE, &source, &error), ZCC_OK);
	assert_int_equal(truncate(source.paths[1], 20), 0);
	assert_int_equal(zcc_verify_run(verify, comm, &bytes, &error), ZCC_EIO);
	assert_says(&error, "source rank 1");
	zcc_verify_destroy(verify);
	drop_side(&source);
	drop_side(&target);
}

static zcc_layout *single(const char *name, int32_t dtype, int64_t rows, double scale)
{
	zcc_layout *layout;
	int32_t mesh, index;
	int64_t one = 1;
	zcc_param_options options;
	zcc_param_options_init(&options);
	options.name = name;
	options.dtype = dtype;
	options.ndim = 1;
	options.shape_elems = &rows;
	options.scale = scale;
	assert_int_equal(zcc_layout_create(&layout, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_add_mesh(layout, 0, 1, "tp", &one, &mesh, NULL), ZCC_OK);
	assert_int_equal(zcc_layout_add_param(layout, &options, &index, NULL), ZCC_OK);
	return layout;
}

static void layouts_of_different_parameters_are_refused(void **state)
{
	(void)state;
	const struct {
		const char *target_name;
		int32_t target_dtype;
		int64_t target_rows;
		zcc_status status;
		const char *says;
	} cases[] = {
	        {"b", ZCC_F32, 4, ZCC_EMAP, "parameter a is not in the target layout"},
	        {"a", ZCC_F32, 5, ZCC_EMAP, "axis 0: 5 in the target layout, 4 in the source layout"},
	        {"a", ZCC_I32, 4, ZCC_ELAYOUT, "no conversion from F32 to I32"},
	};
	zcc_layout *source = single("a", ZCC_F32, 4, 1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		zcc_layout *target = single(cases[i].target_name, cases[i].target_dtype, cases[i].target_rows, 1);
		zcc_verify *verify = NULL;
		zcc_error error = {0};
		assert_int_equal(zcc_verify_create(target, source, &verify, &error), cases[i].status);
		assert_says(&error, cases[i].says);
		assert_null(verify);
		zcc_layout_destroy(target);
	}
	zcc_layout_destroy(source);
}

static void an_integer_cannot_be_scaled(void **state)
{
	(void)state;
	int32_t zeros[4] = {0};
	put_file(at("zeros"), zeros, sizeof zeros);
	zcc_layout *source = single("a", ZCC_I32, 4, 1), *target = single("a", ZCC_I32, 4, 0.5);
	zcc_verify *verify;
	zcc_file *file;
	zcc_error error = {0};
	assert_int_equal(zcc_file_open(at("zeros"), &file, NULL), ZCC_OK);
	assert_int_equal(zcc_verify_create(target, source, &verify, &error), ZCC_OK);
	assert_int_equal(zcc_verify_bind_file(verify, ZCC_SOURCE, 0, 0, file, 0, 16, &error), ZCC_OK);
	assert_int_equal(zcc_verify_bind_file(verify, ZCC_TARGET, 0, 0, file, 0, 16, &error), ZCC_OK);
	assert_int_equal(zcc_verify_run(verify, comm, NULL, &error), ZCC_ELAYOUT);
	assert_says(&error, "parameter a: a scale of 0.5 on I32");
	zcc_verify_destroy(verify);
	zcc_file_close(file);
	zcc_layout_destroy(source);
	zcc_layout_destroy(target);
}

static void an_allocation_that_fails_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	stored source, target;
	roll_values(ZCC_BF16);
	store_side(&source, "source", ROWS_FLAT, ZCC_BF16, ZCC_BF16, 1);
	store_side(&target, "target", VOCAB, ZCC_BF16, ZCC_BF16, 1);
	int64_t n = 1;
	for (;; n++) {
		zcc_error error = {0};
		int64_t bytes = -7;
		zcci_fail_alloc(n);
		zcc_status status = verify_once(&target, &source, &bytes, &error);
		bool hit = zcci_fail_alloc_hit();
		zcci_fail_alloc(0);
		if (!hit) {
			assert_int_equal(status, ZCC_OK);
			break;
		}
		assert_int_equal(status, ZCC_ENOMEM);
		assert_int_equal(error.status, ZCC_ENOMEM);
		assert_true(error.message[0] != '\0');
		assert_int_equal(bytes, -7);
	}
	assert_true(n > 5);
	drop_side(&source);
	drop_side(&target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_pair_of_layouts_passes_and_any_changed_byte_is_named),
	        cmocka_unit_test(every_byte_of_a_padded_target_counts),
	        cmocka_unit_test(other_dtypes_and_scales_are_compared_after_conversion),
	        cmocka_unit_test(what_is_not_bound_or_does_not_fit_is_refused_with_numbers),
	        cmocka_unit_test(layouts_of_different_parameters_are_refused),
	        cmocka_unit_test(an_integer_cannot_be_scaled),
	        cmocka_unit_test(an_allocation_that_fails_is_reported_and_leaks_nothing),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
