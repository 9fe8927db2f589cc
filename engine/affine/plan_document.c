/* A plan as a document (README, "Documents") and as one number. */
#include "affine/plan_impl.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/status.h"

static void write_integers(zcc_json_writer *w, const int64_t *values, int32_t n)
{
	zcc_json_write_begin_array(w);
	for (int32_t i = 0; i < n; i++)
		zcc_json_write_integer(w, values[i]);
	zcc_json_write_end_array(w);
}

static void write_end(zcc_json_writer *w, const char *key, int32_t rank, int64_t offset, const int64_t *strides,
                      int32_t ndim)
{
	zcc_json_write_key(w, key);
	zcc_json_write_begin_array(w);
	zcc_json_write_integer(w, rank);
	zcc_json_write_integer(w, offset);
	write_integers(w, strides, ndim);
	zcc_json_write_end_array(w);
}

static void write_segment(zcc_json_writer *w, const zcc_segment *s, int32_t param_ndim)
{
	zcc_json_write_begin_object(w);
	zcc_json_write_key(w, "shape");
	write_integers(w, s->shape_elems, s->ndim);
	write_end(w, "source", s->source_rank, s->source_offset_elems, s->source_strides_elems, s->ndim);
	write_end(w, "target", s->target_rank, s->target_offset_elems, s->target_strides_elems, s->ndim);
	zcc_json_write_key(w, "logical_origin");
	write_integers(w, s->origin_elems, param_ndim);
	if (s->factor != 1) {
		zcc_json_write_key(w, "factor");
		zcc_json_write_number(w, s->factor);
	}
	zcc_json_write_end_object(w);
}

static void write_text(zcc_json_writer *w, const char *key, const char *text)
{
	zcc_json_write_key(w, key);
	zcc_json_write_string(w, text, (int64_t)strlen(text));
}

static void write_param(zcc_json_writer *w, const zcc_plan *plan, const zcci_plan_param *param)
{
	zcc_json_write_begin_object(w);
	write_text(w, "name", param->info.name);
	zcc_json_write_key(w, "logical_shape");
	write_integers(w, param->info.shape_elems, param->info.ndim);
	write_text(w, "dtype", zcc_dtype_name(param->source_dtype));
	if (param->info.dtype != param->source_dtype)
		write_text(w, "target_dtype", zcc_dtype_name(param->info.dtype));
	zcc_json_write_key(w, "segments");
	zcc_json_write_begin_array(w);
	for (int64_t i = param[0].first_segment; i < param[1].first_segment; i++)
		write_segment(w, &plan->segments[i], param->info.ndim);
	zcc_json_write_end_array(w);
	zcc_json_write_end_object(w);
}

zcc_status zcc_plan_write(const zcc_plan *plan, zcc_json_writer *writer, zcc_error *error)
{
	if (!plan->built)
		return zcci_fail(error, ZCC_EINVAL, 0, "plan write", "the segments are not built yet");
	zcc_json_write_begin_object(writer);
	zcc_json_write_key(writer, "version");
	zcc_json_write_integer(writer, 1);
	zcc_json_write_key(writer, "params");
	zcc_json_write_begin_array(writer);
	for (int32_t i = 0; i < plan->n_params; i++)
		write_param(writer, plan, &plan->params[i]);
	zcc_json_write_end_array(writer);
	zcc_json_write_end_object(writer);
	return ZCC_OK;
}

/* Numbers are hashed as 64 bits each, so padding inside structs and what lies past ndim never count. */
static void add_integers(XXH3_state_t *state, const int64_t *values, int32_t n)
{
	XXH3_64bits_update(state, values, (size_t)n * sizeof *values);
}

static void add_ranks(XXH3_state_t *state, const zcc_layout *layout)
{
	int32_t n_ranks;
	const int32_t *ranks = zcc_layout_ranks(layout, &n_ranks);
	add_integers(state, &(int64_t){n_ranks}, 1);
	XXH3_64bits_update(state, ranks, (size_t)n_ranks * sizeof *ranks);
}

static void add_param(XXH3_state_t *state, const zcci_plan_param *param)
{
	const zcc_param_info *info = &param->info;
	int64_t name_bytes = (int64_t)strlen(info->name);
	int64_t head[] = {name_bytes, param->source_dtype, info->dtype, info->ndim,
	                  param[1].first_segment - param[0].first_segment};
	add_integers(state, head, sizeof head / sizeof *head);
	XXH3_64bits_update(state, info->name, (size_t)name_bytes);
	add_integers(state, info->shape_elems, info->ndim);
}

static void add_segment(XXH3_state_t *state, const zcc_segment *s, int32_t param_ndim)
{
	int64_t factor_bits;
	memcpy(&factor_bits, &s->factor, sizeof factor_bits);
	int64_t head[] = {s->source_rank,         s->target_rank,         s->ndim,
	                  s->source_offset_elems, s->target_offset_elems, factor_bits};
	add_integers(state, head, sizeof head / sizeof *head);
	add_integers(state, s->shape_elems, s->ndim);
	add_integers(state, s->source_strides_elems, s->ndim);
	add_integers(state, s->target_strides_elems, s->ndim);
	add_integers(state, s->origin_elems, param_ndim);
}

zcc_status zcc_plan_digest(const zcc_plan *plan, int64_t *digest, zcc_error *error)
{
	if (!plan->built)
		return zcci_fail(error, ZCC_EINVAL, 0, "plan digest", "the segments are not built yet");
	XXH3_state_t state;
	XXH3_64bits_reset(&state);
	add_ranks(&state, plan->source);
	add_ranks(&state, plan->target);
	for (int32_t i = 0; i < plan->n_params; i++) {
		const zcci_plan_param *param = &plan->params[i];
		add_param(&state, param);
		for (int64_t k = param[0].first_segment; k < param[1].first_segment; k++)
			add_segment(&state, &plan->segments[k], param->info.ndim);
	}
	*digest = (int64_t)XXH3_64bits_digest(&state);
	return ZCC_OK;
}
