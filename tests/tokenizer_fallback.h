/* Small tokenizer.json files of characters with bytes as fallback: tokens 3 to
 * 258 are bytes, then pieces and added tokens follow. */
#pragma once

#include "tests/tokenizer_fixture.h"

/* LLAMA2: a mark in front, no words. ACROSS: and a merge across blanks. GEMMA:
 * nothing in front. META_...: the pre-tokenizer Metaspace, which divides if it is
 * ALWAYS. */
enum {
    LLAMA2,
    ACROSS,
    GEMMA,
    META_ALWAYS,
    META_FIRST,
    META_NEVER,
    FALLBACK_KINDS
};

#define FALLBACK_MARK "\xE2\x96\x81"
#define FALLBACK_TO_MARK                                                       \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "  \
    "\"" FALLBACK_MARK "\"}"
#define FALLBACK_DECODERS                                                      \
    "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "         \
    "\"pattern\": {\"String\": \"" FALLBACK_MARK "\"}, \"content\": \" \"}, "  \
    "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"
#define FALLBACK_STRIP                                                         \
    ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"
#define FALLBACK_LLAMA                                                         \
    "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "      \
    "\"prepend\": \"" FALLBACK_MARK "\"}, " FALLBACK_TO_MARK "]}"
#define FALLBACK_META(scheme, split)                                           \
    "{\"type\": \"Metaspace\", \"replacement\": \"" FALLBACK_MARK              \
    "\", \"prepend_scheme\": \"" scheme "\", \"split\": " split "}"

static const char *const fallback_normalizers[FALLBACK_KINDS] = {
    [LLAMA2] = FALLBACK_LLAMA,
    [ACROSS] = FALLBACK_LLAMA,
    [GEMMA] = FALLBACK_TO_MARK,
};
static const char *const fallback_pretokenizers[FALLBACK_KINDS] = {
    [META_ALWAYS] = FALLBACK_META("always", "true"),
    [META_FIRST] = FALLBACK_META("first", "false"),
    [META_NEVER] = FALLBACK_META("never", "false"),
};
/* A blank: the mark. */
static const char *const fallback_pieces[] = {
    " ",
    "t",
    "h",
    "e",
    "a",
    "b",
    "i",
    "n",
    "g",
    "th",
    "the",
    " t",
    " the",
    "  ",
    "    ",
    "in",
    "ing",
    "\303\251",
    "\346\227\245",
    "\n",
    "ab",
    "a ",
};
static const char *const fallback_merges[] = {
    "[\"t\", \"h\"]", "[\" \", \"t\"]",   "[\"th\", \"e\"]", "[\" \", \"the\"]",
    "[\" \", \" \"]", "[\"  \", \"  \"]", "[\"i\", \"n\"]",  "[\"in\", \"g\"]",
    "[\"a\", \"b\"]", "[\"a\", \" \"]",
};
static const char fallback_added[] =
    "[{\"id\": 0, \"content\": \"<unk>\", \"normalized\": false, \"special\": "
    "true}, {\"id\": 1, \"content\": \"<s>\", \"normalized\": false, "
    "\"special\": true}, {\"id\": 2, \"content\": \"</s>\", \"normalized\": "
    "false, \"special\": true}, {\"id\": 281, \"content\": \"<w>\", "
    "\"normalized\": false}, {\"id\": 282, \"content\": \"<n>\"}]";

/* Blanks of strings as marks. */
static inline void fallback_text(FILE *file, const char *text, bool merge)
{
    bool inside = false;
    for (; *text != '\0'; text++) {
        inside = inside != (*text == '"');
        if (*text == '\n')
            fputs("\\n", file);
        else if (*text == ' ' && (inside || !merge))
            fputs(FALLBACK_MARK, file);
        else
            fputc(*text, file);
    }
}

static inline char *fallback_vocabulary(int kind)
{
    char *text = NULL;
    size_t bytes = 0;
    size_t merges = sizeof fallback_merges / sizeof *fallback_merges;
    FILE *file = open_memstream(&text, &bytes);
    fputs("\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2", file);
    for (int b = 0; b < 256; b++)
        fprintf(file, ", \"<0x%02X>\": %d", (unsigned)b, 3 + b);
    for (size_t i = 0; i < sizeof fallback_pieces / sizeof *fallback_pieces;
         i++) {
        fputs(", \"", file);
        fallback_text(file, fallback_pieces[i], false);
        fprintf(file, "\": %zu", 259 + i);
    }
    fputs("}, \"merges\": [", file);
    for (size_t m = 0; m < merges - (kind != ACROSS); m++) {
        fputs(m > 0 ? ", " : "", file);
        fallback_text(file, fallback_merges[m], true);
    }
    fputs("]", file);
    fclose(file);
    return text;
}

static inline void fallback_tokenizer(const char *path, int kind,
                                      const char *added)
{
    char *vocabulary = fallback_vocabulary(kind);
    struct fixture_file of = {
        .normalizer = fallback_normalizers[kind],
        .pretoken = fixture_or(fallback_pretokenizers[kind], "null"),
        .decoder = kind == GEMMA || kind == META_NEVER
                       ? FALLBACK_DECODERS "]}"
                       : FALLBACK_DECODERS FALLBACK_STRIP "]}",
        .added = fixture_or(added, fallback_added),
        .model = ", \"unk_token\": \"<unk>\", \"fuse_unk\": true, "
                 "\"byte_fallback\": true",
        .vocabulary = vocabulary,
        .post = "null"
    };
    fixture_tokenizer(path, &of);
    free(vocabulary);
}
