#include "transfer/direct.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>

#include "base/memory.h"
#include "base/status.h"

enum {
	STEP_BYTES = 4 << 20, /* in one call, so that messages are looked after in between */
	ASK_BYTES = 1 << 20,  /* between two looks at the peer's beacon */
	MAX_RUNS = 1024       /* IOV_MAX of Linux */
};

/* What goes directly between this process and one peer. */
typedef struct link {
	const zcci_peer *peer;
	int64_t *ours;   /* addresses of element 0: pulled segments' source, then pushed segments' target */
	int64_t *theirs; /* pull segments' source, then push segments' target */
	int64_t n_ours;
	int64_t n_theirs;
} link;

struct zcci_direct {
	zcc_transfer *transfer;
	int32_t n_links;
	link *links;
	int32_t at_link;      /* what is done next: */
	zcci_cursor at;       /* pull, then push segments of that link */
	int64_t unseen_bytes; /* moved since the peer was last asked whether it stopped */
	int32_t *done;        /* for poll */
	int64_t *done_bytes;
	struct iovec here[MAX_RUNS];
	struct iovec there[MAX_RUNS];
};

/* ---- making ---- */

static zcc_status no_memory(zcc_error *error)
{
	return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for the addresses of shards");
}

static zcc_status make_link(link *l, const zcci_peer *peer, zcc_error *error)
{
	l->peer = peer;
	l->n_ours = peer->pulled.n_segments + peer->pushed.n_segments;
	l->n_theirs = peer->pull.n_segments + peer->push.n_segments;
	if (l->n_ours > INT_MAX / 8 || l->n_theirs > INT_MAX / 8)
		return zcci_fail(error, ZCC_EOVERFLOW, 0, "transfer run",
		                 "%lld segments between two processes, at most %d",
		                 (long long)(l->n_ours + l->n_theirs), INT_MAX / 8);
	l->ours = zcci_calloc(l->n_ours, sizeof *l->ours);
	l->theirs = zcci_calloc(l->n_theirs, sizeof *l->theirs);
	return l->ours == NULL || l->theirs == NULL ? no_memory(error) : ZCC_OK;
}

zcc_status zcci_direct_create(zcc_transfer *transfer, zcci_direct **direct, zcc_error *error)
{
	const zcci_schedule *schedule = transfer->schedule;
	zcci_direct *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return no_memory(error);
	made->transfer = transfer;
	made->links = zcci_calloc(schedule->n_peers, sizeof *made->links);
	made->done = zcci_calloc(2 * (int64_t)schedule->n_peers, sizeof *made->done);
	made->done_bytes = zcci_calloc(2 * (int64_t)schedule->n_peers, sizeof *made->done_bytes);
	zcc_status status = ZCC_OK;
	if (made->links == NULL || made->done == NULL || made->done_bytes == NULL)
		status = no_memory(error);
	for (int32_t p = 0; status == ZCC_OK && p < schedule->n_peers; p++) {
		const zcci_peer *peer = &schedule->peers[p];
		if (peer->pull.n_segments + peer->push.n_segments + peer->pulled.n_segments + peer->pushed.n_segments >
		    0)
			status = make_link(&made->links[made->n_links++], peer, error);
	}
	zcc_comm *comm = transfer->comm;
	if (status == ZCC_OK && made->n_links > 0)
		status = comm->ops->reserve(comm, 2 * made->n_links, error);
	if (status != ZCC_OK) {
		zcci_direct_destroy(made);
		return status;
	}
	*direct = made;
	return ZCC_OK;
}

void zcci_direct_destroy(zcci_direct *direct)
{
	if (direct == NULL)
		return;
	/* An abandoned message may still be read or written. */
	bool kept = direct->transfer->comm->broken;
	for (int32_t i = 0; !kept && i < direct->n_links; i++) {
		zcci_free(direct->links[i].ours);
		zcci_free(direct->links[i].theirs);
	}
	zcci_free(direct->links);
	zcci_free(direct->done);
	zcci_free(direct->done_bytes);
	zcci_free(direct);
}

/* ---- meeting ---- */

bool zcci_direct_left(const zcci_direct *direct)
{
	return direct->at_link < direct->n_links;
}

/* Past links and segments that are done. */
static void settle(zcci_direct *direct)
{
	while (zcci_direct_left(direct) && direct->at.segment == direct->links[direct->at_link].n_theirs) {
		direct->at_link++;
		direct->at = (zcci_cursor){0};
	}
}

static void note_addresses(const zcci_direct *direct, link *l)
{
	const zcci_list *lists[2] = {&l->peer->pulled, &l->peer->pushed};
	int64_t n = 0;
	for (int32_t k = 0; k < 2; k++) {
		for (int64_t i = 0; i < lists[k]->n_segments; i++) {
			zcci_route route;
			zcci_schedule_route(direct->transfer->schedule, lists[k]->segments[i], &route);
			zcci_transfer_bind_route(direct->transfer, &route);
			l->ours[n++] = (int64_t)(uintptr_t)(k == 0 ? route.from.data : route.to.data);
		}
	}
}

static zcc_status start_messages(zcci_direct *direct, int32_t *n_started, zcc_error *error)
{
	zcc_comm *comm = direct->transfer->comm;
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; status == ZCC_OK && i < direct->n_links; i++) {
		link *l = &direct->links[i];
		note_addresses(direct, l);
		if (l->n_theirs > 0) {
			status = comm->ops->receive(comm, 2 * i, l->peer->process, l->theirs, l->n_theirs * 8, error);
			++*n_started;
		}
		if (status == ZCC_OK && l->n_ours > 0) {
			status = comm->ops->send(comm, 2 * i + 1, l->peer->process, l->ours, l->n_ours * 8, error);
			++*n_started;
		}
	}
	return status;
}

zcc_status zcci_direct_meet(zcci_direct *direct, zcc_error *error)
{
	zcc_transfer *transfer = direct->transfer;
	zcc_comm *comm = transfer->comm;
	int32_t left = 0;
	zcc_status status = start_messages(direct, &left, error);
	int64_t start = zcc_clock_ns();
	zcci_idle idle = {0};
	while (status == ZCC_OK && left > 0) {
		int32_t n_done = 0;
		status = comm->ops->poll(comm, direct->done, direct->done_bytes, &n_done, error);
		left -= n_done;
		if (status == ZCC_OK && n_done == 0)
			status = zcci_comm_patience(comm, "transfer run", error);
		if (status == ZCC_OK && transfer->timeout_ns > 0 && zcc_clock_ns() - start > transfer->timeout_ns) {
			comm->broken = true;
			status = zcci_fail(error, ZCC_EPEER, 0, "transfer run",
			                   "no process told its addresses for %.1f s",
			                   (double)transfer->timeout_ns / 1e9);
		}
		if (n_done == 0)
			zcci_idle_wait(&idle);
	}
	settle(direct);
	return status;
}

/* ---- copying ---- */

/* The runs of elements [first, first + count) of a view at `base`, as many as fit; returns the elements they hold. */
static int64_t list_runs(const zcci_view *view, uintptr_t base, int64_t first, int64_t count, int64_t elem_bytes,
                         struct iovec *runs, int32_t *n_runs)
{
	int64_t done = 0;
	int32_t n = 0;
	while (done < count && n < MAX_RUNS) {
		int64_t run = zcci_view_run(view, first + done);
		if (run > count - done)
			run = count - done;
		uintptr_t at = base + (uintptr_t)(zcci_view_offset(view, first + done) * elem_bytes);
		runs[n++] = (struct iovec){(void *)at, (size_t)(run * elem_bytes)};
		done += run;
	}
	*n_runs = n;
	return done;
}

static bool has_stopped(const zcci_neighbour *other)
{
	zcci_beacon seen = {0};
	struct iovec here = {&seen, sizeof seen};
	struct iovec there = {(void *)other->beacon, sizeof seen};
	return process_vm_readv(other->pid, &here, 1, &there, 1, 0) != (ssize_t)sizeof seen || seen.stopped;
}

zcc_status zcci_direct_step(zcci_direct *direct, int64_t *bytes, bool *stopped, zcc_error *error)
{
	*bytes = 0;
	*stopped = false;
	const link *l = &direct->links[direct->at_link];
	const zcci_neighbour *other = &direct->transfer->comm->others[l->peer->process];
	if (direct->unseen_bytes >= ASK_BYTES) {
		direct->unseen_bytes = 0;
		*stopped = has_stopped(other);
		if (*stopped)
			return ZCC_OK;
	}
	bool pulls = direct->at.segment < l->peer->pull.n_segments;
	const zcc_segment *segment = pulls ? l->peer->pull.segments[direct->at.segment]
	                                   : l->peer->push.segments[direct->at.segment - l->peer->pull.n_segments];
	zcci_route route;
	zcci_schedule_route(direct->transfer->schedule, segment, &route);
	zcci_transfer_bind_route(direct->transfer, &route);
	int64_t elem_bytes = route.source_elem_bytes;
	int64_t first = direct->at.elem;
	int64_t count = STEP_BYTES / elem_bytes;
	if (count > segment->elems - first)
		count = segment->elems - first;
	const zcci_view *near_view = pulls ? &route.target : &route.source;
	const zcci_view *far_view = pulls ? &route.source : &route.target;
	uintptr_t near_base = (uintptr_t)(pulls ? route.to.data : route.from.data);
	int32_t n_here;
	int32_t n_there;
	uintptr_t far_base = (uintptr_t)l->theirs[direct->at.segment];
	count = list_runs(far_view, far_base, first, count, elem_bytes, direct->there, &n_there);
	int64_t reached = list_runs(near_view, near_base, first, count, elem_bytes, direct->here, &n_here);
	if (reached < count)
		count = list_runs(far_view, far_base, first, reached, elem_bytes, direct->there, &n_there);
	ssize_t moved =
	        pulls ? process_vm_readv(other->pid, direct->here, (size_t)n_here, direct->there, (size_t)n_there, 0)
	              : process_vm_writev(other->pid, direct->here, (size_t)n_here, direct->there, (size_t)n_there, 0);
	if (moved != count * elem_bytes)
		return zcci_fail(error, ZCC_EPEER, moved < 0 ? errno : 0, "transfer run",
		                 "%s %lld bytes of the memory of process %d: %s", pulls ? "reading" : "writing",
		                 (long long)(count * elem_bytes), l->peer->process,
		                 moved < 0 ? strerror(errno) : "cut short");
	direct->at.elem += count;
	if (direct->at.elem == segment->elems)
		direct->at = (zcci_cursor){.segment = direct->at.segment + 1};
	settle(direct);
	direct->unseen_bytes += moved;
	*bytes = moved;
	return ZCC_OK;
}

void zcci_direct_stop(zcc_comm *comm, bool stop)
{
	if (comm->beacon != NULL)
		__atomic_store_n(&comm->beacon->stopped, stop, __ATOMIC_SEQ_CST);
}
