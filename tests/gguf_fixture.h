/* Small GGUF files for tests, byte by byte, with the places of what a hostile
 * file would change. */
#pragma once

#include "src/base/array.h"
#include "src/formats/gguf/gguf.h"
#include "tests/data_fixture.h"

enum gguf_mark {
    MARK_MAGIC,
    MARK_VERSION,
    MARK_TENSORS,
    MARK_KEYS,
    MARK_KEY_BYTES,
    MARK_KEY,
    MARK_KIND,
    MARK_ALIGNMENT,
    MARK_SECOND_KEY,
    MARK_STRING_BYTES,
    MARK_ITEM_KIND,
    MARK_ITEMS,
    MARK_INNER_KIND,
    MARK_INNER_ITEMS,
    MARK_BOOL,
    MARK_NAME_BYTES,
    MARK_DIMS,
    MARK_DIM0,
    MARK_DIM1,
    MARK_TYPE,
    MARK_OFFSET,
    MARK_SECOND_NAME,
    MARK_SECOND_TYPE,
    MARK_SECOND_OFFSET,
    MARK_DATA,
    MARKS
};

struct gguf_file {
    struct buffer bytes;
    size_t mark[MARKS];
};

static inline void gguf_put(struct gguf_file *file, const void *data,
                            size_t bytes)
{
    fixture_need(buffer_add(&file->bytes, data, bytes));
}

static inline void gguf_put_u32(struct gguf_file *file, uint32_t value)
{
    gguf_put(file, &value, sizeof value);
}

static inline void gguf_put_u64(struct gguf_file *file, uint64_t value)
{
    gguf_put(file, &value, sizeof value);
}

static inline void gguf_put_text(struct gguf_file *file, const char *text)
{
    gguf_put_u64(file, strlen(text));
    gguf_put(file, text, strlen(text));
}

#define GGUF_MARK(file, name) ((file)->mark[name] = (file)->bytes.bytes)

/* general.alignment 32, s "text", a [[1, 2], [3]], b true; x: Q8_0 of 32 by 2,
 * y: F32 of 4. */
static inline void gguf_file_make(struct gguf_file *file)
{
    static const float numbers[] = { 1, -2, 3, 0.5f };
    GGUF_MARK(file, MARK_MAGIC);
    gguf_put(file, "GGUF", 4);
    GGUF_MARK(file, MARK_VERSION);
    gguf_put_u32(file, 3);
    GGUF_MARK(file, MARK_TENSORS);
    gguf_put_u64(file, 2);
    GGUF_MARK(file, MARK_KEYS);
    gguf_put_u64(file, 4);
    GGUF_MARK(file, MARK_KEY_BYTES);
    file->mark[MARK_KEY] = file->bytes.bytes + 8;
    gguf_put_text(file, "general.alignment");
    GGUF_MARK(file, MARK_KIND);
    gguf_put_u32(file, GGUF_U32);
    GGUF_MARK(file, MARK_ALIGNMENT);
    gguf_put_u32(file, 32);
    file->mark[MARK_SECOND_KEY] = file->bytes.bytes + 8;
    gguf_put_text(file, "s");
    gguf_put_u32(file, GGUF_STRING);
    GGUF_MARK(file, MARK_STRING_BYTES);
    gguf_put_text(file, "text");
    gguf_put_text(file, "a");
    gguf_put_u32(file, GGUF_ARRAY);
    GGUF_MARK(file, MARK_ITEM_KIND);
    gguf_put_u32(file, GGUF_ARRAY);
    GGUF_MARK(file, MARK_ITEMS);
    gguf_put_u64(file, 2);
    GGUF_MARK(file, MARK_INNER_KIND);
    gguf_put_u32(file, GGUF_U8);
    GGUF_MARK(file, MARK_INNER_ITEMS);
    gguf_put_u64(file, 2);
    gguf_put(file, "\1\2", 2);
    gguf_put_u32(file, GGUF_U8);
    gguf_put_u64(file, 1);
    gguf_put(file, "\3", 1);
    gguf_put_text(file, "b");
    gguf_put_u32(file, GGUF_BOOL);
    GGUF_MARK(file, MARK_BOOL);
    gguf_put(file, "\1", 1);

    GGUF_MARK(file, MARK_NAME_BYTES);
    gguf_put_text(file, "x");
    GGUF_MARK(file, MARK_DIMS);
    gguf_put_u32(file, 2);
    GGUF_MARK(file, MARK_DIM0);
    gguf_put_u64(file, 32);
    GGUF_MARK(file, MARK_DIM1);
    gguf_put_u64(file, 2);
    GGUF_MARK(file, MARK_TYPE);
    gguf_put_u32(file, GGUF_BLOCKS_Q8_0);
    GGUF_MARK(file, MARK_OFFSET);
    gguf_put_u64(file, 0);
    file->mark[MARK_SECOND_NAME] = file->bytes.bytes + 8;
    gguf_put_text(file, "y");
    gguf_put_u32(file, 1);
    gguf_put_u64(file, 4);
    GGUF_MARK(file, MARK_SECOND_TYPE);
    gguf_put_u32(file, GGUF_BLOCKS_F32);
    GGUF_MARK(file, MARK_SECOND_OFFSET);
    gguf_put_u64(file, 96);
    while (file->bytes.bytes % 32 != 0)
        gguf_put(file, "", 1);
    GGUF_MARK(file, MARK_DATA);
    for (int i = 0; i < 96; i++)
        gguf_put(file, i % 34 == 1 ? "\x3c" : i % 34 == 0 ? "" : "\x7", 1);
    gguf_put(file, numbers, sizeof numbers);
}
