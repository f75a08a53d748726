/* Reads SentencePiece's ModelProto, and writes what the Hugging Face library's
 * own conversion makes of it.
 *
 * The file is protobuf: fields with a number, a wire type and a value, some of
 * which are messages again; those without a meaning here are passed over. Its
 * pairs are not in it, but pieces with a score: two neighbours become one where
 * both together are a piece, that with the highest score first. So every piece
 * gives a merge for each place at which it is divided into two pieces, in the
 * order of scores, and of one piece those with the longer left half first. */
#include "src/text/tokenizer/sentencepiece.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/text/tokenizer/tokenizer_beside.h"
#include "src/text/unicode.h"

#define FILE_BYTES_MAX (256 << 20)
#define PIECES_MAX (1 << 20)
#define PIECE_BYTES_MAX 256 /* every place in it is looked at */
/* Merges, and bytes that are looked at, for each piece, and more of a small model:
 * Llama 2 has 2 and 60, Gemma of 262,144 pieces 2 and 100. */
#define MERGES_EACH 8
#define MERGES_MORE 4096
#define LOOKS_EACH 2048
#define LOOKS_MORE ((size_t)1 << 18)
#define MARK "\xE2\x96\x81"

enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

struct message {
    const uint8_t *at, *end;
};

/* A field's number and wire type, and where its value goes: a uint64_t (a float
 * as its bits), or of INNER a struct message. */
#define KEY(number, wire) ((number) << 3 | (wire))
enum { VARINT = 0, EIGHT = 1, INNER = 2, FOUR = 5 };
struct want {
    uint64_t key; /* 0: the end */
    void *to;
};

struct piece {
    const char *text; /* not ended */
    size_t bytes;
    float score;
    uint64_t type;
};

struct merge {
    float score;
    int32_t piece;
    uint32_t left, place; /* characters and bytes of the left half */
};

struct maker {
    const char *path;
    struct piece *piece;
    int32_t count, pieces_room, unk, bytes_there;
    struct merge *merge;
    size_t merges, merges_room, looks;
    uint64_t kind, falls_back, suffix, prefix, squeezes, escapes;
    struct message bos, eos, charsmap, way_back;
    json_t *vocab, *added, *pairs;
};

/* --- protobuf --- */

static bool varint(struct message *m, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint8_t byte = *m->at++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

/* The next field; false where there is none. */
static bool next(struct message *m, uint64_t *key, uint64_t *number,
                 struct message *inner)
{
    static const uint8_t fixed[8] = { [EIGHT] = 8, [FOUR] = 4 };
    if (!varint(m, key))
        return false;
    unsigned wire = (unsigned)*key & 7;
    uint64_t bytes = fixed[wire];
    *number = 0;
    if ((wire > INNER && wire != FOUR) ||
        (wire == VARINT && !varint(m, number)) ||
        (wire == INNER && !varint(m, &bytes)) ||
        bytes > (uint64_t)(m->end - m->at))
        return false;
    for (unsigned i = 0; wire == FOUR && i < 4; i++)
        *number |= (uint64_t)m->at[i] << 8 * i;
    *inner = (struct message){ m->at, m->at + bytes };
    m->at += bytes;
    return true;
}

/* What is wanted of a message; false: it is none. */
static bool pick(struct message m, const struct want *wants)
{
    uint64_t key, number;
    struct message inner;
    while (m.at < m.end) {
        if (!next(&m, &key, &number, &inner))
            return false;
        for (const struct want *w = wants; w->key != 0; w++)
            if (w->key == key && (key & 7) == INNER)
                memcpy(w->to, &inner, sizeof inner);
            else if (w->key == key)
                memcpy(w->to, &number, sizeof number);
    }
    return true;
}

static size_t size(struct message m)
{
    return (size_t)(m.end - m.at);
}

/* --- the parts of a model --- */

static enum err add_piece(struct maker *maker, struct message m, bool *fine)
{
    uint64_t score = 0;
    struct message text = { m.at, m.at };
    struct piece piece = { .type = NORMAL };
    *fine = maker->count < PIECES_MAX &&
            pick(m, (struct want[]){ { KEY(1, INNER), &text },
                                     { KEY(2, FOUR), &score },
                                     { KEY(3, VARINT), &piece.type },
                                     { 0, NULL } });
    uint32_t bits = (uint32_t)score;
    memcpy(&piece.score, &bits, sizeof bits);
    piece.text = (const char *)text.at;
    piece.bytes = size(text);
    TRY(array_room(&maker->piece, &maker->pieces_room, maker->count + 1));
    maker->piece[maker->count++] = piece;
    return ERR_OK;
}

static enum err read_model(struct maker *maker, struct message m)
{
    const struct want trainer[] = { { KEY(3, VARINT), &maker->kind },
                                    { KEY(24, VARINT), &maker->suffix },
                                    { KEY(35, VARINT), &maker->falls_back },
                                    { KEY(46, INNER), &maker->bos },
                                    { KEY(47, INNER), &maker->eos },
                                    { 0, NULL } };
    const struct want normalizer[] = { { KEY(2, INNER), &maker->charsmap },
                                       { KEY(3, VARINT), &maker->prefix },
                                       { KEY(4, VARINT), &maker->squeezes },
                                       { KEY(5, VARINT), &maker->escapes },
                                       { 0, NULL } };
    const struct want way_back[] = { { KEY(2, INNER), &maker->way_back },
                                     { 0, NULL } };
    uint64_t key, number;
    struct message inner;
    bool fine = true;
    while (fine && m.at < m.end) {
        fine = next(&m, &key, &number, &inner);
        if (fine && key == KEY(1, INNER))
            TRY(add_piece(maker, inner, &fine));
        else if (fine && key == KEY(2, INNER))
            fine = pick(inner, trainer);
        else if (fine && key == KEY(3, INNER))
            fine = pick(inner, normalizer);
        else if (fine && key == KEY(5, INNER))
            fine = pick(inner, way_back);
    }
    return fine && maker->count > 0
               ? ERR_OK
               : err_set(ERR_DATA,
                         "%s: no SentencePiece model: cut off, no protobuf, or "
                         "without pieces",
                         maker->path);
}

static enum err check_kind(const struct maker *maker)
{
    const struct {
        bool is;
        const char *what;
    } lacks[] = {
        { maker->kind == 1, "the type unigram" },
        { maker->kind != 2, "another type than BPE" },
        { size(maker->charsmap) > 0, "a normalizer that changes characters" },
        { size(maker->way_back) > 0, "a denormalizer" },
        { maker->squeezes != 0, "remove_extra_whitespaces" },
        { maker->escapes == 0, "escape_whitespaces = false" },
        { maker->suffix != 0, "treat_whitespace_as_suffix" },
    };
    for (size_t i = 0; i < sizeof lacks / sizeof lacks[0]; i++)
        if (lacks[i].is)
            return err_set(ERR_UNSUPPORTED,
                           "%s: %s can't be done here; of SentencePiece's "
                           "models there are: BPE with the normalizer identity",
                           maker->path, lacks[i].what);
    return ERR_OK;
}

/* --- pieces --- */

static int32_t find(const struct maker *maker, const char *text, size_t bytes,
                    uint64_t type)
{
    const json_t *value = json_object_getn(maker->vocab, text, bytes);
    int32_t number = value == NULL ? -1 : (int32_t)json_integer_value(value);
    return number >= 0 && maker->piece[number].type == type ? number : -1;
}

static enum err refuse(const struct maker *maker, int32_t number, enum err code,
                       const char *why)
{
    const struct piece *piece = &maker->piece[number];
    return err_set(code, "%s: piece %d, '%.*s': %s", maker->path, (int)number,
                   (int)(piece->bytes < 64 ? piece->bytes : 64), piece->text,
                   why);
}

static enum err take_piece(struct maker *maker, int32_t number)
{
    const struct piece *piece = &maker->piece[number];
    const uint8_t *text = (const uint8_t *)piece->text;
    unsigned byte = 256;
    char name[8];
    if (piece->bytes == 0 || piece->bytes > PIECE_BYTES_MAX ||
        unicode_valid(text, piece->bytes) != piece->bytes ||
        memchr(text, '\0', piece->bytes) != NULL || !isfinite(piece->score))
        return refuse(maker, number, ERR_DATA,
                      "empty, too long, not UTF-8, or without a score");
    if (json_object_getn(maker->vocab, piece->text, piece->bytes) != NULL)
        return refuse(maker, number, ERR_DATA, "it is there twice");
    if (piece->type == USER_DEFINED || piece->type == UNUSED)
        return refuse(maker, number, ERR_UNSUPPORTED,
                      piece->type == UNUSED
                          ? "pieces that are not used can't be done here"
                          : "pieces of users can't be done here");
    if (piece->type == BYTE && piece->bytes == 6)
        byte = (unsigned)unicode_hex(piece->text[3]) << 4 |
               (unsigned)unicode_hex(piece->text[4]);
    snprintf(name, sizeof name, "<0x%02X>", byte & 255);
    maker->bytes_there += byte < 256;
    if (piece->type < NORMAL || piece->type > BYTE ||
        (piece->type == BYTE && (byte > 255 || maker->falls_back == 0 ||
                                 memcmp(piece->text, name, 6) != 0)) ||
        (piece->type == UNKNOWN && maker->unk >= 0))
        return refuse(maker, number, ERR_DATA, "its type is wrong");
    if (piece->type == UNKNOWN)
        maker->unk = number;
    jsontext_set_part(&maker->vocab, piece->text, piece->bytes,
                      json_integer(number));
    if (piece->type == UNKNOWN || piece->type == CONTROL)
        jsontext_append(&maker->added,
                        json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id",
                                  (int)number, "content", piece->text,
                                  piece->bytes, "single_word", 0, "lstrip", 0,
                                  "rstrip", 0, "normalized", 0, "special", 1));
    return ERR_OK;
}

/* The merges that give a piece, whose characters all have to be pieces. */
static enum err divide(struct maker *maker, int32_t number)
{
    const struct piece *piece = &maker->piece[number];
    const char *text = piece->text;
    size_t length = 0;
    uint32_t characters = 0;
    maker->looks += piece->bytes * piece->bytes;
    if (maker->looks > LOOKS_EACH * (size_t)maker->count + LOOKS_MORE ||
        maker->merges > MERGES_EACH * (size_t)maker->count + MERGES_MORE)
        return refuse(maker, number, ERR_DATA,
                      "pieces of this model are longer, or consist of others "
                      "in more ways, than any tokenizer's");
    for (size_t i = 0; i < piece->bytes; i += length, characters++) {
        unicode_at((const uint8_t *)text + i, &length);
        if (find(maker, text + i, length, NORMAL) < 0)
            return refuse(maker, number, ERR_UNSUPPORTED,
                          "one of its characters is no piece");
        if (i == 0 || find(maker, text, i, NORMAL) < 0 ||
            find(maker, text + i, piece->bytes - i, NORMAL) < 0)
            continue;
        TRY(array_room(&maker->merge, &maker->merges_room, maker->merges + 1));
        maker->merge[maker->merges++] =
            (struct merge){ piece->score, number, characters, (uint32_t)i };
    }
    return ERR_OK;
}

static int by_score(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left != y->left)
        return x->left > y->left ? -1 : 1;
    return x->piece < y->piece ? -1 : 1;
}

static enum err take_pieces(struct maker *maker)
{
    maker->unk = -1;
    for (int32_t i = 0; i < maker->count; i++)
        TRY(take_piece(maker, i));
    if (maker->vocab == NULL)
        return err_set(ERR_MEMORY, "%s: no memory for its pieces", maker->path);
    if (maker->unk < 0 || (maker->falls_back != 0 && maker->bytes_there != 256))
        return err_set(ERR_DATA, "%s: no unknown piece, or not all bytes",
                       maker->path);
    for (int32_t i = 0; i < maker->count; i++)
        if (maker->piece[i].type == NORMAL)
            TRY(divide(maker, i));
    if (maker->merges > 1)
        qsort(maker->merge, maker->merges, sizeof *maker->merge, by_score);
    for (size_t i = 0; i < maker->merges; i++) {
        const struct merge *merge = &maker->merge[i];
        const struct piece *piece = &maker->piece[merge->piece];
        jsontext_append(&maker->pairs,
                        json_pack("[s%, s%]", piece->text, (size_t)merge->place,
                                  piece->text + merge->place,
                                  piece->bytes - merge->place));
    }
    return ERR_OK;
}

/* --- the text --- */

static void add_special(const struct maker *maker, int32_t number,
                        json_t **single, json_t **specials)
{
    const struct piece *piece = &maker->piece[number < 0 ? 0 : number];
    if (number < 0)
        return;
    jsontext_append(single, json_pack("{s:{s:s%, s:i}}", "SpecialToken", "id",
                                      piece->text, piece->bytes, "type_id", 0));
    jsontext_set_part(specials, piece->text, piece->bytes,
                      json_pack("{s:s%, s:[i], s:[s%]}", "id", piece->text,
                                piece->bytes, "ids", (int)number, "tokens",
                                piece->text, piece->bytes));
}

static json_t *template(const struct maker *maker, int32_t bos, int32_t eos)
{
    json_t *single = json_array(), *specials = json_object();
    add_special(maker, bos, &single, &specials);
    jsontext_append(&single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A",
                                       "type_id", 0));
    add_special(maker, eos, &single, &specials);
    /* of two texts: nothing here encodes pairs, but the format wants one */
    json_t *pair = json_deep_copy(single);
    jsontext_append(&pair, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "B",
                                     "type_id", 1));
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing",
                     "single", single, "pair", pair, "special_tokens",
                     specials);
}

/* ' stands for ". */
#define REPLACE(from, to)                                                      \
    "{'type': 'Replace', 'pattern': {'String': '" from "'}, 'content': '" to   \
    "'}"
static json_t *steps(const char *list, bool all, const char *first,
                     const char *last)
{
    char text[512];
    snprintf(text, sizeof text, "{'type': 'Sequence', '%s': [%s%s]}", list,
             all ? first : "", last);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    return json_loads(text, 0, NULL);
}

static enum err make_text(const struct maker *maker, json_t *template,
                          char **text)
{
    const struct piece *unk = &maker->piece[maker->unk];
    bool prefix = maker->prefix != 0;
    json_t *root = json_pack(
        "{s:s, s:n, s:n, s:O, s:o, s:n, s:o, s:o, s:{s:s, s:n, s:s%, s:n, s:n, "
        "s:b, s:b, s:b, s:O, s:O}}",
        "version", "1.0", "truncation", "padding", "added_tokens", maker->added,
        "normalizer",
        steps("normalizers", prefix,
              "{'type': 'Prepend', 'prepend': '" MARK "'}, ",
              REPLACE(" ", MARK)),
        "pre_tokenizer", "post_processor", template, "decoder",
        steps("decoders", true,
              REPLACE(MARK, " ") ", {'type': 'ByteFallback'}, {'type': 'Fuse'}",
              prefix ? ", {'type': 'Strip', 'content': ' ', 'start': 1, "
                       "'stop': 0}"
                     : ""),
        "model", "type", "BPE", "dropout", "unk_token", unk->text, unk->bytes,
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 1,
        "byte_fallback", (int)(maker->falls_back != 0), "ignore_merges", 0,
        "vocab", maker->vocab, "merges", maker->pairs);
    enum err rc = jsontext_make(root, 2, text);
    json_decref(root);
    return rc == ERR_OK ? rc : err_prefix(rc, "%s", maker->path);
}

enum err sentencepiece_make(const char *path, const uint8_t *data, size_t bytes,
                            bool begins, bool ends, struct sentencepiece *out)
{
    assert(path != NULL && data != NULL && out != NULL);
    enum err rc = ERR_OK;
    static const uint8_t names[] = "<s></s>";
    struct maker maker = { .path = path,
                           .kind = 1,
                           .prefix = 1,
                           .squeezes = 1,
                           .escapes = 1,
                           .bos = { names, names + 3 },
                           .eos = { names + 3, names + 7 },
                           .vocab = json_object(),
                           .added = json_array(),
                           .pairs = json_array() };
    struct sentencepiece made = { .json = NULL };
    TRY_OUT(read_model(&maker, (struct message){ data, data + bytes }));
    TRY_OUT(check_kind(&maker));
    TRY_OUT(take_pieces(&maker));
    made.bos =
        find(&maker, (const char *)maker.bos.at, size(maker.bos), CONTROL);
    made.eos =
        find(&maker, (const char *)maker.eos.at, size(maker.eos), CONTROL);
    TRY_OUT(make_text(
        &maker, template(&maker, begins ? made.bos : -1, ends ? made.eos : -1),
        &made.json));
    *out = made;
out:
    json_decref(maker.vocab);
    json_decref(maker.added);
    json_decref(maker.pairs);
    free(maker.piece);
    free(maker.merge);
    return rc;
}

/* What files beside it say of how texts begin and end. added_tokens.json is what
 * transformers wrote before, and reads where the other has no such tokens. */
static enum err read_beside(const char *model, bool *begins, bool *ends)
{
    enum err rc = ERR_OK;
    json_t *old = NULL, *root = NULL;
    TRY_OUT(tokenizer_beside_read(model, "tokenizer_config.json", &root));
    TRY_OUT(tokenizer_beside_read(model, "added_tokens.json", &old));
    const json_t *bos = json_object_get(root, "add_bos_token");
    *begins = bos == NULL || json_is_true(bos);
    *ends = json_is_true(json_object_get(root, "add_eos_token"));
    if (json_is_false(json_object_get(root, "legacy")) ||
        json_is_false(json_object_get(root, "add_prefix_space")))
        rc = err_set(ERR_UNSUPPORTED,
                     "%s: tokenizer_config.json beside it: legacy or "
                     "add_prefix_space is false, by which texts begin "
                     "otherwise: " TOKENIZER_BESIDE_REMEDY,
                     model);
    else if (old != NULL &&
             json_object_get(root, "added_tokens_decoder") == NULL)
        rc = err_set(ERR_UNSUPPORTED,
                     "%s: the tokens of added_tokens.json beside it are not "
                     "read: " TOKENIZER_BESIDE_REMEDY,
                     model);
out:
    json_decref(old);
    json_decref(root);
    return rc;
}

enum err sentencepiece_load(const char *path, struct sentencepiece *out)
{
    enum err rc = ERR_OK;
    bool begins = true, ends = false; /* as Llama's class in transformers */
    char *data = NULL;
    size_t bytes = 0;
    TRY_OUT(read_beside(path, &begins, &ends));
    TRY_OUT(fsio_read_file(path, FILE_BYTES_MAX, &data, &bytes));
    TRY_OUT(sentencepiece_make(path, (const uint8_t *)data, bytes, begins, ends,
                               out));
out:
    free(data);
    return rc;
}
