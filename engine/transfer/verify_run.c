/* A verification is a list of steps, one for each shard: sources first, as replicas of each other, then targets;
 * parameter by parameter. Every process goes through the list and does its own. */
#include "transfer/verify.h"

#include <inttypes.h>

#include "affine/layout.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/strided.h"
#include "transfer/verify_piece.h"

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

typedef struct zcci_verify_job {
	const zcc_verify *verify;
	zcci_checker checker;
	zcci_arena *arena;
	zcc_error fault; /* status ZCC_OK: none */
	share targets, replicas;
	int32_t param;                   /* of the next step, a target's */
	int32_t place;                   /* of the next step: source ranks, then target ranks */
	int64_t done_bytes, total_bytes; /* of the shards of this process */
	/* The parameter at hand, and the source pieces of it that were looked up so far. */
	int32_t taken_param; /* the target's; −1: none */
	int32_t source_param;
	zcc_param_info target;
	zcc_param_info source;
	zcci_block *blocks; /* NULL until needed */
	int64_t n_blocks;
	struct pieces {
		zcc_piece *list;
		int64_t n; /* −1 until looked up */
	} * pieces;        /* by place of the source rank */
} job;

static zcc_status no_memory(zcc_error *error)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "verify run", "no memory for the pieces of a parameter");
}

static zcc_status take_up(job *j, int32_t target_param, zcc_error *error)
{
	const zcci_verify_half *source = &j->verify->halves[ZCC_SOURCE];
	zcci_arena_reset(j->arena);
	j->taken_param = target_param;
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
	const zcci_verify_half *h = &j->verify->halves[ZCC_SOURCE];
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
	const zcci_verify_half *h = &j->verify->halves[side];
	const zcc_param_info *info = side == ZCC_SOURCE ? &j->source : &j->target;
	const zcci_binding *b = zcci_verify_binding(h, param, place);
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
	int32_t place = zcci_verify_place(&j->verify->halves[ZCC_SOURCE], holder);
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
	const zcci_verify_half *h = &j->verify->halves[ZCC_TARGET];
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
		const zcci_verify_half *h = &verify->halves[side];
		for (int32_t p = 0; p < h->n_params; p++)
			for (int32_t i = 0; i < h->n_ranks; i++) {
				const zcci_binding *b = zcci_verify_binding(h, p, i);
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
	const zcci_binding *b = zcci_verify_binding(&verify->halves[side], param, place);
	return b->elems > 0 ? b->elems : 0;
}

static double total_of(const zcc_verify *verify, int32_t side)
{
	const zcci_verify_half *h = &verify->halves[side];
	double total = 0;
	for (int32_t p = 0; p < h->n_params; p++)
		for (int32_t i = 0; i < h->n_ranks; i++)
			total += (double)weight_of(verify, side, p, i);
	return total;
}

/* ---- steps ---- */

typedef struct step {
	int32_t param; /* the target's */
	int32_t side;
	int32_t place;
	int64_t bytes; /* of the shard; 0: not for this process */
} step;

static bool at_end(const job *j)
{
	return j->param == j->verify->halves[ZCC_TARGET].n_params;
}

static step next_step(job *j)
{
	const zcc_verify *verify = j->verify;
	int32_t n_sources = verify->halves[ZCC_SOURCE].n_ranks, n_targets = verify->halves[ZCC_TARGET].n_ranks;
	bool source = j->place < n_sources;
	step s = {.param = j->param,
	          .side = source ? ZCC_SOURCE : ZCC_TARGET,
	          .place = source ? j->place : j->place - n_sources};
	int32_t own_param = source ? verify->source_params[s.param] : s.param;
	int64_t weight = weight_of(verify, s.side, own_param, s.place);
	zcc_param_info info;
	if (is_mine(source ? &j->replicas : &j->targets, weight) && weight > 0 &&
	    zcc_layout_param(verify->halves[s.side].layout, own_param, &info, NULL) == ZCC_OK)
		s.bytes = weight * zcc_dtype_bytes(info.dtype);
	if (++j->place == n_sources + n_targets) {
		j->place = 0;
		j->param++;
	}
	return s;
}

static void rewind_steps(job *j, zcc_comm *comm)
{
	const share mine = {.rank = zcc_comm_rank(comm), .size = zcc_comm_size(comm)};
	j->targets = j->replicas = mine;
	j->targets.total = total_of(j->verify, ZCC_TARGET);
	j->replicas.total = total_of(j->verify, ZCC_SOURCE);
	j->param = j->place = 0;
}

static zcc_status take_step(job *j, const step *s, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	if (s->bytes == 0)
		return ZCC_OK;
	if (j->taken_param != s->param)
		status = take_up(j, s->param, error);
	if (status == ZCC_OK)
		status = s->side == ZCC_SOURCE ? check_replicas(j, s->place, error)
		                               : check_target_shard(j, s->param, s->place, error);
	j->done_bytes += s->bytes;
	return status;
}

/* ---- a run ---- */

void zcci_verify_end(zcc_verify *verify)
{
	job *j = verify->job;
	verify->job = NULL;
	if (j == NULL)
		return;
	zcci_arena_destroy(j->arena);
	zcci_checker_fini(&j->checker);
	zcci_free(j);
}

static zcc_status begin(zcc_verify *verify, zcc_comm *comm, zcc_error *error)
{
	zcc_status status = refuse_unbound(verify, error);
	if (status != ZCC_OK)
		return status;
	job *j = zcci_calloc(1, sizeof *j);
	if (j == NULL)
		return no_memory(error);
	verify->job = j;
	j->verify = verify;
	j->taken_param = -1;
	status = zcci_checker_init(&j->checker, error);
	j->arena = status == ZCC_OK ? zcci_arena_create() : NULL;
	if (status == ZCC_OK && j->arena == NULL)
		status = no_memory(error);
	if (status != ZCC_OK) {
		zcci_verify_end(verify);
		return status;
	}
	rewind_steps(j, comm);
	while (!at_end(j))
		j->total_bytes += next_step(j).bytes;
	rewind_steps(j, comm);
	return ZCC_OK;
}

/* For slice_ns, or to the end where that is negative. What went wrong once stays so. */
static zcc_status work(zcc_verify *verify, zcc_comm *comm, int64_t slice_ns, zcc_error *error)
{
	zcc_status status = ZCC_OK;
	if (verify->job == NULL)
		status = begin(verify, comm, error);
	if (status != ZCC_OK)
		return status;
	job *j = verify->job;
	int64_t until = zcc_clock_ns() + slice_ns;
	while (j->fault.status == ZCC_OK && !at_end(j)) {
		step s = next_step(j);
		j->fault.status = take_step(j, &s, &j->fault);
		if (slice_ns >= 0 && zcc_clock_ns() >= until)
			break;
	}
	if (j->fault.status != ZCC_OK && error != NULL)
		*error = j->fault;
	return j->fault.status;
}

zcc_status zcc_verify_test(zcc_verify *verify, zcc_comm *comm, int64_t slice_ns, int32_t *finished, zcc_error *error)
{
	zcc_status status = work(verify, comm, slice_ns < 0 ? 0 : slice_ns, error);
	*finished = status != ZCC_OK || at_end(verify->job);
	return status;
}

void zcc_verify_progress(const zcc_verify *verify, int64_t *done_bytes, int64_t *total_bytes)
{
	*done_bytes = verify->job != NULL ? verify->job->done_bytes : 0;
	*total_bytes = verify->job != NULL ? verify->job->total_bytes : 0;
}

zcc_status zcc_verify_run(zcc_verify *verify, zcc_comm *comm, int64_t *compared_bytes, zcc_error *error)
{
	zcc_error mine = {.status = ZCC_OK};
	/* Whatever happens here, the others wait to hear of it. */
	mine.status = work(verify, comm, -1, &mine);
	int64_t bytes = verify->job != NULL ? verify->job->checker.compared_bytes : 0;
	zcci_verify_end(verify);
	zcc_status status = zcc_comm_agree(comm, &mine, error);
	if (status == ZCC_OK)
		status = zcc_comm_sum(comm, &bytes, 1, error);
	if (status == ZCC_OK && compared_bytes != NULL)
		*compared_bytes = bytes;
	return status;
}
