/* TensorBoard's event files: TFRecord frames (a length, its checksum, the
 * bytes, their checksum), each of which holds one Event in protobuf's wire
 * format. Numbers of fields are those of tensorflow's event.proto and
 * summary.proto. Everything is appended to `out`. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/tracking/tracking_record.h"

/* Masked CRC32C, as frames have it, of their length and of their bytes. */
uint32_t tracking_events_crc(const void *data, size_t bytes);

/* What a file begins with. */
enum err tracking_events_version(double time_s, struct buffer *out);
/* Whatever earlier files have of `step` and later does not count any more
 * (SessionLog START). */
enum err tracking_events_restart(double time_s, int64_t step,
                                 struct buffer *out);
/* Numbers in one event, as floats; each text in one of its own. */
enum err tracking_events_record(const struct tracking_record *record,
                                struct buffer *out);
