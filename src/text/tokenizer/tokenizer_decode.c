/* Decoders of files of characters, of which each token's text is made once.
 *
 * A decoder is written as a program over all tokens of a text, but most of it
 * does the same to each token whatever is around: a mark becomes a blank,
 * "<0xNN>" a byte. So it is run once for every token when the file is read, and
 * decoding then is to look up bytes and put them one behind the other: each
 * token as it comes, without waiting for the rest. Only what looks at the
 * beginning of the whole text (Strip, behind Fuse) is left, and
 * tokenizer_decode_next() does that. A decoder that cannot be divided so is
 * refused.
 *
 * Bytes of one character can come from several tokens, so a token's text need
 * not be UTF-8; whoever prints waits until a character is whole. */
#include "src/text/tokenizer/tokenizer_decode.h"

#include <assert.h>
#include <string.h>

#define DECODE_DEPTH_MAX 8         /* Sequences in Sequences */
#define DECODE_TEXT_MAX 64         /* bytes of a step's texts */
#define DECODE_TOKEN_MAX (1 << 20) /* bytes that a token can become */

static const char decode_known[] =
    "Replace, ByteFallback, Metaspace, Fuse, Strip, Sequence";

static enum err decode_add(const struct tokenizer_node *node, const char *from,
                           const char *to, struct tokenizer_decode *decode)
{
    if (decode->steps == TOKENIZER_DECODE_STEPS_MAX)
        return tokenizer_reader_refuse(node, "more than %d steps",
                                       TOKENIZER_DECODE_STEPS_MAX);
    if (*from == '\0' || strlen(from) > DECODE_TEXT_MAX ||
        (to != NULL && strlen(to) > DECODE_TEXT_MAX))
        return tokenizer_reader_refuse(
            node, "texts of 1 to %d bytes are expected", DECODE_TEXT_MAX);
    decode->step[decode->steps++] =
        (struct tokenizer_decode_step){ .from = from, .to = to };
    return ERR_OK;
}

static enum err decode_replace(const struct tokenizer_node *node,
                               struct tokenizer_decode *decode)
{
    static const char *const keys[] = { "type", "pattern", "content", NULL };
    const char *from = NULL, *to = NULL;
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_pattern(node, &from));
    TRY(tokenizer_reader_string(node, "content", &to));
    return decode_add(node, from, to, decode);
}

/* Only what takes away at most what was put in front of a text. */
static enum err decode_strip(const struct tokenizer_node *node)
{
    static const char *const keys[] = { "type", "content", "start", "stop",
                                        NULL };
    const char *content = NULL;
    int32_t start = 0, stop = 0;
    struct tokenizer_node at = tokenizer_reader_member(node, "start");
    struct tokenizer_node end = tokenizer_reader_member(node, "stop");
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_string(node, "content", &content));
    TRY(tokenizer_reader_token(&at, &start));
    TRY(tokenizer_reader_token(&end, &stop));
    return strcmp(content, " ") == 0 && start <= 1 && stop == 0
               ? ERR_OK
               : tokenizer_reader_refuse(
                     node, "only one blank at the beginning can be stripped");
}

static enum err decode_metaspace(const struct tokenizer_node *node,
                                 struct tokenizer_decode *decode)
{
    struct tokenizer_metaspace metaspace;
    TRY(tokenizer_reader_metaspace(node, &metaspace));
    return decode_add(node, metaspace.mark, " ", decode);
}

/* *fused: what follows has the whole text before it. */
static enum err decode_read(const struct tokenizer_node *node, int depth,
                            struct tokenizer_decode *decode, bool *fused)
{
    static const char *const plain_keys[] = { "type", NULL };
    static const char *const keys[] = { "type", "decoders", NULL };
    const char *type = NULL;
    TRY(tokenizer_reader_string(node, "type", &type));
    bool strip = strcmp(type, "Strip") == 0;
    bool fuse = strcmp(type, "Fuse") == 0;
    if (strcmp(type, "Sequence") == 0) {
        struct tokenizer_node list = tokenizer_reader_member(node, "decoders");
        TRY(tokenizer_reader_keys(node, keys));
        TRY(tokenizer_reader_array(&list));
        if (depth >= DECODE_DEPTH_MAX)
            return tokenizer_reader_refuse(
                node, "Sequences in more than %d others", DECODE_DEPTH_MAX);
        for (size_t i = 0; i < json_array_size(list.value); i++) {
            struct tokenizer_node part = tokenizer_reader_element(&list, i);
            TRY(decode_read(&part, depth + 1, decode, fused));
        }
        return ERR_OK;
    }
    if (*fused != strip && !fuse)
        return tokenizer_reader_refuse(node, "'%s' %s can't be done here", type,
                                       *fused ? "behind Fuse" : "before Fuse");
    *fused = *fused || fuse;
    if (strip)
        return decode_strip(node);
    if (strcmp(type, "Replace") == 0)
        return decode_replace(node, decode);
    if (strcmp(type, "Metaspace") == 0)
        return decode_metaspace(node, decode);
    if (fuse)
        return tokenizer_reader_keys(node, plain_keys);
    if (strcmp(type, "ByteFallback") != 0)
        return tokenizer_reader_refuse(
            node, "'%s' can't be done here; there is: %s", type, decode_known);
    TRY(tokenizer_reader_keys(node, plain_keys));
    return decode_add(node, "<0x", NULL, decode);
}

enum err tokenizer_decode_read(const struct tokenizer_node *root,
                               struct tokenizer_decode *decode)
{
    assert(root != NULL && decode != NULL);
    bool fused = false;
    struct tokenizer_node node = tokenizer_reader_member(root, "decoder");
    if (node.value == NULL)
        return tokenizer_reader_refuse(
            &node,
            "none, which leaves blanks between all tokens; there is: %s (and "
            "ByteLevel with a ByteLevel pre-tokenizer)",
            decode_known);
    return decode_read(&node, 0, decode, &fused);
}

/* A text that no token is written with, so that a step that looks for it does
 * nothing. */
static bool decode_idle(const struct tokenizer_node *root, const char *text)
{
    struct tokenizer_node model = tokenizer_reader_member(root, "model");
    struct tokenizer_node added = tokenizer_reader_member(root, "added_tokens");
    const char *token = NULL;
    json_t *value = NULL;
    size_t i = 0;
    json_object_foreach(json_object_get(model.value, "vocab"), token,
                        value) if (strstr(token, text) != NULL) return false;
    json_array_foreach(added.value, i, value)
    {
        token = json_string_value(json_object_get(value, "content"));
        if (token != NULL && strstr(token, text) != NULL)
            return false;
    }
    return true;
}

static enum err decode_before_byte_level(const struct tokenizer_node *root,
                                         const struct tokenizer_node *node)
{
    struct tokenizer_decode decode = { .steps = 0 };
    bool fused = false;
    TRY(decode_read(node, DECODE_DEPTH_MAX, &decode, &fused));
    return decode.steps == 0 || decode_idle(root, decode.step[0].from)
               ? ERR_OK
               : tokenizer_reader_refuse(
                     node,
                     "before ByteLevel only what no token has can be "
                     "replaced, and some token has \"%s\"",
                     decode.step[0].from);
}

enum err tokenizer_decode_byte_level(const struct tokenizer_node *root)
{
    static const char *const keys[] = { "type", "decoders", NULL };
    const char *type = NULL;
    struct tokenizer_node node = tokenizer_reader_member(root, "decoder");
    if (node.value == NULL)
        return ERR_OK; /* tokens are their bytes */
    TRY(tokenizer_reader_string(&node, "type", &type));
    if (strcmp(type, "Sequence") == 0) {
        struct tokenizer_node list = tokenizer_reader_member(&node, "decoders");
        TRY(tokenizer_reader_keys(&node, keys));
        TRY(tokenizer_reader_array(&list));
        size_t count = json_array_size(list.value);
        if (count == 0)
            return tokenizer_reader_refuse(&list, "ByteLevel is expected");
        if (count - 1 > TOKENIZER_DECODE_STEPS_MAX) /* each goes over all */
            return tokenizer_reader_refuse(&list,
                                           "more than %d before ByteLevel",
                                           TOKENIZER_DECODE_STEPS_MAX);
        for (size_t i = 0; i + 1 < count; i++) {
            struct tokenizer_node part = tokenizer_reader_element(&list, i);
            TRY(decode_before_byte_level(root, &part));
        }
        node = tokenizer_reader_element(&list, count - 1);
        TRY(tokenizer_reader_string(&node, "type", &type));
    }
    if (strcmp(type, "ByteLevel") != 0)
        return tokenizer_reader_refuse(
            &node, "'%s' can't be done here; there is: ByteLevel", type);
    return tokenizer_reader_keys(&node, tokenizer_reader_byte_level);
}

/* "<0xNN>" as its byte, another text as it is. */
static void decode_byte(struct buffer *text, size_t begin)
{
    const uint8_t *code = text->data + begin;
    if (text->bytes - begin != 6 || memcmp(code, "<0x", 3) != 0 ||
        code[5] != '>')
        return;
    int high = unicode_hex((char)code[3]), low = unicode_hex((char)code[4]);
    if (high < 0 || low < 0)
        return;
    text->data[begin] = (uint8_t)(high << 4 | low);
    text->bytes = begin + 1;
}

static enum err decode_step(const struct tokenizer_decode_step *step,
                            struct buffer *text, size_t begin)
{
    struct buffer old = { 0 };
    enum err rc = ERR_OK;
    size_t from = strlen(step->from), to = strlen(step->to), done = 0;
    TRY_OUT(buffer_add(&old, text->data + begin, text->bytes - begin));
    text->bytes = begin;
    while (done < old.bytes) {
        const uint8_t *match =
            memmem(old.data + done, old.bytes - done, step->from, from);
        size_t end = match == NULL ? old.bytes : (size_t)(match - old.data);
        TRY_OUT(buffer_add(text, old.data + done, end - done));
        done = end;
        if (match != NULL) {
            TRY_OUT(buffer_add(text, step->to, to));
            done += from;
        }
        if (text->bytes - begin > DECODE_TOKEN_MAX)
            TRY_OUT(err_set(ERR_DATA,
                            "a token is decoded to more than %d bytes",
                            DECODE_TOKEN_MAX));
    }
out:
    buffer_free(&old);
    return rc;
}

enum err tokenizer_decode_text(const struct tokenizer_decode *decode,
                               const char *text, struct buffer *out)
{
    assert(decode != NULL && text != NULL && out != NULL);
    size_t begin = out->bytes;
    TRY(buffer_add(out, text, strlen(text)));
    for (int i = 0; i < decode->steps; i++) {
        const struct tokenizer_decode_step *step = &decode->step[i];
        if (step->to == NULL)
            decode_byte(out, begin);
        else if (out->bytes > begin)
            TRY(decode_step(step, out, begin));
    }
    return ERR_OK;
}
