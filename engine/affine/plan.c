#include "affine/plan.h"

#include <stdio.h>
#include <string.h>

#include "affine/map.h"
#include "affine/plan_impl.h"
#include "base/status.h"
#include "kernels/strided.h"

enum { NAMES_SHOWN = 4 };

/* Names of `layout` that `other` lacks: the first few quoted into text; returns how many there are. */
static int32_t list_missing(const zcc_layout *layout, const zcc_layout *other, char *text, size_t bytes)
{
	int32_t missing = 0;
	size_t used = 0;
	text[0] = '\0';
	for (int32_t param = 0; param < zcc_layout_params(layout); param++) {
		zcc_param_info info;
		if (zcc_layout_param(layout, param, &info, NULL) != ZCC_OK || zcc_layout_find(other, info.name) >= 0)
			continue;
		if (missing++ < NAMES_SHOWN && used < bytes)
			used += (size_t)snprintf(text + used, bytes - used, "%s%.60s", used > 0 ? ", " : "", info.name);
	}
	if (missing > NAMES_SHOWN && used < bytes)
		snprintf(text + used, bytes - used, ", …");
	return missing;
}

static zcc_status check_names(const zcc_plan *plan, zcc_error *error)
{
	char in_target[320], in_source[320];
	int32_t only_target = list_missing(plan->target, plan->source, in_target, sizeof in_target);
	int32_t only_source = list_missing(plan->source, plan->target, in_source, sizeof in_source);
	if (only_target == 0 && only_source == 0)
		return ZCC_OK;
	return zcci_fail(
	        error, ZCC_EMAP, 0, "plan create",
	        "the layouts must name the same parameters; in the target only: %d%s%s; in the source only: %d%s%s",
	        (int)only_target, only_target > 0 ? ", " : "", in_target, (int)only_source, only_source > 0 ? ", " : "",
	        in_source);
}

static zcc_status match_param(const zcc_plan *plan, int32_t param, zcci_plan_param *out, zcc_error *error)
{
	zcc_status status = zcc_layout_param(plan->target, param, &out->info, error);
	if (status != ZCC_OK)
		return status;
	out->source_param = zcc_layout_find(plan->source, out->info.name);
	zcc_param_info source;
	status = zcc_layout_param(plan->source, out->source_param, &source, error);
	if (status != ZCC_OK)
		return status;
	out->source_dtype = source.dtype;
	if (source.ndim != out->info.ndim ||
	    memcmp(source.shape_elems, out->info.shape_elems, (size_t)source.ndim * sizeof(int64_t)) != 0) {
		char ours[192], theirs[192];
		return zcci_fail(error, ZCC_EMAP, 0, "plan create",
		                 "parameter %s: its logical shape is %s in the target and %s in the source",
		                 source.name, zcci_list_text(ours, sizeof ours, out->info.shape_elems, out->info.ndim),
		                 zcci_list_text(theirs, sizeof theirs, source.shape_elems, source.ndim));
	}
	if (!zcci_convert_supported(out->info.dtype, source.dtype, 1))
		return zcci_fail(error, ZCC_ELAYOUT, 0, "plan create",
		                 "parameter %s: no conversion from %s in the source to %s in the target "
		                 "(allowed: equal, or any two of F16, BF16, F32, F64)",
		                 source.name, zcc_dtype_name(source.dtype), zcc_dtype_name(out->info.dtype));
	return ZCC_OK;
}

static zcc_status match_params(zcc_plan *plan, zcc_error *error)
{
	zcc_status status = check_names(plan, error);
	if (status != ZCC_OK)
		return status;
	plan->n_params = zcc_layout_params(plan->target);
	plan->params = zcci_calloc((int64_t)plan->n_params + 1, sizeof *plan->params);
	if (plan->params == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "plan create", "no memory for %d parameters",
		                 (int)plan->n_params);
	for (int32_t param = 0; status == ZCC_OK && param < plan->n_params; param++)
		status = match_param(plan, param, &plan->params[param], error);
	return status;
}

static zcc_status fill(zcc_plan *plan, zcc_error *error)
{
	zcc_status status = zcc_layout_validate(plan->source, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "source");
	if (plan->target != plan->source)
		status = zcc_layout_validate(plan->target, error);
	if (status != ZCC_OK)
		return zcci_context(error, status, "target");
	status = match_params(plan, error);
	if (status != ZCC_OK)
		return status;
	plan->draft = zcci_arena_create();
	if (plan->draft == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "plan create", "no memory for the plan");
	status = zcci_plan_find_regions(plan, error);
	plan->stats.regions = plan->n_regions;
	return status;
}

zcc_status zcc_plan_create(zcc_layout *target, zcc_layout *source, zcc_plan **plan, zcc_error *error)
{
	if (target == NULL || source == NULL || plan == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "plan create", "target, source and plan may not be NULL");
	zcc_plan *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "plan create", "no memory for the plan");
	made->references = 1;
	made->target = zcci_layout_retain(target);
	made->source = zcci_layout_retain(source);
	zcc_status status = fill(made, error);
	if (status != ZCC_OK) {
		zcc_plan_destroy(made);
		return status;
	}
	*plan = made;
	return ZCC_OK;
}

void zcc_plan_destroy(zcc_plan *plan)
{
	if (plan == NULL || --plan->references > 0)
		return;
	zcc_layout_destroy(plan->target);
	zcc_layout_destroy(plan->source);
	zcci_arena_destroy(plan->draft);
	zcci_free(plan->params);
	zcci_free(plan->regions);
	zcci_free(plan->places);
	zcci_free(plan->segments);
	zcci_free(plan);
}

zcc_plan *zcci_plan_retain(zcc_plan *plan)
{
	plan->references++;
	return plan;
}

const zcc_layout *zcci_plan_layout(const zcc_plan *plan, int32_t side)
{
	return side == ZCC_SOURCE ? plan->source : plan->target;
}

int32_t zcci_plan_source_param(const zcc_plan *plan, int32_t param)
{
	return plan->params[param].source_param;
}

const zcc_region *zcc_plan_regions(const zcc_plan *plan, int64_t *n_regions)
{
	*n_regions = plan->n_regions;
	return plan->regions;
}

zcc_status zcc_plan_choose(zcc_plan *plan, int64_t region, int32_t holder, zcc_error *error)
{
	if (plan->built)
		return zcci_fail(error, ZCC_EINVAL, 0, "plan choose", "the segments are built already");
	if (region < 0 || region >= plan->n_regions)
		return zcci_fail(error, ZCC_EINVAL, 0, "plan choose", "region %lld of a plan that has %lld",
		                 (long long)region, (long long)plan->n_regions);
	zcc_region *r = &plan->regions[region];
	if (holder < 0 || holder >= r->n_holders)
		return zcci_fail(error, ZCC_EPOLICY, 0, "plan choose",
		                 "parameter %s, target rank %d, region %lld: holder %d was chosen, 0 to %d are allowed",
		                 plan->params[r->param].info.name, (int)r->target_rank, (long long)region, (int)holder,
		                 (int)r->n_holders - 1);
	r->chosen = holder;
	return ZCC_OK;
}

const zcc_segment *zcc_plan_segments(const zcc_plan *plan, int64_t *n_segments)
{
	*n_segments = plan->built ? plan->stats.segments : 0;
	return plan->built ? plan->segments : NULL;
}

zcc_status zcc_plan_stats_get(const zcc_plan *plan, zcc_plan_stats *stats, zcc_error *error)
{
	if (plan == NULL || stats == NULL)
		return zcci_fail(error, ZCC_EINVAL, 0, "plan stats", "plan and stats may not be NULL");
	*stats = plan->stats;
	return ZCC_OK;
}
