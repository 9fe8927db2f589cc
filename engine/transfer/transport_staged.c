/* `mpi`: through pinned memory of the host and the messages of the group of processes. */
#include "transfer/transport.h"

#include "base/memory.h"
#include "base/omit.h"
#include "base/status.h"
#include "transfer/comm.h"

typedef struct staged {
	zcc_comm *comm;
	zcc_device *device;
	int64_t timeout_ns;
	int64_t round_bytes;
	char *pinned; /* round_bytes, the messages of a round one after the other */
	int32_t n_slots;
	int32_t *done;
	int64_t *done_bytes;
	bool abandoned; /* a message may still come in */
} staged;

static void release(void *group)
{
	staged *s = group;
	if (!s->abandoned)
		zcc_pinned_free(s->device, s->pinned);
	zcci_free(s->done);
	zcci_free(s->done_bytes);
	zcci_free(s);
}

static zcc_status open_staged(const zcci_transport_site *site, void **group, zcc_error *error)
{
	void *pinned = NULL;
	staged *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for messages between devices");
	made->comm = site->comm;
	made->device = site->device;
	made->timeout_ns = site->timeout_ns;
	made->round_bytes = site->round_bytes;
	made->n_slots = 2 * site->size;
	made->done = zcci_calloc(made->n_slots, sizeof *made->done);
	made->done_bytes = zcci_calloc(made->n_slots, sizeof *made->done_bytes);
	zcc_status status = ZCC_OK;
	if (made->done == NULL || made->done_bytes == NULL)
		status = zcci_fail(error, ZCC_ENOMEM, 0, "transfer run", "no memory for %d messages between devices",
		                   made->n_slots);
	if (status == ZCC_OK)
		status = site->comm->ops->reserve(site->comm, made->n_slots, error);
	if (status == ZCC_OK && site->round_bytes > 0)
		status = zcc_pinned_malloc(site->device, site->round_bytes, &pinned, error);
	made->pinned = pinned;
	if (status != ZCC_OK) {
		release(made);
		return status;
	}
	*group = made;
	return ZCC_OK;
}

static zcc_status is_ready(void *group, int32_t *ready, zcc_error *error)
{
	(void)group, (void)error;
	*ready = 1;
	return ZCC_OK;
}

/* Until n messages have ended. */
static zcc_status await(staged *s, const zcci_message *messages, int32_t n, zcc_error *error)
{
	zcci_idle idle = {0};
	int64_t since_ns = zcc_clock_ns();
	while (n > 0) {
		int32_t n_done = 0;
		zcc_status status = s->comm->ops->poll(s->comm, s->done, s->done_bytes, &n_done, error);
		for (int32_t i = 0; status == ZCC_OK && i < n_done; i++) {
			const zcci_message *m = &messages[s->done[i]];
			/* An empty one: its sender has a fault, and says so when all agree on the next round. */
			if (!m->sends && s->done_bytes[i] != m->bytes && s->done_bytes[i] != 0)
				status = zcci_fail(error, ZCC_EPEER, 0, "transfer run",
				                   "process %d sent %lld bytes, %lld were due", m->peer,
				                   (long long)s->done_bytes[i], (long long)m->bytes);
		}
		n -= n_done;
		if (status == ZCC_OK && n > 0 && n_done == 0)
			status = zcci_comm_patience(s->comm, "transfer run", error);
		if (n_done > 0) {
			idle = (zcci_idle){0};
			since_ns = zcc_clock_ns();
		} else if (status == ZCC_OK && s->timeout_ns > 0 && zcc_clock_ns() - since_ns > s->timeout_ns) {
			zcci_comm_hurry(s->comm);
			status = zcci_fail(error, ZCC_EPEER, 0, "transfer run",
			                   "messages between devices did not move for %.1f s",
			                   (double)s->timeout_ns / 1e9);
		}
		if (status != ZCC_OK)
			return status;
		if (n_done == 0)
			zcci_idle_wait(&idle);
	}
	return ZCC_OK;
}

static zcc_status start(staged *s, const zcci_message *messages, int32_t n, bool sends, bool empty, zcc_error *error)
{
	char *at = s->pinned;
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; status == ZCC_OK && i < n; i++) {
		const zcci_message *m = &messages[i];
		if (m->sends == sends)
			status = sends ? s->comm->ops->send(s->comm, i, m->peer, at, empty ? 0 : m->bytes, error)
			               : s->comm->ops->receive(s->comm, i, m->peer, at, m->bytes, error);
		at += m->bytes;
	}
	return status;
}

/* The stream copies what is sent out to the host, and what was received in. */
static zcc_status copy(const staged *s, zcc_stream *stream, const zcci_message *messages, int32_t n, bool sends,
                       zcc_error *error)
{
	char *at = s->pinned;
	zcc_status status = ZCC_OK;
	for (int32_t i = 0; status == ZCC_OK && i < n; i++) {
		const zcci_message *m = &messages[i];
		if (m->sends == sends)
			status = sends ? zcc_copy_async(stream, at, m->data, m->bytes, error)
			               : zcc_copy_async(stream, m->data, at, m->bytes, error);
		at += m->bytes;
	}
	return status;
}

static zcc_status exchange(void *group, zcc_stream *stream, void *native, const zcci_message *messages,
                           int32_t n_messages, zcc_error *error)
{
	staged *s = group;
	int64_t bytes = 0;
	(void)native;
	for (int32_t i = 0; i < n_messages; i++)
		bytes += messages[i].bytes;
	if (bytes > s->round_bytes || n_messages > s->n_slots)
		return zcci_fail(error, ZCC_EINVAL, 0, "transfer run",
		                 "%d messages of %lld bytes in a round, there is room for %d of %lld", n_messages,
		                 (long long)bytes, s->n_slots, (long long)s->round_bytes);
	zcc_status status = copy(s, stream, messages, n_messages, true, error);
	/* What is sent has come out; what was received in the round before has been read, too. */
	if (status == ZCC_OK)
		status = ZCCI_WAIT(staged_out, zcc_stream_wait(stream, error));
	/* After a fault of this process's device the messages go all the same, empty, so that nobody waits for them. */
	bool empty = status != ZCC_OK;
	zcc_error *later = empty ? NULL : error;
	zcc_status moved = start(s, messages, n_messages, false, empty, later);
	if (moved == ZCC_OK)
		moved = start(s, messages, n_messages, true, empty, later);
	if (moved == ZCC_OK)
		moved = await(s, messages, n_messages, later);
	s->abandoned = moved != ZCC_OK;
	if (empty || moved != ZCC_OK)
		return empty ? status : moved;
	return copy(s, stream, messages, n_messages, false, error);
}

const zcci_transport_ops zcci_staged_ops = {
        .version = ZCCI_TRANSPORT_VERSION,
        .struct_bytes = sizeof zcci_staged_ops,
        .name = "mpi",
        .open = open_staged,
        .ready = is_ready,
        .exchange = exchange,
        .abort = release,
        .close = release,
};
