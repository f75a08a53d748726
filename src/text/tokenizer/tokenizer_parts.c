/* Normalizer, pre-tokenizer, decoder and post-processor of a tokenizer.json.
 *
 * Each part is a step or a Sequence of parts, so each is read by a function
 * that calls itself. A key that is not known is an error everywhere, since the
 * library adds keys that change tokens (ignore_merges came that way), and a
 * reader that skips what it does not know would give other tokens without a
 * word. */
#include "src/text/tokenizer/tokenizer_decode.h"

#include <string.h>

#define PARTS_DEPTH_MAX 8         /* Sequences in Sequences */
#define PARTS_MARK "\xE2\x96\x81" /* U+2581, what blanks are written as */

/* What is there and can't be done. */
static enum err parts_lacking(const struct tokenizer_node *node,
                              const char *type, const char *known)
{
    return tokenizer_reader_refuse(
        node, "'%s' can't be done here; there is: %s", type, known);
}

/* The array of a Sequence's parts. */
static enum err parts_sequence(const struct tokenizer_node *node,
                               const char *key, int depth,
                               struct tokenizer_node *out)
{
    const char *const keys[] = { "type", key, NULL };
    TRY(tokenizer_reader_keys(node, keys));
    if (depth >= PARTS_DEPTH_MAX)
        return tokenizer_reader_refuse(node, "Sequences in more than %d others",
                                       PARTS_DEPTH_MAX);
    *out = tokenizer_reader_member(node, key);
    return tokenizer_reader_array(out);
}

/* What adding a step said, with its place. */
static enum err parts_step(const struct tokenizer_node *node, enum err rc)
{
    return rc == ERR_DATA ? tokenizer_reader_refuse(node, "%s", err_text())
                          : rc;
}

/* Only of a mark, which becomes a blank again: one that decoding leaves out. */
static enum err parts_prepend(const struct tokenizer_node *node,
                              struct tokenizer *tokenizer)
{
    static const char *const keys[] = { "type", "prepend", NULL };
    const char *text = NULL;
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_string(node, "prepend", &text));
    if (strcmp(text, PARTS_MARK) != 0 ||
        normalizer_has(tokenizer->normalizer, NORMALIZER_PREPEND))
        return tokenizer_reader_refuse(
            node, "'%s' can't be put in front here; there is: '%s', once", text,
            PARTS_MARK);
    tokenizer->prepends = true;
    return parts_step(node, normalizer_add(tokenizer->normalizer,
                                           NORMALIZER_PREPEND, "", text));
}

static enum err parts_replace(const struct tokenizer_node *node,
                              struct tokenizer *tokenizer)
{
    static const char *const keys[] = { "type", "pattern", "content", NULL };
    const char *pattern = NULL, *content = NULL;
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_pattern(node, &pattern));
    TRY(tokenizer_reader_string(node, "content", &content));
    if (strcmp(pattern, " ") == 0 && strcmp(content, PARTS_MARK) == 0)
        tokenizer->blanks_marked = true;
    return parts_step(node,
                      normalizer_add(tokenizer->normalizer, NORMALIZER_REPLACE,
                                     pattern, content));
}

static enum err parts_normalize(const struct tokenizer_node *node, int depth,
                                struct tokenizer *tokenizer)
{
    static const char *const keys[] = { "type", NULL };
    const char *type = NULL;
    struct tokenizer_node list;
    TRY(tokenizer_reader_string(node, "type", &type));
    if (strcmp(type, "NFC") == 0) {
        TRY(tokenizer_reader_keys(node, keys));
        return parts_step(node, normalizer_add(tokenizer->normalizer,
                                               NORMALIZER_NFC, "", ""));
    }
    if (strcmp(type, "Prepend") == 0)
        return parts_prepend(node, tokenizer);
    if (strcmp(type, "Replace") == 0)
        return parts_replace(node, tokenizer);
    if (strcmp(type, "Sequence") != 0)
        return parts_lacking(node, type,
                             "NFC, Prepend, Replace, Sequence, null");
    TRY(parts_sequence(node, "normalizers", depth, &list));
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        struct tokenizer_node part = tokenizer_reader_element(&list, i);
        TRY(parts_normalize(&part, depth + 1, tokenizer));
    }
    return ERR_OK;
}

enum err tokenizer_parts_normalizer(const struct tokenizer_node *root,
                                    struct tokenizer *tokenizer)
{
    struct tokenizer_node node = tokenizer_reader_member(root, "normalizer");
    TRY(normalizer_create(tokenizer->unicode, &tokenizer->normalizer));
    strcpy(tokenizer->mark, PARTS_MARK);
    return node.value == NULL ? ERR_OK : parts_normalize(&node, 0, tokenizer);
}

static enum err parts_byte_level(const struct tokenizer_node *node,
                                 struct tokenizer *tokenizer)
{
    bool prefix = true, regex = true, trim = true;
    TRY(tokenizer_reader_keys(node, tokenizer_reader_byte_level));
    TRY(tokenizer_reader_bool(node, "add_prefix_space", true, &prefix));
    TRY(tokenizer_reader_bool(node, "use_regex", true, &regex));
    TRY(tokenizer_reader_bool(node, "trim_offsets", true, &trim));
    if (prefix)
        TRY(pretoken_add_prefix(tokenizer->pretoken));
    return regex ? pretoken_add_split(tokenizer->pretoken, tokenizer->unicode,
                                      PRETOKEN_GPT2, false, PRETOKEN_ISOLATED,
                                      false)
                 : ERR_OK;
}

static enum err parts_digits(const struct tokenizer_node *node,
                             struct tokenizer *tokenizer)
{
    static const char *const keys[] = { "type", "individual_digits", NULL };
    bool individual = false;
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_bool(node, "individual_digits", false, &individual));
    return pretoken_add_split(tokenizer->pretoken, tokenizer->unicode,
                              individual ? PRETOKEN_DIGIT : PRETOKEN_DIGITS,
                              false, PRETOKEN_ISOLATED, false);
}

static enum err parts_behavior(const struct tokenizer_node *node,
                               enum pretoken_behavior *out)
{
    static const char *const names[] = {
        [PRETOKEN_REMOVED] = "Removed",
        [PRETOKEN_ISOLATED] = "Isolated",
        [PRETOKEN_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [PRETOKEN_MERGED_WITH_NEXT] = "MergedWithNext",
        [PRETOKEN_CONTIGUOUS] = "Contiguous",
    };
    const char *name = NULL;
    TRY(tokenizer_reader_string(node, "behavior", &name));
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum pretoken_behavior)i;
            return ERR_OK;
        }
    return parts_lacking(node, name,
                         "Removed, Isolated, MergedWithPrevious, "
                         "MergedWithNext, Contiguous");
}

static enum err parts_split(const struct tokenizer_node *node,
                            struct tokenizer *tokenizer)
{
    static const char *const keys[] = { "type", "pattern", "behavior", "invert",
                                        NULL };
    static const char *const pattern_keys[] = { "Regex", "String", NULL };
    enum pretoken_behavior behavior = PRETOKEN_ISOLATED;
    const char *text = NULL;
    bool invert = false;
    struct tokenizer_node pattern = tokenizer_reader_member(node, "pattern");
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_keys(&pattern, pattern_keys));
    TRY(parts_behavior(node, &behavior));
    TRY(tokenizer_reader_bool(node, "invert", false, &invert));
    bool literal = json_object_get(pattern.value, "String") != NULL;
    if (json_object_size(pattern.value) != 1)
        return tokenizer_reader_refuse(&pattern,
                                       "either Regex or String is expected");
    TRY(tokenizer_reader_string(&pattern, literal ? "String" : "Regex", &text));
    enum err rc = pretoken_add_split(tokenizer->pretoken, tokenizer->unicode,
                                     text, literal, behavior, invert);
    return rc == ERR_DATA ? tokenizer_reader_refuse(&pattern, "%s", err_text())
                          : rc;
}

static enum err parts_metaspace(const struct tokenizer_node *node,
                                struct tokenizer *tokenizer)
{
    struct tokenizer_metaspace metaspace;
    struct normalizer *normalizer = tokenizer->normalizer;
    TRY(tokenizer_reader_metaspace(node, &metaspace));
    if (metaspace.prepend == PRETOKEN_FIRST_ONLY &&
        (normalizer_has(normalizer, NORMALIZER_PREPEND) ||
         normalizer_has(normalizer, NORMALIZER_REPLACE)))
        return tokenizer_reader_refuse(
            node, "'first' behind the normalizers Prepend and Replace can't be "
                  "done here");
    TRY(parts_step(node,
                   pretoken_add_metaspace(tokenizer->pretoken, metaspace.mark,
                                          metaspace.prepend, metaspace.split)));
    strcpy(tokenizer->mark, metaspace.mark);
    tokenizer->blanks_marked = true;
    tokenizer->marks_split = metaspace.split;
    tokenizer->prepends =
        tokenizer->prepends || metaspace.prepend != PRETOKEN_NEVER;
    return ERR_OK;
}

static enum err parts_pretoken(const struct tokenizer_node *node, int depth,
                               struct tokenizer *tokenizer)
{
    bool *byte_level = &tokenizer->byte_level;
    const char *type = NULL;
    enum err rc = ERR_OK;
    struct tokenizer_node list;
    TRY(tokenizer_reader_string(node, "type", &type));
    if (*byte_level)
        return tokenizer_reader_refuse(
            node, "'%s' behind ByteLevel, which has to be the last", type);
    if (strcmp(type, "Sequence") == 0) {
        TRY(parts_sequence(node, "pretokenizers", depth, &list));
        for (size_t i = 0; i < json_array_size(list.value); i++) {
            struct tokenizer_node part = tokenizer_reader_element(&list, i);
            TRY(parts_pretoken(&part, depth + 1, tokenizer));
        }
    } else if (strcmp(type, "ByteLevel") == 0) {
        *byte_level = true;
        rc = parts_byte_level(node, tokenizer);
    } else if (strcmp(type, "Digits") == 0) {
        rc = parts_digits(node, tokenizer);
    } else if (strcmp(type, "Split") == 0) {
        rc = parts_split(node, tokenizer);
    } else if (strcmp(type, "Metaspace") == 0) {
        rc = parts_metaspace(node, tokenizer);
    } else {
        rc = parts_lacking(node, type,
                           "ByteLevel, Metaspace, Split, Digits, Sequence");
    }
    return rc;
}

enum err tokenizer_parts_pre_tokenizer(const struct tokenizer_node *root,
                                       struct tokenizer *tokenizer)
{
    struct tokenizer_node node = tokenizer_reader_member(root, "pre_tokenizer");
    if (node.value != NULL)
        TRY(parts_pretoken(&node, 0, tokenizer));
    return !tokenizer->byte_level || !tokenizer->prepends
               ? ERR_OK
               : tokenizer_reader_refuse(
                     &node, "ByteLevel with Prepend or Metaspace can't be done "
                            "here");
}

enum err tokenizer_parts_decoder(const struct tokenizer_node *root,
                                 const struct tokenizer *tokenizer,
                                 struct tokenizer_decode *decode)
{
    return tokenizer->byte_level ? tokenizer_decode_byte_level(root)
                                 : tokenizer_decode_read(root, decode);
}

/* A {"SpecialToken": {"id": ..}} of a template: its tokens. */
static enum err parts_template_special(const struct tokenizer_node *piece,
                                       const struct tokenizer_node *specials,
                                       struct tokenizer *tokenizer,
                                       struct token_list *into)
{
    static const char *const keys[] = { "id", "type_id", NULL };
    static const char *const special_keys[] = { "id", "ids", "tokens", NULL };
    const char *id = NULL;
    TRY(tokenizer_reader_keys(piece, keys));
    TRY(tokenizer_reader_string(piece, "id", &id));
    struct tokenizer_node special = tokenizer_reader_member(specials, id);
    if (special.value == NULL)
        return tokenizer_reader_refuse(piece, "special_tokens has no '%s'", id);
    TRY(tokenizer_reader_keys(&special, special_keys));
    struct tokenizer_node ids = tokenizer_reader_member(&special, "ids");
    TRY(tokenizer_reader_array(&ids));
    for (size_t i = 0; i < json_array_size(ids.value); i++) {
        const uint8_t *text = NULL;
        size_t bytes = 0;
        int32_t token = 0;
        struct tokenizer_node number = tokenizer_reader_element(&ids, i);
        TRY(tokenizer_reader_token(&number, &token));
        if (!bpe_text(tokenizer->bpe, token, &text, &bytes))
            return tokenizer_reader_refuse(&number, "there is no token %d",
                                           token);
        TRY(token_list_add(into, &token, 1));
    }
    return ERR_OK;
}

static enum err parts_template(const struct tokenizer_node *node,
                               struct tokenizer *tokenizer)
{
    static const char *const keys[] = { "type", "single", "pair",
                                        "special_tokens", NULL };
    static const char *const piece_keys[] = { "Sequence", "SpecialToken",
                                              NULL };
    bool behind = false;
    TRY(tokenizer_reader_keys(node, keys));
    struct tokenizer_node single = tokenizer_reader_member(node, "single");
    struct tokenizer_node specials =
        tokenizer_reader_member(node, "special_tokens");
    TRY(tokenizer_reader_array(&single));
    for (size_t i = 0; i < json_array_size(single.value); i++) {
        struct tokenizer_node piece = tokenizer_reader_element(&single, i);
        TRY(tokenizer_reader_keys(&piece, piece_keys));
        struct tokenizer_node special =
            tokenizer_reader_member(&piece, "SpecialToken");
        struct tokenizer_node text =
            tokenizer_reader_member(&piece, "Sequence");
        if (special.value != NULL && text.value == NULL) {
            TRY(parts_template_special(&special, &specials, tokenizer,
                                       behind ? &tokenizer->behind
                                              : &tokenizer->before));
            continue;
        }
        const char *id = "";
        TRY(tokenizer_reader_string(&text, "id", &id));
        if (strcmp(id, "A") != 0 || behind)
            return tokenizer_reader_refuse(&text, "'A' is expected, once");
        behind = true;
    }
    return behind ? ERR_OK
                  : tokenizer_reader_refuse(&single, "it has no Sequence 'A'");
}

static enum err parts_post(const struct tokenizer_node *node, int depth,
                           struct tokenizer *tokenizer, bool *template)
{
    const char *type = NULL;
    struct tokenizer_node list;
    TRY(tokenizer_reader_string(node, "type", &type));
    if (strcmp(type, "ByteLevel") == 0) /* it moves places, not tokens */
        return tokenizer_reader_keys(node, tokenizer_reader_byte_level);
    if (strcmp(type, "TemplateProcessing") == 0) {
        if (*template)
            return tokenizer_reader_refuse(node, "a second template");
        *template = true;
        return parts_template(node, tokenizer);
    }
    if (strcmp(type, "Sequence") != 0)
        return parts_lacking(node, type,
                             "ByteLevel, TemplateProcessing, Sequence, null");
    TRY(parts_sequence(node, "processors", depth, &list));
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        struct tokenizer_node part = tokenizer_reader_element(&list, i);
        TRY(parts_post(&part, depth + 1, tokenizer, template));
    }
    return ERR_OK;
}

enum err tokenizer_parts_post_processor(const struct tokenizer_node *root,
                                        struct tokenizer *tokenizer)
{
    bool template = false;
    struct tokenizer_node node =
        tokenizer_reader_member(root, "post_processor");
    return node.value == NULL ? ERR_OK
                              : parts_post(&node, 0, tokenizer, &template);
}
