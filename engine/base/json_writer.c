#include "zcc/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_scan.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

struct zcc_json_writer {
	char *text;
	int64_t bytes;
	int64_t room;
	int32_t indent_spaces;
	int32_t depth;
	bool key_written; /* the next value is a member's */
	bool done;        /* the document is complete */
	zcc_error fault;  /* the first one; nothing is written after it */
	struct {
		char kind; /* '{' or '[' */
		bool filled;
	} open[ZCCI_JSON_MAX_DEPTH];
};

zcc_status zcc_json_writer_create(int32_t indent_spaces, zcc_json_writer **writer, zcc_error *error)
{
	if (indent_spaces < 0 || indent_spaces > 16)
		return zcci_fail(error, ZCC_EINVAL, 0, "json write", "indentation by %d spaces; 0 to 16 are allowed",
		                 indent_spaces);
	zcc_json_writer *made = zcci_calloc(1, sizeof *made);
	if (made == NULL)
		return zcci_fail(error, ZCC_ENOMEM, 0, "json write", "no memory for a writer");
	made->indent_spaces = indent_spaces;
	*writer = made;
	return ZCC_OK;
}

void zcc_json_writer_destroy(zcc_json_writer *writer)
{
	if (writer == NULL)
		return;
	zcci_free(writer->text);
	zcci_free(writer);
}

#define note(w, status, ...) zcci_fail(&(w)->fault, status, 0, "json write", __VA_ARGS__)

/* Room for `bytes` more and a NUL; false, and a note, where there is none. */
static bool reserve(zcc_json_writer *w, int64_t bytes)
{
	int64_t need;
	if (zcci_add_overflows(w->bytes, bytes, &need) || zcci_add_overflows(need, 1, &need)) {
		note(w, ZCC_EOVERFLOW, "a document of more than 2^63 bytes");
		return false;
	}
	if (need <= w->room)
		return true;
	int64_t room = w->room > 0 ? w->room : 256;
	while (room < need)
		room = room > INT64_MAX / 2 ? need : room * 2;
	char *text = zcci_realloc(w->text, room, 1);
	if (text == NULL) {
		note(w, ZCC_ENOMEM, "no memory for a document of %lld bytes", (long long)room);
		return false;
	}
	w->text = text;
	w->room = room;
	return true;
}

static void put(zcc_json_writer *w, const char *text, int64_t bytes)
{
	if (w->fault.status != ZCC_OK || !reserve(w, bytes))
		return;
	memcpy(w->text + w->bytes, text, (size_t)bytes);
	w->bytes += bytes;
}

static void break_line(zcc_json_writer *w)
{
	static const char spaces[] = "                ";
	if (w->indent_spaces == 0)
		return;
	put(w, "\n", 1);
	for (int32_t i = 0; i < w->depth; i++)
		put(w, spaces, w->indent_spaces);
}

/* What stands before a value or key: a comma and a new line. */
static void separate(zcc_json_writer *w)
{
	if (w->open[w->depth - 1].filled)
		put(w, ",", 1);
	w->open[w->depth - 1].filled = true;
	break_line(w);
}

/* Before every value. false where none may come here. */
static bool begin_value(zcc_json_writer *w, const char *value)
{
	if (w->fault.status != ZCC_OK)
		return false;
	if (w->done) {
		note(w, ZCC_EINVAL, "%s after the end of the document", value);
		return false;
	}
	if (w->depth > 0 && w->open[w->depth - 1].kind == '[') {
		separate(w);
	} else if (w->depth > 0 && !w->key_written) {
		note(w, ZCC_EINVAL, "%s in an object without a key before it", value);
		return false;
	}
	w->key_written = false;
	return w->fault.status == ZCC_OK;
}

static void end_value(zcc_json_writer *w)
{
	w->done = w->depth == 0;
}

static void scalar(zcc_json_writer *w, const char *value, const char *text, int64_t bytes)
{
	if (!begin_value(w, value))
		return;
	put(w, text, bytes);
	end_value(w);
}

static void begin(zcc_json_writer *w, char kind, const char *value)
{
	if (!begin_value(w, value))
		return;
	if (w->depth == ZCCI_JSON_MAX_DEPTH) {
		note(w, ZCC_EINVAL, "%s nested deeper than %d", value, ZCCI_JSON_MAX_DEPTH);
		return;
	}
	w->open[w->depth].kind = kind;
	w->open[w->depth++].filled = false;
	put(w, &kind, 1);
}

static void end(zcc_json_writer *w, char kind, const char *value)
{
	if (w->fault.status != ZCC_OK)
		return;
	if (w->depth == 0 || w->open[w->depth - 1].kind != kind || w->key_written) {
		note(w, ZCC_EINVAL, "the end of %s %s", value,
		     w->depth > 0 && w->key_written ? "after a key" : "where none is open");
		return;
	}
	bool filled = w->open[--w->depth].filled;
	if (filled)
		break_line(w);
	put(w, kind == '{' ? "}" : "]", 1);
	end_value(w);
}

void zcc_json_write_begin_object(zcc_json_writer *writer)
{
	begin(writer, '{', "an object");
}

void zcc_json_write_end_object(zcc_json_writer *writer)
{
	end(writer, '{', "an object");
}

void zcc_json_write_begin_array(zcc_json_writer *writer)
{
	begin(writer, '[', "an array");
}

void zcc_json_write_end_array(zcc_json_writer *writer)
{
	end(writer, '[', "an array");
}

/* RFC 8259, section 7. */
static void put_quoted(zcc_json_writer *w, const char *string, int64_t bytes)
{
	put(w, "\"", 1);
	int64_t done = 0;
	for (int64_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)string[i];
		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		put(w, string + done, i - done);
		done = i + 1;
		char text[8];
		const char *at = strchr("\"\"\\\\\bb\ff\nn\rr\tt", c);
		int length = at != NULL ? snprintf(text, sizeof text, "\\%c", at[1])
		                        : snprintf(text, sizeof text, "\\u%04x", c);
		put(w, text, length);
	}
	put(w, string + done, bytes - done);
	put(w, "\"", 1);
}

/* What the parser would not read back is not written. */
static bool check_text(zcc_json_writer *w, const char *value, const char *string, int64_t bytes)
{
	int64_t at = bytes < 0 ? 0 : zcci_utf8_fault(string, bytes);
	if (at < 0)
		return true;
	if (bytes < 0)
		note(w, ZCC_EINVAL, "%s of %lld bytes", value, (long long)bytes);
	else
		note(w, ZCC_EINVAL, "byte %lld (0x%02x) of %s is %s", (long long)at, (unsigned char)string[at], value,
		     string[at] != '\0' ? "not UTF-8" : "a NUL");
	return false;
}

void zcc_json_write_key(zcc_json_writer *writer, const char *key)
{
	if (writer->fault.status != ZCC_OK)
		return;
	if (writer->depth == 0 || writer->open[writer->depth - 1].kind != '{' || writer->key_written) {
		note(writer, ZCC_EINVAL, "the key \"%s\" %s", key,
		     writer->key_written ? "after a key" : "outside of an object");
		return;
	}
	int64_t bytes = (int64_t)strlen(key);
	if (!check_text(writer, "a key", key, bytes))
		return;
	separate(writer);
	put_quoted(writer, key, bytes);
	put(writer, ": ", writer->indent_spaces > 0 ? 2 : 1);
	writer->key_written = true;
}

void zcc_json_write_string(zcc_json_writer *writer, const char *string, int64_t string_bytes)
{
	if (!begin_value(writer, "a string") || !check_text(writer, "a string", string, string_bytes))
		return;
	put_quoted(writer, string, string_bytes);
	end_value(writer);
}

void zcc_json_write_integer(zcc_json_writer *writer, int64_t value)
{
	char text[24];
	scalar(writer, "an integer", text, snprintf(text, sizeof text, "%lld", (long long)value));
}

void zcc_json_write_number(zcc_json_writer *writer, double value)
{
	char text[32];
	if (isfinite(value))
		scalar(writer, "a number", text, zcci_number_print(value, text));
	else if (begin_value(writer, "a number"))
		note(writer, ZCC_EINVAL, "the number %f, which JSON cannot say", value);
}

void zcc_json_write_bool(zcc_json_writer *writer, int32_t value)
{
	scalar(writer, "a truth value", value ? "true" : "false", value ? 4 : 5);
}

void zcc_json_write_null(zcc_json_writer *writer)
{
	scalar(writer, "null", "null", 4);
}

zcc_status zcc_json_writer_text(zcc_json_writer *writer, const char **text, int64_t *text_bytes, zcc_error *error)
{
	if (writer->fault.status == ZCC_OK && !writer->done)
		return zcci_fail(error, ZCC_EINVAL, 0, "json write",
		                 "the document is not finished: %d arrays or objects are open", writer->depth);
	if (writer->fault.status != ZCC_OK) {
		if (error != NULL)
			*error = writer->fault;
		return writer->fault.status;
	}
	writer->text[writer->bytes] = '\0';
	*text = writer->text;
	*text_bytes = writer->bytes;
	return ZCC_OK;
}
