/* JSON values with their places.
 *
 * Files come from everywhere and have a hundred thousand lines, so an error has
 * to say where: a value goes around with its path, "model.merges[3]", made as
 * one goes down. A value of null counts as one that is not there, as serde
 * reads its Options. */
#include "src/text/tokenizer/tokenizer_reader.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/new.h"

const char *const tokenizer_reader_byte_level[] = { "type", "add_prefix_space",
                                                    "trim_offsets", "use_regex",
                                                    NULL };

/* Set node->place; one that is too long ends with dots. */
static void reader_place(struct tokenizer_node *node, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(node->place, sizeof node->place, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof node->place)
        strcpy(node->place + sizeof node->place - 4, "...");
}

struct tokenizer_node tokenizer_reader_member(const struct tokenizer_node *node,
                                              const char *key)
{
    struct tokenizer_node member = { .path = node->path };
    reader_place(&member, "%s%s%s", node->place,
                 node->place[0] == '\0' ? "" : ".", key);
    member.value = json_object_get(node->value, key);
    if (json_is_null(member.value))
        member.value = NULL;
    return member;
}

struct tokenizer_node
tokenizer_reader_element(const struct tokenizer_node *node, size_t index)
{
    struct tokenizer_node element = { .path = node->path };
    reader_place(&element, "%s[%zu]", node->place, index);
    element.value = json_array_get(node->value, index);
    return element;
}

enum err tokenizer_reader_refuse(const struct tokenizer_node *node,
                                 const char *format, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return err_set(ERR_DATA, "%s: %s%s%s", node->path, node->place,
                   node->place[0] == '\0' ? "" : ": ", text);
}

enum err tokenizer_reader_object(const struct tokenizer_node *node)
{
    return json_is_object(node->value)
               ? ERR_OK
               : tokenizer_reader_refuse(node, "an object is expected");
}

enum err tokenizer_reader_array(const struct tokenizer_node *node)
{
    return json_is_array(node->value)
               ? ERR_OK
               : tokenizer_reader_refuse(node, "an array is expected");
}

enum err tokenizer_reader_keys(const struct tokenizer_node *node,
                               const char *const *keys)
{
    assert(keys != NULL);
    const char *key = NULL;
    json_t *value = NULL;
    TRY(tokenizer_reader_object(node));
    json_object_foreach((json_t *)node->value, key, value)
    {
        size_t k = 0;
        while (keys[k] != NULL && strcmp(keys[k], key) != 0)
            k++;
        if (keys[k] == NULL)
            return tokenizer_reader_refuse(
                node,
                "the key '%s' is not known here, so what it asks for "
                "would not be done",
                key);
    }
    return ERR_OK;
}

enum err tokenizer_reader_string(const struct tokenizer_node *node,
                                 const char *key, const char **out)
{
    assert(key != NULL && out != NULL);
    struct tokenizer_node member = tokenizer_reader_member(node, key);
    if (!json_is_string(member.value))
        return tokenizer_reader_refuse(&member, "a string is expected");
    *out = json_string_value(member.value);
    return ERR_OK;
}

enum err tokenizer_reader_bool(const struct tokenizer_node *node,
                               const char *key, bool otherwise, bool *out)
{
    assert(key != NULL && out != NULL);
    struct tokenizer_node member = tokenizer_reader_member(node, key);
    *out = otherwise;
    if (member.value == NULL)
        return ERR_OK;
    if (!json_is_boolean(member.value))
        return tokenizer_reader_refuse(&member, "true or false is expected");
    *out = json_is_true(member.value);
    return ERR_OK;
}

enum err tokenizer_reader_token(const struct tokenizer_node *node, int32_t *out)
{
    assert(out != NULL);
    json_int_t value = json_integer_value(node->value);
    if (!json_is_integer(node->value) || value < 0 || value >= INT32_MAX)
        return tokenizer_reader_refuse(
            node, "a whole number from 0 to 2147483646 is expected");
    *out = (int32_t)value;
    return ERR_OK;
}

enum err tokenizer_reader_pattern(const struct tokenizer_node *node,
                                  const char **out)
{
    assert(out != NULL);
    static const char *const keys[] = { "String", "Regex", NULL };
    struct tokenizer_node pattern = tokenizer_reader_member(node, "pattern");
    TRY(tokenizer_reader_keys(&pattern, keys));
    if (json_object_get(pattern.value, "Regex") != NULL)
        return tokenizer_reader_refuse(
            &pattern, "a Regex can't be replaced here; there is: String");
    return tokenizer_reader_string(&pattern, "String", out);
}

enum err tokenizer_reader_metaspace(const struct tokenizer_node *node,
                                    struct tokenizer_metaspace *out)
{
    static const char *const keys[] = {
        "type",  "replacement", "prepend_scheme",
        "split", "str_rep",     "add_prefix_space",
        NULL
    };
    static const char *const schemes[] = { [PRETOKEN_NEVER] = "never",
                                           [PRETOKEN_FIRST_ONLY] = "first",
                                           [PRETOKEN_ALWAYS] = "always" };
    const char *scheme = NULL;
    bool prefix = true;
    struct tokenizer_node named =
        tokenizer_reader_member(node, "prepend_scheme");
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_string(node, "replacement", &out->mark));
    TRY(tokenizer_reader_bool(node, "split", true, &out->split));
    TRY(tokenizer_reader_bool(node, "add_prefix_space", true, &prefix));
    out->prepend = prefix ? PRETOKEN_ALWAYS : PRETOKEN_NEVER;
    if (named.value == NULL)
        return ERR_OK;
    TRY(tokenizer_reader_string(node, "prepend_scheme", &scheme));
    for (int i = 0; i < (int)(sizeof schemes / sizeof *schemes); i++)
        if (strcmp(scheme, schemes[i]) == 0) {
            out->prepend = (enum pretoken_prepend)i;
            return prefix || out->prepend == PRETOKEN_NEVER
                       ? ERR_OK
                       : tokenizer_reader_refuse(
                             &named, "'%s' with add_prefix_space false",
                             scheme);
        }
    return tokenizer_reader_refuse(
        &named, "'%s' can't be done here; there is: always, first, never",
        scheme);
}

enum err tokenizer_reader_lacks(const struct tokenizer_node *root,
                                unsigned count, unsigned first,
                                const char *what, struct tokenizer_lacks **out)
{
    assert(count > 0 && first < 256 && out != NULL);
    struct tokenizer_lacks *lacks = NULL;
    TRY(new_zeroed(&lacks, 1));
    snprintf(lacks->text, sizeof lacks->text,
             "%s: %u bytes have no token, the first is 0x%02X: %s", root->path,
             count, first, what);
    atomic_flag_clear(&lacks->told);
    *out = lacks;
    return ERR_OK;
}
