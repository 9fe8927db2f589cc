#include "affine/cut.h"

#include <string.h>

#include "base/status.h"

/* One part's share of one coordinate. */
typedef struct share {
	int64_t begin; /* in the part */
	int64_t end;
	int64_t extent;    /* in the shard, padding included */
	int32_t low, high; /* coordinates with this share */
} share;

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static share share_of(const zcc_part *part, int32_t n, int32_t c)
{
	share s = {.low = c, .high = c + 1};
	int64_t unit = part->units > 0 ? part->size_elems / part->units : 0;
	if (part->cut == ZCC_CUT_REPLICATE) {
		s = (share){0, part->size_elems, part->size_elems, 0, n};
	} else if (part->cut == ZCC_CUT_GROUPED && part->units > 0 && part->units < n) {
		int32_t mates = n / (int32_t)part->units;
		int32_t head = c / mates;
		s = (share){head * unit, (head + 1) * unit, unit, head * mates, (head + 1) * mates};
	} else if (part->cut == ZCC_CUT_UNEVEN) {
		int64_t floor = part->units / n, more = part->units % n;
		s.begin = (c * floor + least(c, more)) * unit;
		s.end = s.begin + (floor + (c < more)) * unit;
		s.extent = s.end - s.begin;
	} else {
		s.extent = (part->padded_elems > 0 ? part->padded_elems : part->size_elems) / n;
		s.begin = least(c * s.extent, part->size_elems);
		s.end = least((c + 1) * s.extent, part->size_elems);
	}
	return s;
}

/* ---- checks ---- */

typedef struct place {
	const char *name;
	const char *axis_name;
	int32_t dim;
	int32_t part;
	int32_t n;
	zcc_error *error;
} place;

#define refuse(at, status, format, ...)                                                                                \
	zcci_fail((at)->error, status, 0, "layout add param",                                                          \
	          "parameter %s, axis %d cut by mesh axis %s of size %d, part %d: " format, (at)->name, (at)->dim,     \
	          (at)->axis_name, (at)->n, (at)->part, __VA_ARGS__)

static zcc_status check_divides(const place *at, const zcc_part *part)
{
	int32_t n = at->n;
	int64_t units = part->units;
	if (part->padded_elems > 0) {
		int64_t unit = units > 0 ? part->size_elems / units : 1;
		int64_t step = unit > 0 ? unit : 1;
		if (part->padded_elems % step != 0 || part->padded_elems / step % n != 0)
			return refuse(at, ZCC_ELAYOUT,
			              "%lld padded elements do not divide into %d equal shares of whole units of %lld",
			              (long long)part->padded_elems, n, (long long)step);
	} else if (part->cut == ZCC_CUT_EVEN && units % n != 0) {
		return refuse(at, ZCC_ELAYOUT, "%lld units do not divide by %d", (long long)units, n);
	} else if (part->cut == ZCC_CUT_GROUPED && (units == 0 || (units < n ? n % units : units % n) != 0) &&
	           part->size_elems > 0) {
		return refuse(at, ZCC_ELAYOUT, "neither do %lld units divide by %d nor %d by %lld", (long long)units, n,
		              n, (long long)units);
	}
	return ZCC_OK;
}

static zcc_status check_part(const place *at, const zcc_part *part)
{
	if (part->cut < ZCC_CUT_EVEN || part->cut > ZCC_CUT_GROUPED)
		return refuse(at, ZCC_EINVAL, "%d is no kind of cut", part->cut);
	if (part->size_elems < 0 || part->units < 0 || part->padded_elems < 0)
		return refuse(at, ZCC_EINVAL, "size %lld, units %lld and padded size %lld must not be negative",
		              (long long)part->size_elems, (long long)part->units, (long long)part->padded_elems);
	if (part->units == 0 ? part->size_elems > 0 : part->size_elems % part->units != 0)
		return refuse(at, ZCC_EINVAL, "%lld units do not divide its %lld elements", (long long)part->units,
		              (long long)part->size_elems);
	if (part->padded_elems > 0 && (part->cut != ZCC_CUT_EVEN || part->padded_elems < part->size_elems))
		return refuse(at, ZCC_EINVAL,
		              "padding %lld elements to %lld needs an even cut and no fewer than there are",
		              (long long)part->size_elems, (long long)part->padded_elems);
	return check_divides(at, part);
}

static zcc_status check_extents(const zcci_cut *cut, int64_t extent, const char *name, const char *axis_name,
                                zcc_error *error)
{
	for (int32_t c = 0; c < cut->n_coords; c++)
		if (cut->starts[c + 1] < cut->starts[c])
			return zcci_fail(error, ZCC_EINVAL, 0, "layout add param",
			                 "parameter %s, axis %d cut by mesh axis %s: the extent of coordinate %d is "
			                 "negative or the extents add up to over 2^63",
			                 name, cut->dim, axis_name, c);
	if (cut->starts[cut->n_coords] != extent)
		return zcci_fail(
		        error, ZCC_EINVAL, 0, "layout add param",
		        "parameter %s, axis %d cut by mesh axis %s: the extents add up to %lld, the axis has %lld",
		        name, cut->dim, axis_name, (long long)cut->starts[cut->n_coords], (long long)extent);
	return ZCC_OK;
}

zcc_status zcci_cut_check(const zcci_cut *cut, int64_t extent, const char *name, const char *axis_name,
                          zcc_error *error)
{
	if (cut->starts != NULL)
		return check_extents(cut, extent, name, axis_name, error);
	int64_t size = 0, padded = 0;
	for (int32_t p = 0; p < cut->n_parts; p++) {
		const zcc_part *part = &cut->parts[p];
		place at = {name, axis_name, cut->dim, p, cut->n_coords, error};
		zcc_status status = check_part(&at, part);
		if (status != ZCC_OK)
			return status;
		if (zcci_add_overflows(size, part->size_elems, &size) ||
		    zcci_add_overflows(padded, part->padded_elems > 0 ? part->padded_elems : part->size_elems, &padded))
			return refuse(&at, ZCC_EOVERFLOW, "its size %lld or padded size %lld takes the axis over 2^63",
			              (long long)part->size_elems, (long long)part->padded_elems);
	}
	if (size != extent)
		return zcci_fail(
		        error, ZCC_EINVAL, 0, "layout add param",
		        "parameter %s, axis %d cut by mesh axis %s: the %d parts add up to %lld, the axis has %lld",
		        name, cut->dim, axis_name, cut->n_parts, (long long)size, (long long)extent);
	return ZCC_OK;
}

/* ---- cutting ---- */

int64_t zcci_cut_extent(const zcci_cut *cut, int32_t coord)
{
	if (cut->starts != NULL)
		return cut->starts[coord + 1] - cut->starts[coord];
	int64_t extent = 0;
	for (int32_t p = 0; p < cut->n_parts; p++)
		extent += share_of(&cut->parts[p], cut->n_coords, coord).extent;
	return extent;
}

/* Parts leave no coordinate more than the one before it, so that of those only the last need be looked at. */
static int32_t first_to_compare(const zcci_cut *cut)
{
	return cut->starts != NULL ? 1 : cut->n_coords - 1;
}

int64_t zcci_cut_most(const zcci_cut *cut)
{
	int64_t most = zcci_cut_extent(cut, 0);
	for (int32_t c = first_to_compare(cut); c < cut->n_coords; c++) {
		int64_t extent = zcci_cut_extent(cut, c);
		most = extent > most ? extent : most;
	}
	return most;
}

bool zcci_cut_is_even(const zcci_cut *cut, int32_t *coord)
{
	int64_t extent = zcci_cut_extent(cut, 0);
	for (*coord = first_to_compare(cut); *coord < cut->n_coords; ++*coord)
		if (zcci_cut_extent(cut, *coord) != extent)
			return false;
	return true;
}

bool zcci_cut_replicates(const zcci_cut *cut)
{
	for (int32_t p = 0; p < cut->n_parts; p++) {
		share s = share_of(&cut->parts[p], cut->n_coords, 0);
		if (s.high - s.low > 1 && s.end > s.begin)
			return true;
	}
	return false;
}

/* Puts an interval after the last one, or into it. */
static int32_t put(zcci_interval *out, int32_t n, const zcci_interval *next)
{
	zcci_interval *last = n > 0 ? &out[n - 1] : NULL;
	if (last != NULL && last->start + last->length == next->start && last->local + last->length == next->local &&
	    memcmp(last->low, next->low, sizeof last->low) == 0 &&
	    memcmp(last->high, next->high, sizeof last->high) == 0) {
		last->length += next->length;
		return n;
	}
	out[n] = *next;
	return n + 1;
}

int32_t zcci_cut_apply(const zcci_cut *cut, int32_t coord, const zcci_interval *intervals, int32_t n,
                       zcci_interval *out)
{
	int32_t n_parts = cut->starts != NULL ? 1 : cut->n_parts;
	int32_t n_out = 0;
	int64_t part_start = 0, local = 0;
	for (int32_t p = 0, i = 0; p < n_parts; p++) {
		share s;
		if (cut->starts != NULL)
			s = (share){cut->starts[coord], cut->starts[coord + 1],
			            cut->starts[coord + 1] - cut->starts[coord], coord, coord + 1};
		else
			s = share_of(&cut->parts[p], cut->n_coords, coord);
		int64_t begin = part_start + s.begin, end = part_start + s.end;
		while (i < n && intervals[i].local + intervals[i].length <= begin)
			i++;
		for (int32_t k = i; k < n && intervals[k].local < end; k++) {
			zcci_interval piece = intervals[k];
			int64_t from = piece.local > begin ? piece.local : begin;
			int64_t to = least(piece.local + piece.length, end);
			if (from >= to)
				continue;
			piece.start += from - intervals[k].local;
			piece.length = to - from;
			piece.local = local + from - begin;
			piece.low[cut->axis] = s.low;
			piece.high[cut->axis] = s.high;
			n_out = put(out, n_out, &piece);
		}
		part_start += cut->starts != NULL ? 0 : cut->parts[p].size_elems;
		local += s.extent;
	}
	return n_out;
}
