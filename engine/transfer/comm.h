/* A group of processes as the executor sees it: collectives that give way to signals, and non-blocking messages in
 * numbered slots. */
#ifndef ZCCI_COMM_H
#define ZCCI_COMM_H

#include <stdbool.h>

#include "zcc/transfer.h"

enum { ZCCI_REDUCE_SUM, ZCCI_REDUCE_MAX, ZCCI_REDUCE_MIN };

/* What a kind of group must bring. None may block without looking at zcc_interrupted. A NULL message slot means that
 * the group has no other process to send to. Data of collectives lies in memory of the group, because an abandoned
 * collective may still write there. */
typedef struct zcci_comm_ops {
	uint32_t version; /* ZCCI_COMM_VERSION */
	const char *name;

	/* n <= ZCCI_COMM_PIECE_BYTES / 8 values in comm->piece, in place. */
	zcc_status (*reduce)(zcc_comm *comm, int32_t op, int32_t n_values, zcc_error *error);
	/* comm->mine of every process into comm->all, by process. */
	zcc_status (*gather)(zcc_comm *comm, zcc_error *error);
	/* The first `bytes` of comm->piece, from process root. */
	zcc_status (*broadcast)(zcc_comm *comm, int32_t bytes, int32_t root, zcc_error *error);
	/* As zcc_comm_farewell; hash stands for the message, 0 for none. */
	void (*farewell)(zcc_comm *comm, int64_t hash, int32_t yields, int64_t timeout_ns, int32_t *speak,
	                 int32_t *all_here);
	void (*destroy)(zcc_comm *comm);

	/* Makes room for messages in slots 0 … n_slots − 1; none may be in flight. */
	zcc_status (*reserve)(zcc_comm *comm, int32_t n_slots, zcc_error *error);
	/* Start a message in a free slot. Messages between two processes arrive in the order in which they were
	 * started; a message may be shorter than what was made ready for it. bytes < 2^31. */
	zcc_status (*send)(zcc_comm *comm, int32_t slot, int32_t peer, const void *data, int64_t bytes,
	                   zcc_error *error);
	zcc_status (*receive)(zcc_comm *comm, int32_t slot, int32_t peer, void *data, int64_t bytes, zcc_error *error);
	/* Which messages ended since the last call: their slots, which are free again, and the bytes of those received.
	 * Both arrays hold n_slots. Does not wait. */
	zcc_status (*poll)(zcc_comm *comm, int32_t *slots, int64_t *bytes, int32_t *n_done, zcc_error *error);
	/* Takes back a receive that no message was sent for. */
	zcc_status (*cancel)(zcc_comm *comm, int32_t slot, zcc_error *error);
} zcci_comm_ops;

enum { ZCCI_COMM_VERSION = 1, ZCCI_COMM_PIECE_BYTES = 256 * 1024 };

/* What processes of one host read of each other directly. */
typedef struct zcci_beacon {
	int64_t identity; /* proves that the right process is read */
	int64_t stopped;  /* 1: this process ends its part of a transfer early */
} zcci_beacon;

/* Another process, seen from here. */
typedef struct zcci_neighbour {
	bool near; /* the same on both sides: each may read and write the other's memory */
	int32_t pid;
	uintptr_t beacon; /* address of its beacon */
} zcci_neighbour;

struct zcc_comm {
	const zcci_comm_ops *ops;
	int32_t rank;
	int32_t size;
	int32_t references;
	bool broken;            /* a collective or a message was abandoned: nothing more can be said in order */
	bool moving;            /* a transfer's run is in flight: it has all slots and the beacon */
	int64_t give_up_ns;     /* when waiting ends, on the clock of zcc_clock_ns; 0 = it does not */
	bool stopped;           /* a signal came: give_up_ns allows for that */
	void *piece;            /* ZCCI_COMM_PIECE_BYTES */
	int64_t mine;           /* for gather */
	zcci_beacon *beacon;    /* NULL in a group of one */
	zcci_neighbour *others; /* one per process, NULL in a group of one */
	int64_t *all;           /* one per process */
};

/* Sets the common part up. ZCC_ENOMEM. */
zcc_status zcci_comm_init(zcc_comm *comm, const zcci_comm_ops *ops, int32_t rank, int32_t size, zcc_error *error);
/* Frees what zcci_comm_init made, not comm itself. */
void zcci_comm_fini(zcc_comm *comm);
/* A reference more. Main thread. */
zcc_comm *zcci_comm_retain(zcc_comm *comm);
/* Finds out which processes are near. Collective. */
zcc_status zcci_comm_meet(zcc_comm *comm, zcc_error *error);
/* Asked in every wait: ZCC_OK to wait on. After zcci_comm_hurry the others have a few seconds to answer, after a signal
 * a part of one; then ZCC_EINTR or ZCC_EPEER, and the group is broken. */
zcc_status zcci_comm_patience(zcc_comm *comm, const char *operation, zcc_error *error);
/* From now on the others have only a few seconds to answer: one of them does not seem to. */
void zcci_comm_hurry(zcc_comm *comm);
/* ZCC_EINTR for the signal noted. */
zcc_status zcci_comm_interrupted(const char *operation, zcc_error *error);

/* Waiting without taking the processor from those waited for: there may be more processes than cores. */
typedef struct zcci_idle {
	int32_t turns;
	int64_t since_ns;
} zcci_idle;
void zcci_idle_wait(zcci_idle *idle);

#endif
