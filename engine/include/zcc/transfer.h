/* Processes, and the executor that carries out a plan between them. MPI is called from the main thread only. */
#ifndef ZCC_TRANSFER_H
#define ZCC_TRANSFER_H

#include "base.h"
#include "affine.h"
#include "device.h"
#include "store.h"

/* ---- processes ---- */

/* A group of processes. Every call below is collective unless it says otherwise, made by all processes in the same
 * order, from the main thread. A signal gives them a moment to come to an end together (zcc_comm_agree then
 * returns ZCC_EINTR on all); after that a call returns ZCC_EINTR by itself. A group in which a call was given up, or
 * MPI refused (ZCC_EMPI), answers ZCC_EPEER from then on. */
typedef struct zcc_comm zcc_comm;

/* This process alone; never touches MPI. */
ZCC_API zcc_status zcc_comm_create_local(zcc_comm **comm, zcc_error *error);
/* All of MPI_COMM_WORLD (duplicated, errors returned). MPI must be initialised. */
ZCC_API zcc_status zcc_comm_create_mpi(zcc_comm **comm, zcc_error *error);
/* Drops the caller's reference; transfers keep theirs. The last one is collective for MPI. NULL is allowed. */
ZCC_API void zcc_comm_destroy(zcc_comm *comm);
/* Local calls. */
ZCC_API int32_t zcc_comm_rank(const zcc_comm *comm);
ZCC_API int32_t zcc_comm_size(const zcc_comm *comm);

/* Brings `mine` (status ZCC_OK or this process's fault) and returns, on every process, the fault of the lowest
 * process that has one, with `process` set and the message unchanged; ZCC_OK where all are well. `mine` may be NULL
 * for ZCC_OK. */
ZCC_API zcc_status zcc_comm_agree(zcc_comm *comm, const zcc_error *mine, zcc_error *error);
/* In place, element by element. */
ZCC_API zcc_status zcc_comm_sum(zcc_comm *comm, int64_t *values, int64_t n_values, zcc_error *error);
ZCC_API zcc_status zcc_comm_max(zcc_comm *comm, int64_t *values, int64_t n_values, zcc_error *error);
/* From process `root` to all. Any number of bytes. */
ZCC_API zcc_status zcc_comm_broadcast(zcc_comm *comm, void *data, int64_t bytes, int32_t root, zcc_error *error);
/* ZCC_EAGREE on every process, naming `what` and the processes that differ from the most common value (ties: from
 * process 0's). */
ZCC_API zcc_status zcc_comm_same(zcc_comm *comm, const char *what, int64_t value, zcc_error *error);

/* For a process about to end on a fault, once: waits at most timeout_ns for all others to arrive here too. *all_here
 * = 1: everyone did; then MPI may be finalized. 0: the others are stuck elsewhere and the caller has to abort them.
 * *speak = 1 on the lowest process of each distinct message among those that are here, NULL being none; with `yields`
 * only where no other message is here: a process that was merely ended explains nothing when another knows why. Never
 * fails, never blocks longer, does not give way to signals. */
ZCC_API void zcc_comm_farewell(zcc_comm *comm, const char *message, int32_t yields, int64_t timeout_ns, int32_t *speak,
                               int32_t *all_here);

/* ---- transfers ---- */

typedef struct zcc_transfer zcc_transfer;

/* The endpoint of a rank that is a storage file, which every process reaches by itself. */
enum { ZCC_ENDPOINT_FILE = -2 };

typedef struct zcc_transfer_options {
	uint32_t struct_bytes; /* set by zcc_transfer_options_init */
	uint32_t reserved;
	int64_t staging_bytes; /* staging budget per peer, both directions together; 8 MiB; at least 4 KiB */
	int64_t timeout_ns;    /* nothing from a peer for so long is ZCC_EPEER, naming it; 5 minutes; 0 = never */
} zcc_transfer_options;
ZCC_API void zcc_transfer_options_init(zcc_transfer_options *options);

typedef struct zcc_transfer_result {
	int64_t staging_peak_bytes; /* of this process; at most staging_bytes * peers (files count as one peer) */
	int64_t wire_bytes;         /* from shards of this process to those of others, whichever of the two copied */
	int64_t copied_bytes;       /* between two shards in this process's own memory */
	int64_t read_bytes;         /* from files, by this process; what the disk was asked for */
	int64_t written_bytes;      /* to files, by this process */
	int64_t ns;                 /* from submit to the end of wait */
} zcc_transfer_result;

/* A built plan to be carried out on these processes. options may be NULL. Holds references to plan and comm. Not
 * collective. ZCC_EINVAL for a plan that is not built or a budget out of range; ZCC_ENOMEM. */
ZCC_API zcc_status zcc_transfer_create(zcc_plan *plan, zcc_comm *comm, const zcc_transfer_options *options,
                                       zcc_transfer **transfer, zcc_error *error);
/* A run that no wait has ended is given up: the targets are torn, and the group, where it has several processes,
 * answers ZCC_EPEER from then on. Waits a few seconds at most for what is just being received. NULL is allowed. */
ZCC_API void zcc_transfer_destroy(zcc_transfer *transfer);
/* Endpoint table: where a rank of one side lives: a process, or ZCC_ENDPOINT_FILE. Every process gives the whole
 * table; local call. ZCC_EINVAL for a rank that is in no layout or a process that does not exist. */
ZCC_API zcc_status zcc_transfer_place(zcc_transfer *transfer, int32_t side, int32_t rank, int32_t process,
                                      zcc_error *error);
/* From here on all memory bound to this transfer lies on `device` or is pinned for it, no files are bound, and the
 * device does the work: F16, BF16 and F32 are converted into each other, without a scale. transport: between the
 * devices of different processes the bytes go by "mpi" (NULL), through pinned memory of the host, or by "nccl", from
 * GPU to GPU (cuda devices; the plug-in libzcc_nccl.so). Every process gives the same transport, and a device of its
 * own choice. staging_bytes then covers memory of the device and pinned memory together; conversions within a process
 * count as one more peer. Keeps the device open. Local call, before anything is bound. ZCC_EINVAL, ZCC_EDEVICE. */
ZCC_API zcc_status zcc_transfer_set_device(zcc_transfer *transfer, zcc_device *device, const char *transport,
                                           zcc_error *error);
/* The shard buffer of one parameter (its index in that side's layout) on a rank placed here. The caller keeps it
 * alive until destroy. `bytes` must be at least the shard's; dtype that of the layout. Local call. ZCC_EINVAL with
 * the numbers. */
ZCC_API zcc_status zcc_transfer_bind_memory(zcc_transfer *transfer, int32_t side, int32_t rank, int32_t param,
                                            void *data, int64_t bytes, zcc_error *error);
/* The shard lies dense at offset_bytes of a file. The transfer keeps its own reference to the file. Local call. */
ZCC_API zcc_status zcc_transfer_bind_file(zcc_transfer *transfer, int32_t side, int32_t rank, int32_t param,
                                          zcc_file *file, int64_t offset_bytes, int64_t bytes, zcc_error *error);
/* A run is submitted, worked on by test as often as one likes, and ended by wait. A group of processes has one run at a
 * time (ZCC_EINVAL); from submit to wait bound memory is the run's, and nothing is placed or bound (ZCC_EINVAL).
 *
 * Collective. First checks that all processes agree on plan, endpoints, budget and version (ZCC_EAGREE names who
 * differs) and that every segment stays inside its bound buffer; then starts. On any process's fault every process
 * returns that fault, and nothing runs. Gives way to signals (ZCC_EINTR). */
ZCC_API zcc_status zcc_transfer_submit(zcc_transfer *transfer, zcc_error *error);
/* Moves for about slice_ns, at least one step; *finished = 1: this process has nothing left to do, be it for a fault.
 * Faults of the run are told by wait, on all processes together. Local call, and the others wait for this process
 * between two of them, timeout_ns at most. Between devices wait does all the work, and test has nothing to do.
 * ZCC_EINVAL: nothing is submitted. */
ZCC_API zcc_status zcc_transfer_test(zcc_transfer *transfer, int64_t slice_ns, int32_t *finished, zcc_error *error);
/* Collective. Moves all that is left and ends the run. On ZCC_OK every target element is in place; on any process's
 * fault every process returns that fault and the targets are torn. `result` may be NULL. Then a run may be submitted
 * again. Gives way to signals (ZCC_EINTR). ZCC_EINVAL: nothing is submitted. */
ZCC_API zcc_status zcc_transfer_wait(zcc_transfer *transfer, zcc_transfer_result *result, zcc_error *error);
/* Submit, then wait. */
ZCC_API zcc_status zcc_transfer_run(zcc_transfer *transfer, zcc_transfer_result *result, zcc_error *error);
/* Bytes done and to do by this process in the run; local; any thread. */
ZCC_API void zcc_transfer_progress(const zcc_transfer *transfer, int64_t *done_bytes, int64_t *total_bytes);

/* ---- verification ---- */

/* Compares two stored layouts by logical element, without the plan and without MPI messages. All shards are bound as
 * files. */
typedef struct zcc_verify zcc_verify;
/* Validates both layouts and holds references to them. Local call. Parameters of one layout only or of other shapes:
 * ZCC_EMAP; dtypes with no conversion: ZCC_ELAYOUT; ZCC_ENOMEM. */
ZCC_API zcc_status zcc_verify_create(zcc_layout *target, zcc_layout *source, zcc_verify **verify, zcc_error *error);
ZCC_API void zcc_verify_destroy(zcc_verify *verify);
/* As zcc_transfer_bind_file. */
ZCC_API zcc_status zcc_verify_bind_file(zcc_verify *verify, int32_t side, int32_t rank, int32_t param, zcc_file *file,
                                        int64_t offset_bytes, int64_t bytes, zcc_error *error);
/* Collective, and every process has bound every shard; the work is spread over the processes of comm. (1) Every
 * replica of every source block equals that of its lowest holder; (2) every element of every target shard equals
 * (after conversion) the source's; (3) padding of target shards is zero. Takes little memory, whatever the sizes.
 * *compared_bytes (may be NULL): target elements and source replicas that were compared, of all processes.
 * ZCC_EVERIFY names parameter, element, ranks, files and both values in hex. ZCC_EINVAL: a shard is not bound.
 * ZCC_ELAYOUT: a scale on what is not floating; ZCC_EIO, ZCC_ENOMEM, ZCC_EINTR. One process's fault is every
 * process's. */
ZCC_API zcc_status zcc_verify_run(zcc_verify *verify, zcc_comm *comm, int64_t *compared_bytes, zcc_error *error);
/* Local. Does some of this process's work, for about slice_ns or one shard, whichever takes longer; any number of calls
 * may come before zcc_verify_run, which then does what is left. *finished = 1: nothing is left here, for whatever
 * reason. A fault is returned here and, by zcc_verify_run, to every process. */
ZCC_API zcc_status zcc_verify_test(zcc_verify *verify, zcc_comm *comm, int64_t slice_ns, int32_t *finished,
                                   zcc_error *error);
/* Bytes of shards looked at and to be looked at by this process; both 0 before the first zcc_verify_test. Local. */
ZCC_API void zcc_verify_progress(const zcc_verify *verify, int64_t *done_bytes, int64_t *total_bytes);

#endif
