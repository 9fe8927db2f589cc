#include "zcc/json.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <xxhash.h>

#include "base/json_scan.h"
#include "base/memory.h"
#include "base/status.h"

/* Node indices are int32 and every node takes at least a byte of text. */
#define MAX_TEXT_BYTES ((int64_t)INT32_MAX - 1)

struct zcc_json {
	int64_t n_nodes;
	zcc_json_node *nodes;
	char *text;      /* first the text, then all keys and strings */
	int64_t n_slots; /* a power of two */
	int32_t *slots;  /* open addressing over (parent, key): node index, or -1 */
};

/* The slot that holds the member or where it would go. */
static int64_t probe(const zcc_json *document, int32_t parent, const char *key, int64_t key_bytes)
{
	int64_t mask = document->n_slots - 1;
	int64_t slot = (int64_t)(XXH3_64bits_withSeed(key, (size_t)key_bytes, (uint64_t)parent) & (uint64_t)mask);
	for (;; slot = (slot + 1) & mask) {
		if (document->slots[slot] < 0)
			return slot;
		const zcc_json_node *node = &document->nodes[document->slots[slot]];
		if (node->parent == parent && node->key_bytes == key_bytes &&
		    memcmp(node->key, key, (size_t)key_bytes) == 0)
			return slot;
	}
}

static zcc_status make_slots(zcc_json *document, int64_t n_keys)
{
	document->n_slots = 1;
	while (document->n_slots < n_keys * 2 + 1)
		document->n_slots *= 2;
	document->slots = zcci_malloc(document->n_slots * (int64_t)sizeof *document->slots);
	if (document->slots == NULL)
		return ZCC_ENOMEM;
	memset(document->slots, 0xff, (size_t)document->n_slots * sizeof *document->slots);
	return ZCC_OK;
}

/* Copies a string to the pool that replaces the text: unescaped and with a NUL it is never longer than it was there,
 * quoted. */
static const char *keep(char **pool, const char *string, int64_t *bytes)
{
	char *copy = *pool;
	size_t length = strlen(string);
	memcpy(copy, string, length + 1);
	*pool += length + 1;
	*bytes = (int64_t)length;
	return copy;
}

static void fill(zcc_json_node *node, const cJSON *item, char **pool, const zcci_json_number **number)
{
	if (cJSON_IsFalse(item)) {
		node->kind = ZCC_JSON_FALSE;
	} else if (cJSON_IsTrue(item)) {
		node->kind = ZCC_JSON_TRUE;
	} else if (cJSON_IsNumber(item)) {
		node->kind = ZCC_JSON_NUMBER;
		node->is_integer = (*number)->is_integer;
		node->integer = (*number)->integer;
		node->number = (*number)->number;
		(*number)++;
	} else if (cJSON_IsString(item)) {
		node->kind = ZCC_JSON_STRING;
		node->string = keep(pool, item->valuestring, &node->string_bytes);
	} else if (cJSON_IsArray(item)) {
		node->kind = ZCC_JSON_ARRAY;
	} else if (cJSON_IsObject(item)) {
		node->kind = ZCC_JSON_OBJECT;
	}
}

/* Puts a member into the index; a key that its object has already is refused. */
static zcc_status index_member(zcc_json *document, int32_t index, const char *what, zcc_error *error)
{
	const zcc_json_node *node = &document->nodes[index];
	int64_t slot = probe(document, node->parent, node->key, node->key_bytes);
	if (document->slots[slot] >= 0)
		return zcci_fail(error, ZCC_EFORMAT, 0, "json parse", "%s: the key \"%s\" is there twice in one object",
		                 what, node->key);
	document->slots[slot] = index;
	return ZCC_OK;
}

/* cJSON's tree in document order into nodes, whose number the scan has counted. */
static zcc_status flatten(zcc_json *document, const cJSON *root, const zcci_json_number *number, const char *what,
                          zcc_error *error)
{
	const cJSON *item = root;
	int32_t parent = -1, last = -1, index = 0;
	const cJSON *open[ZCCI_JSON_MAX_DEPTH + 1]; /* the enclosing values, to go on with what follows them */
	int32_t depth = 0;
	char *pool = document->text;
	for (;;) {
		zcc_json_node *node = &document->nodes[index];
		*node = (zcc_json_node){.first_child = -1, .next = -1, .parent = parent};
		if (parent >= 0) {
			document->nodes[parent].n_children++;
			if (last >= 0)
				document->nodes[last].next = index;
			else
				document->nodes[parent].first_child = index;
		}
		if (item->string != NULL) {
			node->key = keep(&pool, item->string, &node->key_bytes);
			zcc_status status = index_member(document, index, what, error);
			if (status != ZCC_OK)
				return status;
		}
		fill(node, item, &pool, &number);
		if (item->child != NULL) {
			open[depth++] = item;
			item = item->child;
			parent = index++;
			last = -1;
			continue;
		}
		last = index++;
		while (item->next == NULL) {
			if (depth == 0)
				return ZCC_OK;
			item = open[--depth];
			last = parent;
			parent = document->nodes[parent].parent;
		}
		item = item->next;
	}
}

/* document->text is the text; all of it is in nodes afterwards. */
static zcc_status build(zcc_json *document, int64_t text_bytes, const zcci_json_scan *scan, const char *what,
                        zcc_error *error)
{
	document->n_nodes = scan->n_values;
	document->nodes = zcci_malloc(scan->n_values * (int64_t)sizeof *document->nodes);
	if (document->nodes == NULL || make_slots(document, scan->n_keys) != ZCC_OK)
		return zcci_fail(error, ZCC_ENOMEM, 0, "json parse", "%s: no memory for %lld values", what,
		                 (long long)scan->n_values);
	/* The scan left nothing that cJSON could refuse. */
	cJSON *root = cJSON_ParseWithLengthOpts(document->text, (size_t)text_bytes + 1, NULL, 1);
	if (root == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "json parse", "%s: no memory for %lld values", what,
		                 (long long)scan->n_values);
	zcc_status status = flatten(document, root, scan->numbers, what, error);
	cJSON_Delete(root);
	return status;
}

zcc_status zcc_json_parse(const char *text, int64_t text_bytes, const char *what, zcc_json **document, zcc_error *error)
{
	if (text_bytes < 0)
		return zcci_fail(error, ZCC_EINVAL, 0, "json parse", "%s: %lld bytes of text", what,
		                 (long long)text_bytes);
	if (text_bytes > MAX_TEXT_BYTES)
		return zcci_fail(error, ZCC_EFORMAT, 0, "json parse", "%s: %lld bytes of text; at most %lld are read",
		                 what, (long long)text_bytes, (long long)MAX_TEXT_BYTES);
	zcc_json *made = zcci_calloc(1, sizeof *made);
	if (made != NULL)
		made->text = zcci_malloc(text_bytes + 1);
	if (made == NULL || made->text == NULL) {
		zcc_json_destroy(made);
		return zcci_fail(error, ZCC_ENOMEM, 0, "json parse", "%s: no memory for %lld bytes of text", what,
		                 (long long)text_bytes);
	}
	if (text_bytes > 0)
		memcpy(made->text, text, (size_t)text_bytes);
	made->text[text_bytes] = '\0';
	zcci_json_scan scan = {0};
	zcc_status status = zcci_json_scan_text(made->text, text_bytes, what, &scan, error);
	if (status == ZCC_OK)
		status = build(made, text_bytes, &scan, what, error);
	zcci_free(scan.numbers);
	if (status != ZCC_OK) {
		zcc_json_destroy(made);
		return status;
	}
	*document = made;
	return ZCC_OK;
}

void zcc_json_destroy(zcc_json *document)
{
	if (document == NULL)
		return;
	zcci_free(document->text);
	zcci_free(document->nodes);
	zcci_free(document->slots);
	zcci_free(document);
}

const zcc_json_node *zcc_json_nodes(const zcc_json *document, int64_t *n_nodes)
{
	*n_nodes = document->n_nodes;
	return document->nodes;
}

int32_t zcc_json_member(const zcc_json *document, int32_t node, const char *key)
{
	if (node < 0 || node >= document->n_nodes || document->nodes[node].kind != ZCC_JSON_OBJECT)
		return -1;
	return document->slots[probe(document, node, key, (int64_t)strlen(key))];
}
