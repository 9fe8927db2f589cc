#include "zcc/transfer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "affine/layout.h"
#include "base/memory.h"
#include "base/status.h"
#include "store/file.h"
#include "transfer/verify_piece.h"

/* Where one rank's shard of one parameter lies. */
typedef struct binding {
	zcc_file *file; /* NULL until bound */
	int64_t at_bytes;
	int64_t elems; /* of the shard; −1 where the rank has none */
} binding;

typedef struct half {
	zcc_layout *layout;
	const char *name;
	const int32_t *ranks; /* the layout's */
	int32_t n_ranks;
	int32_t n_params;
	binding *bindings; /* by parameter, then by place in ranks */
} half;

struct zcc_verify {
	half halves[2];         /* by side */
	int32_t *source_params; /* by target parameter */
};

static binding *binding_of(const half *h, int32_t param, int32_t place)
{
	return &h->bindings[(int64_t)param * h->n_ranks + place];
}

/* Place of a rank in an ascending list, −1 where it is not there. */
static int32_t find_rank(const half *h, int32_t rank)
{
	int32_t low = 0, high = h->n_ranks;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (h->ranks[middle] < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low < h->n_ranks && h->ranks[low] == rank ? low : -1;
}

/* ---- making ---- */

static zcc_status open_half(half *h, zcc_layout *layout, const char *name, zcc_error *error)
{
	h->layout = zcci_layout_retain(layout);
	h->name = name;
	h->ranks = zcc_layout_ranks(layout, &h->n_ranks);
	h->n_params = zcc_layout_params(layout);
	h->bindings = zcci_calloc((int64_t)h->n_params * h->n_ranks, sizeof *h->bindings);
	if (h->bindings == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "verify create",
		                 "no memory for the places of %" PRId32 " parameters on %" PRId32 " ranks", h->n_params,
		                 h->n_ranks);
	for (int32_t p = 0; p < h->n_params; p++)
		for (int32_t i = 0; i < h->n_ranks; i++) {
			zcc_shard_info info;
			zcc_status status = zcc_layout_shard(layout, p, h->ranks[i], &info, error);
			if (status != ZCC_OK)
				return status;
			binding_of(h, p, i)->elems = info.present ? info.elems : -1;
		}
	return ZCC_OK;
}

static zcc_status refuse_missing(const zcc_layout *there, const zcc_layout *here, const char *here_name,
                                 zcc_error *error)
{
	for (int32_t p = 0; p < zcc_layout_params(there); p++) {
		zcc_param_info info;
		zcc_status status = zcc_layout_param(there, p, &info, error);
		if (status != ZCC_OK)
			return status;
		if (zcc_layout_find(here, info.name) < 0)
			return zcci_fail(error, ZCC_EMAP, 0, "verify create", "parameter %s is not in the %s layout",
			                 info.name, here_name);
	}
	return ZCC_OK;
}

/* Finds the source parameter of every target parameter. */
static zcc_status pair(zcc_verify *verify, zcc_error *error)
{
	const half *source = &verify->halves[ZCC_SOURCE], *target = &verify->halves[ZCC_TARGET];
	zcc_status status = refuse_missing(source->layout, target->layout, target->name, error);
	if (status == ZCC_OK)
		status = refuse_missing(target->layout, source->layout, source->name, error);
	if (status != ZCC_OK)
		return status;
	verify->source_params = zcci_calloc(target->n_params, sizeof *verify->source_params);
	if (verify->source_params == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "verify create", "no memory for %" PRId32 " parameters",
		                 target->n_params);
	for (int32_t p = 0; p < target->n_params; p++) {
		zcc_param_info mine, other;
		status = zcc_layout_param(target->layout, p, &mine, error);
		if (status != ZCC_OK)
			return status;
		verify->source_params[p] = zcc_layout_find(source->layout, mine.name);
		status = zcc_layout_param(source->layout, verify->source_params[p], &other, error);
		if (status != ZCC_OK)
			return status;
		if (mine.ndim != other.ndim)
			return zcci_fail(error, ZCC_EMAP, 0, "verify create",
			                 "parameter %s has %" PRId32 " axes in the target layout, %" PRId32
			                 " in the source layout",
			                 mine.name, mine.ndim, other.ndim);
		for (int32_t d = 0; d < mine.ndim; d++)
			if (mine.shape_elems[d] != other.shape_elems[d])
				return zcci_fail(error, ZCC_EMAP, 0, "verify create",
				                 "parameter %s, axis %" PRId32 ": %" PRId64
				                 " in the target layout, %" PRId64 " in the source layout",
				                 mine.name, d, mine.shape_elems[d], other.shape_elems[d]);
		if (!zcci_convert_supported(mine.dtype, other.dtype, 1))
			return zcci_fail(error, ZCC_ELAYOUT, 0, "verify create",
			                 "parameter %s: no conversion from %s to %s", mine.name,
			                 zcc_dtype_name(other.dtype), zcc_dtype_name(mine.dtype));
	}
	return ZCC_OK;
}

zcc_status zcc_verify_create(zcc_layout *target, zcc_layout *source, zcc_verify **verify, zcc_error *error)
{
	zcc_status status = zcc_layout_validate(target, error);
	if (status == ZCC_OK)
		status = zcc_layout_validate(source, error);
	if (status != ZCC_OK)
		return status;
	zcc_verify *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "verify create", "no memory for a verification");
	status = open_half(&made->halves[ZCC_TARGET], target, "target", error);
	if (status == ZCC_OK)
		status = open_half(&made->halves[ZCC_SOURCE], source, "source", error);
	if (status == ZCC_OK)
		status = pair(made, error);
	if (status != ZCC_OK) {
		zcc_verify_destroy(made);
		return status;
	}
	*verify = made;
	return ZCC_OK;
}

void zcc_verify_destroy(zcc_verify *verify)
{
	if (verify == NULL)
		return;
	for (int32_t side = 0; side < 2; side++) {
		half *h = &verify->halves[side];
		for (int64_t i = 0; h->bindings != NULL && i < (int64_t)h->n_params * h->n_ranks; i++)
			zcc_file_close(h->bindings[i].file);
		zcci_free(h->bindings);
		zcc_layout_destroy(h->layout);
	}
	zcci_free(verify->source_params);
	zcci_free(verify);
}

zcc_status zcc_verify_bind_file(zcc_verify *verify, int32_t side, int32_t rank, int32_t param, zcc_file *file,
                                int64_t offset_bytes, int64_t bytes, zcc_error *error)
{
	static const char operation[] = "verify bind file";
	if (side != ZCC_SOURCE && side != ZCC_TARGET)
		return zcci_fail(error, ZCC_EINVAL, 0, operation, "side %" PRId32 " is neither source nor target",
		                 side);
	half *h = &verify->halves[side];
	zcc_param_info info;
	zcc_status status = zcc_layout_param(h->layout, param, &info, error);
	if (status != ZCC_OK)
		return status;
	int32_t place = find_rank(h, rank);
	binding *b = place >= 0 ? binding_of(h, param, place) : NULL;
	if (b == NULL || b->elems < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "parameter %s: %s rank %" PRId32 " stores nothing of it", info.name, h->name, rank);
	int64_t needed = b->elems * zcc_dtype_bytes(info.dtype);
	if (bytes < needed || offset_bytes < 0 || offset_bytes > zcc_file_bytes(file) ||
	    bytes > zcc_file_bytes(file) - offset_bytes)
		return zcci_fail(error, ZCC_EINVAL, 0, operation,
		                 "parameter %s, %s rank %" PRId32 ": %" PRId64 " bytes at offset %" PRId64
		                 " of %s; the shard has %" PRId64 ", the file %" PRId64,
		                 info.name, h->name, rank, bytes, offset_bytes, zcc_file_path(file), needed,
		                 zcc_file_bytes(file));
	zcc_file_close(b->file);
	b->file = zcci_file_retain(file);
	b->at_bytes = offset_bytes;
	return ZCC_OK;
}

/* ---- running ---- */

/* Cuts a list of works into one stretch per process, by weight; every process cuts alike. */
typedef struct share {
	double total;
	double before;
	int32_t rank;
	int32_t size;
} share;

static bool is_mine(share *s, int64_t weight)
{
	double middle = s->before + (double)weight / 2;
	s->before += (double)weight;
	if (s->total <= 0)
		return s->rank == 0;
	int32_t process = (int32_t)(middle / s->total * s->size);
	return s->rank == (process < s->size ? process : s->size - 1);
}

/* The parameter at hand, and the source pieces of it that were looked up so far. */
typedef struct job {
	const zcc_verify *verify;
	zcci_checker checker;
	zcci_arena *arena;
	int32_t source_param;
	zcc_param_info target;
	zcc_param_info source;
	zcci_block *blocks; /* NULL until needed */
	int64_t n_blocks;
	struct pieces {
		zcc_piece *list;
		int64_t n; /* −1 until looked up */
	} *pieces;         /* by place of the source rank */
} job;

static zcc_status no_memory(zcc_error *error)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "verify run", "no memory for the pieces of a parameter");
}

static zcc_status take_up(job *j, int32_t target_param, zcc_error *error)
{
	const half *source = &j->verify->halves[ZCC_SOURCE];
	zcci_arena_reset(j->arena);
	j->source_param = j->verify->source_params[target_param];
	j->blocks = NULL;
	j->pieces = zcci_arena_alloc(j->arena, source->n_ranks, sizeof *j->pieces);
	if (j->pieces == NULL)
		return no_memory(error);
	for (int32_t i = 0; i < source->n_ranks; i++)
		j->pieces[i].n = -1;
	zcc_status status = zcc_layout_param(j->verify->halves[ZCC_TARGET].layout, target_param, &j->target, error);
	return status == ZCC_OK ? zcc_layout_param(source->layout, j->source_param, &j->source, error) : status;
}

static zcc_status source_pieces(job *j, int32_t place, struct pieces *pieces, zcc_error *error)
{
	const half *h = &j->verify->halves[ZCC_SOURCE];
	struct pieces *known = &j->pieces[place];
	zcc_status status = ZCC_OK;
	if (known->n < 0)
		status = zcci_layout_shard_pieces(h->layout, j->source_param, h->ranks[place], j->arena, &known->list,
		                                  &known->n, error);
	if (status == ZCC_OK)
		*pieces = *known;
	return status;
}

static zcci_stored stored_of(const job *j, int32_t side, int32_t param, int32_t place)
{
	const half *h = &j->verify->halves[side];
	const zcc_param_info *info = side == ZCC_SOURCE ? &j->source : &j->target;
	const binding *b = binding_of(h, param, place);
	return (zcci_stored){info->name, h->name, h->ranks[place], info->dtype, b->file, b->at_bytes};
}

static zcci_box box_of(const zcc_piece *piece)
{
	zcci_box box = {.ndim = piece->ndim};
	for (int32_t d = 0; d < piece->ndim; d++) {
		box.origin_elems[d] = piece->origin_elems[d];
		box.shape_elems[d] = piece->shape_elems[d];
	}
	return box;
}

/* Compares what the shard of a source rank has of a box; adds its elements to *found. */
static zcc_status compare_with(job *j, const zcci_stored *mine, const zcc_piece *piece, const zcci_box *box,
                               int32_t holder, int64_t *found, zcc_error *error)
{
	int32_t place = find_rank(&j->verify->halves[ZCC_SOURCE], holder);
	struct pieces pieces = {0};
	zcc_status status = source_pieces(j, place, &pieces, error);
	if (status != ZCC_OK)
		return status;
	zcci_stored reference = stored_of(j, ZCC_SOURCE, j->source_param, place);
	for (int64_t i = 0; i < pieces.n && status == ZCC_OK; i++) {
		zcci_box common = *box;
		int64_t elems = zcci_box_meet(&common, pieces.list[i].origin_elems, pieces.list[i].shape_elems);
		if (elems == 0)
			continue;
		*found += elems;
		status = zcci_piece_compare(&j->checker, &common, mine, piece, &reference, &pieces.list[i], error);
	}
	return status;
}

static zcc_status refuse_uncovered(const zcci_stored *mine, int64_t found, int64_t elems, zcc_error *error)
{
	return zcci_fail(error, ZCC_EMAP, 0, "verify run",
	                 "parameter %s, %s rank %" PRId32 ": the source layout holds %" PRId64 " of the %" PRId64
	                 " elements of a piece",
	                 mine->param, mine->side, mine->rank, found, elems);
}

static zcc_status check_target_piece(job *j, const zcci_stored *mine, const zcc_piece *piece, zcc_error *error)
{
	zcci_box whole = box_of(piece);
	int64_t elems = zcci_box_meet(&whole, piece->origin_elems, piece->shape_elems), found = 0;
	for (int64_t b = 0; b < j->n_blocks; b++) {
		zcci_box box = whole;
		if (zcci_box_meet(&box, j->blocks[b].origin_elems, j->blocks[b].shape_elems) == 0)
			continue;
		if (!zcci_convert_supported(j->target.dtype, j->source.dtype, piece->scale / j->blocks[b].scale))
			return zcci_fail(error, ZCC_ELAYOUT, 0, "verify run", "parameter %s: a scale of %g on %s",
			                 mine->param, piece->scale / j->blocks[b].scale,
			                 zcc_dtype_name(j->source.dtype));
		zcc_status status = compare_with(j, mine, piece, &box, j->blocks[b].holders[0], &found, error);
		if (status != ZCC_OK)
			return status;
	}
	return found == elems ? ZCC_OK : refuse_uncovered(mine, found, elems, error);
}

static zcc_status check_target_shard(job *j, int32_t param, int32_t place, zcc_error *error)
{
	const half *h = &j->verify->halves[ZCC_TARGET];
	zcc_status status = ZCC_OK;
	if (j->blocks == NULL)
		status = zcci_layout_blocks(j->verify->halves[ZCC_SOURCE].layout, j->source_param, j->arena, &j->blocks,
		                            &j->n_blocks, error);
	zcc_shard_info info = {0};
	if (status == ZCC_OK)
		status = zcc_layout_shard(h->layout, param, h->ranks[place], &info, error);
	zcc_piece *pieces = NULL;
	int64_t n_pieces = 0, elems = 0;
	if (status == ZCC_OK)
		status = zcci_layout_shard_pieces(h->layout, param, h->ranks[place], j->arena, &pieces, &n_pieces,
		                                  error);
	zcci_stored mine = stored_of(j, ZCC_TARGET, param, place);
	for (int64_t i = 0; i < n_pieces && status == ZCC_OK; i++) {
		zcci_box box = box_of(&pieces[i]);
		elems += zcci_box_meet(&box, pieces[i].origin_elems, pieces[i].shape_elems);
		status = check_target_piece(j, &mine, &pieces[i], error);
	}
	if (status == ZCC_OK && elems < info.elems)
		status = zcci_padding_check(&j->checker, &mine, &info, pieces, n_pieces, error);
	return status;
}

/* The lowest holder's copy is what the target is compared with, so the others are compared with it. */
static zcc_status check_replicas(job *j, int32_t place, zcc_error *error)
{
	struct pieces pieces = {0};
	zcc_status status = source_pieces(j, place, &pieces, error);
	zcci_stored mine = stored_of(j, ZCC_SOURCE, j->source_param, place);
	for (int64_t i = 0; i < pieces.n && status == ZCC_OK; i++) {
		const zcc_piece *piece = &pieces.list[i];
		if (piece->holders[0] == mine.rank)
			continue;
		zcci_box box = box_of(piece);
		int64_t elems = zcci_box_meet(&box, piece->origin_elems, piece->shape_elems), found = 0;
		status = compare_with(j, &mine, piece, &box, piece->holders[0], &found, error);
		if (status == ZCC_OK && found != elems)
			status = refuse_uncovered(&mine, found, elems, error);
	}
	return status;
}

static zcc_status refuse_unbound(const zcc_verify *verify, zcc_error *error)
{
	for (int32_t side = 0; side < 2; side++) {
		const half *h = &verify->halves[side];
		for (int32_t p = 0; p < h->n_params; p++)
			for (int32_t i = 0; i < h->n_ranks; i++) {
				const binding *b = binding_of(h, p, i);
				zcc_param_info info;
				if (b->elems <= 0 || b->file != NULL ||
				    zcc_layout_param(h->layout, p, &info, error) != ZCC_OK)
					continue;
				return zcci_fail(error, ZCC_EINVAL, 0, "verify run",
				                 "parameter %s, %s rank %" PRId32 ": no file is bound to its %" PRId64
				                 " elements",
				                 info.name, h->name, h->ranks[i], b->elems);
			}
	}
	return ZCC_OK;
}

/* Weights are what must be read of target shards; that a source rank has little to compare is known only on looking. */
static int64_t weight_of(const zcc_verify *verify, int32_t side, int32_t param, int32_t place)
{
	const binding *b = binding_of(&verify->halves[side], param, place);
	return b->elems > 0 ? b->elems : 0;
}

static double total_of(const zcc_verify *verify, int32_t side)
{
	const half *h = &verify->halves[side];
	double total = 0;
	for (int32_t p = 0; p < h->n_params; p++)
		for (int32_t i = 0; i < h->n_ranks; i++)
			total += (double)weight_of(verify, side, p, i);
	return total;
}

static zcc_status check_mine(job *j, share *targets, share *replicas, zcc_error *error)
{
	const half *target = &j->verify->halves[ZCC_TARGET], *source = &j->verify->halves[ZCC_SOURCE];
	for (int32_t p = 0; p < target->n_params; p++) {
		zcc_status status = take_up(j, p, error);
		for (int32_t i = 0; i < source->n_ranks && status == ZCC_OK; i++) {
			int64_t weight = weight_of(j->verify, ZCC_SOURCE, j->source_param, i);
			if (is_mine(replicas, weight) && weight > 0)
				status = check_replicas(j, i, error);
		}
		for (int32_t i = 0; i < target->n_ranks && status == ZCC_OK; i++) {
			int64_t weight = weight_of(j->verify, ZCC_TARGET, p, i);
			if (is_mine(targets, weight) && weight > 0)
				status = check_target_shard(j, p, i, error);
		}
		if (status != ZCC_OK)
			return status;
	}
	return ZCC_OK;
}

static zcc_status run_here(const zcc_verify *verify, zcc_comm *comm, int64_t *compared_bytes, zcc_error *error)
{
	zcc_status status = refuse_unbound(verify, error);
	if (status != ZCC_OK)
		return status;
	job j = {.verify = verify};
	status = zcci_checker_init(&j.checker, error);
	if (status != ZCC_OK)
		return status;
	share targets = {
		.total = total_of(verify, ZCC_TARGET), .rank = zcc_comm_rank(comm), .size = zcc_comm_size(comm)};
	share replicas = {
		.total = total_of(verify, ZCC_SOURCE), .rank = zcc_comm_rank(comm), .size = zcc_comm_size(comm)};
	j.arena = zcci_arena_create();
	status = j.arena != NULL ? check_mine(&j, &targets, &replicas, error) : no_memory(error);
	*compared_bytes = j.checker.compared_bytes;
	zcci_arena_destroy(j.arena);
	zcci_checker_fini(&j.checker);
	return status;
}

zcc_status zcc_verify_run(zcc_verify *verify, zcc_comm *comm, int64_t *compared_bytes, zcc_error *error)
{
	zcc_error mine = {.status = ZCC_OK};
	int64_t bytes = 0;
	/* Whatever happens here, the others wait to hear of it. */
	mine.status = run_here(verify, comm, &bytes, &mine);
	zcc_status status = zcc_comm_agree(comm, &mine, error);
	if (status == ZCC_OK)
		status = zcc_comm_sum(comm, &bytes, 1, error);
	if (status == ZCC_OK && compared_bytes != NULL)
		*compared_bytes = bytes;
	return status;
}
