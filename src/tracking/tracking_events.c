/* Encodes events. Messages are small and nested three deep: each is made in a
 * buffer of its own and copied into the one around it.
 *
 * Of protobuf's wire format there is all that is needed: a field is its number
 * and type in one varint, then the value, which is a varint (7 bits a byte, the
 * lowest first, the top bit says that more follow), 4 or 8 bytes in little
 * endian, or a length and bytes: a text or another message. A frame's checksums
 * are CRC32C, rotated and with a constant added, since a CRC of bytes that hold
 * their own CRC says nothing (TensorFlow's tensorflow/tsl/lib/hash/crc32c.h).
 */
#include "src/tracking/tracking_events.h"

#include <assert.h>
#include <string.h>

#include "src/base/digest.h"

/* Event */
enum {
    EVENT_TIME = 1,
    EVENT_STEP,
    EVENT_VERSION,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7
};
enum { SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1 };
/* Summary.Value */
enum { VALUE_TAG = 1, VALUE_FLOAT = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
/* SummaryMetadata */
enum {
    METADATA_PLUGIN = 1,
    METADATA_CLASS = 4,
    CLASS_TENSOR = 2,
    PLUGIN_NAME = 1
};
/* TensorProto */
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, TYPE_STRING = 7 };
/* wire types */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

uint32_t tracking_events_crc(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(0, data, bytes);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

static void put_le(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static enum err tracking_events_frame(const void *data, size_t bytes,
                                      struct buffer *out)
{
    uint8_t head[12], tail[4];
    put_le(head, bytes, 8);
    put_le(head + 8, tracking_events_crc(head, 8), 4);
    put_le(tail, tracking_events_crc(data, bytes), 4);
    TRY(buffer_add(out, head, sizeof head));
    TRY(buffer_add(out, data, bytes));
    return buffer_add(out, tail, sizeof tail);
}

static enum err put_varint(struct buffer *out, uint64_t value)
{
    uint8_t bytes[10]; /* 64 bits by 7 */
    size_t count = 0;
    do {
        bytes[count] = (uint8_t)(value & 0x7f);
        value >>= 7;
        if (value != 0)
            bytes[count] |= 0x80;
        count++;
    } while (value != 0);
    return buffer_add(out, bytes, count);
}

static enum err put_key(struct buffer *out, int field, int wire)
{
    assert(field > 0 && wire >= 0 && wire < 8);
    return put_varint(out, (uint64_t)field << 3 | (uint64_t)wire);
}

static enum err put_int(struct buffer *out, int field, int64_t value)
{
    TRY(put_key(out, field, WIRE_VARINT));
    return put_varint(out, (uint64_t)value);
}

static enum err put_double(struct buffer *out, int field, double value)
{
    uint64_t bits;
    uint8_t bytes[8];
    memcpy(&bits, &value, sizeof bits);
    put_le(bytes, bits, 8);
    TRY(put_key(out, field, WIRE_64));
    return buffer_add(out, bytes, sizeof bytes);
}

static enum err put_float(struct buffer *out, int field, float value)
{
    uint32_t bits;
    uint8_t bytes[4];
    memcpy(&bits, &value, sizeof bits);
    put_le(bytes, bits, 4);
    TRY(put_key(out, field, WIRE_32));
    return buffer_add(out, bytes, sizeof bytes);
}

static enum err put_bytes(struct buffer *out, int field, const void *data,
                          size_t bytes)
{
    TRY(put_key(out, field, WIRE_BYTES));
    TRY(put_varint(out, bytes));
    return buffer_add(out, data, bytes);
}

static enum err put_message(struct buffer *out, int field,
                            const struct buffer *message)
{
    return put_bytes(out, field, message->data, message->bytes);
}

/* An event that has this one field besides its time and step. */
static enum err put_event(struct buffer *out, double time_s, int64_t step,
                          int field, const void *data, size_t bytes)
{
    enum err rc = ERR_OK;
    struct buffer event = { 0 };
    TRY_OUT(put_double(&event, EVENT_TIME, time_s));
    TRY_OUT(put_int(&event, EVENT_STEP, step));
    TRY_OUT(put_bytes(&event, field, data, bytes));
    TRY_OUT(tracking_events_frame(event.data, event.bytes, out));
out:
    buffer_free(&event);
    return rc;
}

enum err tracking_events_version(double time_s, struct buffer *out)
{
    return put_event(out, time_s, 0, EVENT_VERSION, "brain.Event:2", 13);
}

enum err tracking_events_restart(double time_s, int64_t step,
                                 struct buffer *out)
{
    enum err rc = ERR_OK;
    struct buffer session = { 0 };
    TRY_OUT(put_int(&session, SESSION_STATUS, SESSION_START));
    TRY_OUT(put_event(out, time_s, step, EVENT_SESSION, session.data,
                      session.bytes));
out:
    buffer_free(&session);
    return rc;
}

static enum err put_scalar(struct buffer *summary, struct buffer *value,
                           const struct tracking_scalar *scalar)
{
    value->bytes = 0;
    TRY(put_bytes(value, VALUE_TAG, scalar->name, strlen(scalar->name)));
    TRY(put_float(value, VALUE_FLOAT, (float)scalar->value));
    return put_message(summary, SUMMARY_VALUE, value);
}

/* What the text plug-in shows as it is, and not as Markdown: each line is
 * indented. */
static enum err put_verbatim(struct buffer *out, const struct tracking_text *t)
{
    const char *line = t->text;
    const char *end = t->text + t->bytes;
    for (;;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t bytes = (size_t)((next != NULL ? next + 1 : end) - line);
        TRY(buffer_add(out, "    ", 4));
        TRY(buffer_add(out, line, bytes));
        if (next == NULL)
            return ERR_OK;
        line = next + 1;
    }
}

/* A tensor of one string, no dimensions. */
static enum err put_text(struct buffer *summary, const struct tracking_text *t)
{
    enum err rc = ERR_OK;
    struct buffer value = { 0 }, plugin = { 0 }, part = { 0 }, text = { 0 };
    TRY_OUT(put_bytes(&value, VALUE_TAG, t->name, strlen(t->name)));
    TRY_OUT(put_bytes(&plugin, PLUGIN_NAME, "text", 4));
    TRY_OUT(put_message(&part, METADATA_PLUGIN, &plugin));
    TRY_OUT(put_int(&part, METADATA_CLASS, CLASS_TENSOR));
    TRY_OUT(put_message(&value, VALUE_METADATA, &part));
    part.bytes = 0;
    TRY_OUT(put_int(&part, TENSOR_TYPE, TYPE_STRING));
    TRY_OUT(put_bytes(&part, TENSOR_SHAPE, "", 0));
    TRY_OUT(put_verbatim(&text, t));
    TRY_OUT(put_message(&part, TENSOR_STRING, &text));
    TRY_OUT(put_message(&value, VALUE_TENSOR, &part));
    TRY_OUT(put_message(summary, SUMMARY_VALUE, &value));
out:
    buffer_free(&value);
    buffer_free(&plugin);
    buffer_free(&part);
    buffer_free(&text);
    return rc;
}

enum err tracking_events_record(const struct tracking_record *record,
                                struct buffer *out)
{
    enum err rc = ERR_OK;
    struct buffer summary = { 0 }, value = { 0 };
    for (int i = 0; i < record->count; i++)
        TRY_OUT(put_scalar(&summary, &value, &record->scalars[i]));
    if (summary.bytes > 0)
        TRY_OUT(put_event(out, record->time_s, record->step, EVENT_SUMMARY,
                          summary.data, summary.bytes));
    for (int i = 0; i < record->text_count; i++) {
        summary.bytes = 0;
        TRY_OUT(put_text(&summary, &record->texts[i]));
        TRY_OUT(put_event(out, record->time_s, record->step, EVENT_SUMMARY,
                          summary.data, summary.bytes));
    }
out:
    buffer_free(&summary);
    buffer_free(&value);
    return rc;
}
