/* JSON documents, exact: integers keep all 63 bits, duplicate keys and invalid UTF-8 are refused.
 * RFC 8259; parsing rests on cJSON, printing of numbers is ours. */
#ifndef ZCC_JSON_H
#define ZCC_JSON_H

#include "base.h"

enum {
	ZCC_JSON_NULL = 0,
	ZCC_JSON_FALSE = 1,
	ZCC_JSON_TRUE = 2,
	ZCC_JSON_NUMBER = 3,
	ZCC_JSON_STRING = 4,
	ZCC_JSON_ARRAY = 5,
	ZCC_JSON_OBJECT = 6
};

/* One value of a parsed document. Node 0 is the root; children are linked by index. */
typedef struct zcc_json_node {
	int32_t kind;
	int32_t is_integer;  /* 1: no fraction, no exponent, fits int64: `integer` is exact; -0 is none */
	int32_t n_children;  /* arrays and objects */
	int32_t first_child; /* node index, -1 for none */
	int32_t next;        /* next child of the same parent, -1 at the end */
	int32_t parent;      /* -1 for the root */
	int64_t integer;
	double number;      /* nearest double of the literal; integers too; -0 keeps its sign */
	const char *key;    /* NUL-terminated UTF-8 without inner NULs; NULL unless the parent is an object */
	const char *string; /* strings only; same form */
	int64_t key_bytes;
	int64_t string_bytes;
} zcc_json_node;

typedef struct zcc_json zcc_json;

/* Parses text_bytes bytes (no NUL needed at the end). `what` names the document in messages (a path). Refused with
 * ZCC_EFORMAT and the byte offset: bad syntax, text after the value, invalid UTF-8, "\u0000", duplicate keys, depth
 * over 500, numbers too large for a double, a lone surrogate, a byte order mark, 2^31 - 1 bytes or more. Also
 * ZCC_ENOMEM. Time is linear in the text. Nodes are in document order: a parent comes before its children. */
ZCC_API zcc_status zcc_json_parse(const char *text, int64_t text_bytes, const char *what, zcc_json **document,
                                  zcc_error *error);
ZCC_API void zcc_json_destroy(zcc_json *document);
/* All nodes; owned by the document. */
ZCC_API const zcc_json_node *zcc_json_nodes(const zcc_json *document, int64_t *n_nodes);
/* The child of object `node` with that key, -1 where there is none or `node` is no object. Not linear. */
ZCC_API int32_t zcc_json_member(const zcc_json *document, int32_t node, const char *key);

/* Writes a document front to back. The first fault (calls out of order, text that is not UTF-8 or holds a NUL, depth
 * over 500, no memory) is noted and reported by zcc_json_writer_text; what follows it is ignored. Keys are not checked
 * for duplicates. One thread. */
typedef struct zcc_json_writer zcc_json_writer;

/* indent_spaces = 0 prints on one line without spaces; 16 at most. ZCC_EINVAL, ZCC_ENOMEM. */
ZCC_API zcc_status zcc_json_writer_create(int32_t indent_spaces, zcc_json_writer **writer, zcc_error *error);
ZCC_API void zcc_json_writer_destroy(zcc_json_writer *writer);
ZCC_API void zcc_json_write_begin_object(zcc_json_writer *writer);
ZCC_API void zcc_json_write_end_object(zcc_json_writer *writer);
ZCC_API void zcc_json_write_begin_array(zcc_json_writer *writer);
ZCC_API void zcc_json_write_end_array(zcc_json_writer *writer);
ZCC_API void zcc_json_write_key(zcc_json_writer *writer, const char *key);
ZCC_API void zcc_json_write_string(zcc_json_writer *writer, const char *string, int64_t string_bytes);
ZCC_API void zcc_json_write_integer(zcc_json_writer *writer, int64_t value);
/* The fewest digits that read back to the same bits, beyond 2^53 with a fraction or an exponent, so that they are no
 * exact integer; a value that is not finite is a fault (JSON has none). */
ZCC_API void zcc_json_write_number(zcc_json_writer *writer, double value);
ZCC_API void zcc_json_write_bool(zcc_json_writer *writer, int32_t value);
ZCC_API void zcc_json_write_null(zcc_json_writer *writer);
/* The finished text, NUL-terminated, owned by the writer. ZCC_EINVAL: a noted fault or an unfinished document, named;
 * ZCC_ENOMEM, ZCC_EOVERFLOW. */
ZCC_API zcc_status zcc_json_writer_text(zcc_json_writer *writer, const char **text, int64_t *text_bytes,
                                        zcc_error *error);

#endif
