#include "kernels/strided.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/memory.h"

static bool joins(const zcci_view *view, int32_t outer, int64_t extent, int64_t stride)
{
	int64_t span;
	return !zcci_mul_overflows(extent, stride, &span) && view->strides[outer] == span;
}

static void make_empty(zcci_view *view)
{
	view->ndim = 1;
	view->shape[0] = 0;
	view->strides[0] = 1;
}

void zcci_view_simplify(zcci_view *a, zcci_view *b)
{
	/* From the inside out; kept axes gather at the end of the arrays and move to the front afterwards. */
	int32_t kept = a->ndim;
	for (int32_t i = a->ndim - 1; i >= 0; i--) {
		if (a->shape[i] == 0) {
			make_empty(a);
			if (b != NULL)
				make_empty(b);
			return;
		}
		if (a->shape[i] == 1)
			continue;
		if (kept < a->ndim && joins(a, i, a->shape[kept], a->strides[kept]) &&
		    (b == NULL || joins(b, i, b->shape[kept], b->strides[kept]))) {
			a->shape[kept] *= a->shape[i];
			if (b != NULL)
				b->shape[kept] = a->shape[kept];
			continue;
		}
		kept--;
		a->shape[kept] = a->shape[i];
		a->strides[kept] = a->strides[i];
		if (b != NULL) {
			b->shape[kept] = b->shape[i];
			b->strides[kept] = b->strides[i];
		}
	}
	int32_t ndim = a->ndim - kept;
	for (zcci_view *view = a;; view = b) {
		memmove(view->shape, view->shape + kept, (size_t)ndim * sizeof *view->shape);
		memmove(view->strides, view->strides + kept, (size_t)ndim * sizeof *view->strides);
		view->ndim = ndim;
		if (view == b || b == NULL)
			return;
	}
}

bool zcci_view_dense(const zcci_view *view)
{
	zcci_view simple = *view;
	zcci_view_simplify(&simple, NULL);
	return simple.ndim == 0 || (simple.ndim == 1 && (simple.strides[0] == 1 || simple.shape[0] == 0));
}

/* ---- one row: n elements at byte strides ---- */

#define DEFINE_COPY_ROW(name, type)                                                                                    \
	static void name(char *target, int64_t target_step, const char *source, int64_t source_step, int64_t n)        \
	{                                                                                                              \
		for (int64_t i = 0; i < n; i++) {                                                                      \
			type value;                                                                                    \
			memcpy(&value, source + i * source_step, sizeof value);                                        \
			memcpy(target + i * target_step, &value, sizeof value);                                        \
		}                                                                                                      \
	}

typedef struct two_words {
	uint64_t low, high;
} two_words;

DEFINE_COPY_ROW(copy_row_1, uint8_t)
DEFINE_COPY_ROW(copy_row_2, uint16_t)
DEFINE_COPY_ROW(copy_row_4, uint32_t)
DEFINE_COPY_ROW(copy_row_8, uint64_t)
DEFINE_COPY_ROW(copy_row_16, two_words)

typedef void copy_row_function(char *, int64_t, const char *, int64_t, int64_t);

/* NULL for widths that have no loop of their own. */
static copy_row_function *row_function(int64_t bytes)
{
	switch (bytes) {
	case 1:
		return copy_row_1;
	case 2:
		return copy_row_2;
	case 4:
		return copy_row_4;
	case 8:
		return copy_row_8;
	case 16:
		return copy_row_16;
	default:
		return NULL;
	}
}

/* ---- blocks of rows ---- */

/* One side of a block: bytes from row to row and from element to element. */
typedef struct steps {
	int64_t row;
	int64_t col;
} steps;

enum { PREFETCH_BYTES = 1024, LINE = 64 };

/* The processor's own prefetching stops at the end of a row. */
static inline void prefetch_row(const char *source, int64_t source_row, int64_t row, int64_t rows, int64_t run_bytes)
{
	int64_t next = row + PREFETCH_BYTES / run_bytes + 1;
	int64_t reach = run_bytes < PREFETCH_BYTES ? run_bytes : PREFETCH_BYTES;
	for (int64_t k = 0; next < rows && k < reach; k += LINE)
		__builtin_prefetch(source + next * source_row + k);
}

#ifdef __SSE2__

/* Long rows are written past the caches: a line that is written whole need not be read first. memcpy does so from some
 * size on, but sees only one row. */
enum { STREAM_RUN_BYTES = 128 };

static bool worth_streaming(int64_t run_bytes)
{
	return run_bytes >= STREAM_RUN_BYTES;
}

static void stream_run(char *target, const char *source, int64_t bytes)
{
	int64_t head = (int64_t)(-(uintptr_t)target % LINE);
	memcpy(target, source, (size_t)head);
	for (; head + LINE <= bytes; head += LINE)
		for (int64_t i = head; i < head + LINE; i += 16)
			_mm_stream_si128((__m128i *)(void *)(target + i), _mm_loadu_si128((const void *)(source + i)));
	memcpy(target + head, source + head, (size_t)(bytes - head));
}

static void stream_runs(char *target, int64_t target_row, const char *source, int64_t source_row, int64_t rows,
                        int64_t run_bytes)
{
	for (int64_t i = 0; i < rows; i++) {
		prefetch_row(source, source_row, i, rows, run_bytes);
		stream_run(target + i * target_row, source + i * source_row, run_bytes);
	}
	_mm_sfence();
}

#else

static bool worth_streaming(int64_t run_bytes)
{
	(void)run_bytes;
	return false;
}

static void stream_runs(char *target, int64_t target_row, const char *source, int64_t source_row, int64_t rows,
                        int64_t run_bytes)
{
	for (int64_t i = 0; i < rows; i++)
		memcpy(target + i * target_row, source + i * source_row, (size_t)run_bytes);
}

#endif

/* Rows without gaps on both sides. `far`: the target is not read again soon. */
static void copy_runs(char *target, int64_t target_row, const char *source, int64_t source_row, int64_t rows,
                      int64_t run_bytes, bool far)
{
	if (far && worth_streaming(run_bytes)) {
		stream_runs(target, target_row, source, source_row, rows, run_bytes);
		return;
	}
	copy_row_function *narrow = row_function(run_bytes);
	if (narrow != NULL) {
		narrow(target, target_row, source, source_row, rows);
		return;
	}
	for (int64_t i = 0; i < rows; i++) {
		prefetch_row(source, source_row, i, rows, run_bytes);
		memcpy(target + i * target_row, source + i * source_row, (size_t)run_bytes);
	}
}

/* Where the sides are laid out across each other, narrow strips of columns keep each cache line until it is used up. */
enum { STRIP = 16 };

static void copy_block(char *target, steps to, const char *source, steps from, int64_t rows, int64_t cols,
                       int32_t elem_bytes, bool far)
{
	if (rows > 1 && to.row < to.col && from.row < from.col) {
		/* Column by column on both sides: the order within a whole block is free. */
		steps t = to, s = from;
		to = (steps){t.col, t.row};
		from = (steps){s.col, s.row};
		int64_t n = rows;
		rows = cols;
		cols = n;
	}
	if (to.col == elem_bytes && from.col == elem_bytes) {
		copy_runs(target, to.row, source, from.row, rows, cols * elem_bytes, far);
		return;
	}
	copy_row_function *copy_row = row_function(elem_bytes);
	int64_t strip = rows > 1 && (to.row < to.col || from.row < from.col) ? STRIP : cols;
	for (int64_t begin = 0; begin < cols; begin += strip) {
		int64_t n = cols - begin < strip ? cols - begin : strip;
		for (int64_t i = 0; i < rows; i++)
			copy_row(target + i * to.row + begin * to.col, to.col, source + i * from.row + begin * from.col,
			         from.col, n);
	}
}

/* ---- ranges ---- */

/* Offset in elements of element `index`, whose coordinates are left in `at`. */
static int64_t locate(const zcci_view *view, int64_t index, int64_t *at)
{
	int64_t offset = 0;
	for (int32_t i = view->ndim - 1; i >= 0; i--) {
		at[i] = index % view->shape[i];
		index /= view->shape[i];
		offset += at[i] * view->strides[i];
	}
	return offset;
}

/* Equal shapes, simplified together. The shifts, in elements, are added to every offset: the dense side of a pack
 * begins at the range's first element. */
static void copy_alike(char *target, const zcci_view *to, int64_t target_shift, const char *source,
                       const zcci_view *from, int64_t source_shift, int64_t first, int64_t count, int32_t elem_bytes,
                       bool far)
{
	if (to->ndim == 0) {
		memcpy(target + target_shift * elem_bytes, source + source_shift * elem_bytes, (size_t)elem_bytes);
		return;
	}
	int32_t last = to->ndim - 1;
	int64_t cols = to->shape[last];
	steps to_steps = {0, to->strides[last] * elem_bytes};
	steps from_steps = {0, from->strides[last] * elem_bytes};
	if (last > 0) {
		to_steps.row = to->strides[last - 1] * elem_bytes;
		from_steps.row = from->strides[last - 1] * elem_bytes;
	}
	int64_t at[ZCC_MAX_NDIM];
	int64_t target_at = locate(to, first, at) + target_shift;
	int64_t source_at = locate(from, first, at) + source_shift;
	for (;;) {
		/* The rest of a row, or as many whole rows as the last two axes hold from here. */
		int64_t rows = 1, n = cols - at[last];
		if (n > count)
			n = count;
		if (n == cols && last > 0) {
			rows = to->shape[last - 1] - at[last - 1];
			if (rows > count / cols)
				rows = count / cols;
		}
		copy_block(target + target_at * elem_bytes, to_steps, source + source_at * elem_bytes, from_steps, rows,
		           n, elem_bytes, far);
		count -= rows * n;
		if (count == 0)
			return;
		/* The row is used up: on to the first element of another one. */
		target_at -= at[last] * to->strides[last];
		source_at -= at[last] * from->strides[last];
		at[last] = 0;
		int64_t step = rows;
		for (int32_t i = last - 1; i >= 0; i--) {
			target_at += step * to->strides[i];
			source_at += step * from->strides[i];
			at[i] += step;
			if (at[i] < to->shape[i])
				break;
			target_at -= at[i] * to->strides[i];
			source_at -= at[i] * from->strides[i];
			at[i] = 0;
			step = 1;
		}
	}
}

/* What is packed is sent or converted next, as long as a cache holds it. What is unpacked or copied has arrived, and is
 * only left in the caches where that is cheaper than to write it out. */
enum { FAR_PACKED_BYTES = 4 << 20, FAR_TARGET_BYTES = 64 << 10 };

/* Elements from `index` to the end of its innermost row. */
static int64_t run_left(const zcci_view *view, const int64_t *at)
{
	return view->ndim > 0 ? view->shape[view->ndim - 1] - at[view->ndim - 1] : 1;
}

/* Shapes that differ: run by run, each as long as both sides allow. */
static void copy_unlike(char *target, const zcci_view *to, const char *source, const zcci_view *from, int64_t first,
                        int64_t count, int32_t elem_bytes, bool far)
{
	while (count > 0) {
		int64_t to_at[ZCC_MAX_NDIM], from_at[ZCC_MAX_NDIM];
		int64_t target_at = locate(to, first, to_at);
		int64_t source_at = locate(from, first, from_at);
		int64_t n = run_left(to, to_at);
		if (n > run_left(from, from_at))
			n = run_left(from, from_at);
		if (n > count)
			n = count;
		steps to_steps = {0, to->ndim > 0 ? to->strides[to->ndim - 1] * elem_bytes : elem_bytes};
		steps from_steps = {0, from->ndim > 0 ? from->strides[from->ndim - 1] * elem_bytes : elem_bytes};
		copy_block(target + target_at * elem_bytes, to_steps, source + source_at * elem_bytes, from_steps, 1, n,
		           elem_bytes, far);
		first += n;
		count -= n;
	}
}

/* Splits axes until both shapes are equal; false where no such shape has few enough axes (2 x 3 against 3 x 2). */
static bool refine(zcci_view *a, zcci_view *b)
{
	zcci_view x = {0}, y = {0};
	int32_t i = a->ndim - 1, j = b->ndim - 1, at = ZCC_MAX_NDIM;
	/* What is left of the current axis of each side, from the inside out. */
	int64_t a_left = 1, b_left = 1, a_stride = 0, b_stride = 0;
	for (;;) {
		if (a_left == 1 && i >= 0) {
			a_left = a->shape[i];
			a_stride = a->strides[i--];
		}
		if (b_left == 1 && j >= 0) {
			b_left = b->shape[j];
			b_stride = b->strides[j--];
		}
		int64_t n = a_left < b_left ? a_left : b_left;
		if (n == 1)
			break;
		if (a_left % n != 0 || b_left % n != 0 || at == 0)
			return false;
		at--;
		x.shape[at] = y.shape[at] = n;
		x.strides[at] = a_stride;
		y.strides[at] = b_stride;
		a_left /= n;
		b_left /= n;
		a_stride *= n;
		b_stride *= n;
	}
	a->ndim = b->ndim = ZCC_MAX_NDIM - at;
	for (int32_t k = at; k < ZCC_MAX_NDIM; k++) {
		a->shape[k - at] = b->shape[k - at] = x.shape[k];
		a->strides[k - at] = x.strides[k];
		b->strides[k - at] = y.strides[k];
	}
	return true;
}

void zcci_copy(void *target, const zcci_view *target_view, const void *source, const zcci_view *source_view,
               int64_t first, int64_t count, int32_t elem_bytes)
{
	if (count <= 0)
		return;
	zcci_view to = *target_view, from = *source_view;
	bool far = count >= FAR_TARGET_BYTES / elem_bytes;
	zcci_view_simplify(&to, NULL);
	zcci_view_simplify(&from, NULL);
	if (refine(&to, &from))
		copy_alike(target, &to, 0, source, &from, 0, first, count, elem_bytes, far);
	else
		copy_unlike(target, &to, source, &from, first, count, elem_bytes, far);
}

/* Simplifies `view` and sets `dense` to the view of equal shape without gaps. */
static void pair_with_dense(zcci_view *view, zcci_view *dense)
{
	zcci_view_simplify(view, NULL);
	*dense = *view;
	int64_t stride = 1;
	for (int32_t i = dense->ndim - 1; i >= 0; i--) {
		dense->strides[i] = stride;
		stride *= dense->shape[i];
	}
}

void zcci_pack_window(void *dense, const void *window, int64_t window_elems, const zcci_view *view, int64_t first,
                      int64_t count, int32_t elem_bytes)
{
	if (count <= 0)
		return;
	zcci_view from = *view, to;
	pair_with_dense(&from, &to);
	copy_alike(dense, &to, -first, window, &from, -window_elems, first, count, elem_bytes,
	           count >= FAR_PACKED_BYTES / elem_bytes);
}

void zcci_pack(void *dense, const void *base, const zcci_view *view, int64_t first, int64_t count, int32_t elem_bytes)
{
	zcci_pack_window(dense, base, 0, view, first, count, elem_bytes);
}

void zcci_unpack(void *base, const zcci_view *view, int64_t first, int64_t count, const void *dense, int32_t elem_bytes)
{
	if (count <= 0)
		return;
	zcci_view to = *view, from;
	pair_with_dense(&to, &from);
	copy_alike(base, &to, 0, dense, &from, -first, first, count, elem_bytes,
	           count >= FAR_TARGET_BYTES / elem_bytes);
}
