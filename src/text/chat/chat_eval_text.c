/* Functions of texts.
 *
 * Texts are UTF-8 and are never changed: what is a part of another text points
 * into that, and only what is new takes memory. Lengths and places that a
 * template sees count characters, as Python's do, so they are counted anew each
 * time; what is said in bytes here stays inside. Beyond ASCII there is no
 * upper() and lower(): Python's depend on tables that change with its version.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "src/text/chat/chat_eval.h"
#include "src/text/unicode.h"

/* Whether the character of these bytes is one of a text's, or white space where
 * there is no text. */
static bool text_has(const struct chat_value *set, const char *at, size_t bytes)
{
    if (set->kind != CHAT_VALUE_STRING)
        return unicode_blank_front(at, bytes) == bytes;
    for (size_t i = 0; i + bytes <= set->count; i++)
        if (memcmp(set->as.text + i, at, bytes) == 0)
            return true;
    return false;
}

/* The arguments behind the object are texts. */
static enum err chat_eval_texts(const struct chat_eval_arguments *arguments)
{
    for (size_t a = 1; a < arguments->count; a++)
        if (arguments->value[a].kind != CHAT_VALUE_STRING)
            return err_set(ERR_DATA, "line %d: %s where a text should be",
                           arguments->node->line,
                           chat_value_name(&arguments->value[a]));
    return ERR_OK;
}

/* With no set it is white space as str.strip() has it, which is more than
 * ASCII's; else all characters of the set, in any order, as in Python: it is no
 * prefix, and 'abcab'.strip('ba') is 'c'. */
enum err chat_eval_strip(struct chat_eval_arguments *arguments,
                         struct chat_value *out)
{
    assert(arguments->value[0].kind == CHAT_VALUE_STRING);
    const struct chat_value *text = &arguments->value[0];
    const struct chat_value *set = &arguments->value[1];
    const char *at = text->as.text, *end = at + text->count;
    struct chat_memory *memory = arguments->scope->memory;
    TRY(chat_value_work(memory, text->count));
    if (set->kind != CHAT_VALUE_NONE)
        TRY(chat_eval_texts(arguments));
    while ((arguments->ways & CHAT_EVAL_FRONT) != 0 && at < end) {
        size_t bytes = 1;
        while (at + bytes < end && (at[bytes] & 0xc0) == 0x80)
            bytes++;
        TRY(chat_value_work(memory, set->count));
        if (!text_has(set, at, bytes))
            break;
        at += bytes;
    }
    while ((arguments->ways & CHAT_EVAL_BACK) != 0 && at < end) {
        size_t bytes = 1;
        while (end - bytes > at && (*(end - bytes) & 0xc0) == 0x80)
            bytes++;
        TRY(chat_value_work(memory, set->count));
        if (!text_has(set, end - bytes, bytes))
            break;
        end -= bytes;
    }
    *out = chat_value_string(at, (size_t)(end - at));
    return ERR_OK;
}

enum err chat_eval_case(struct chat_eval_arguments *arguments,
                        struct chat_value *out)
{
    assert(arguments->value[0].kind == CHAT_VALUE_STRING);
    const struct chat_value *text = &arguments->value[0];
    const char from = arguments->ways == CHAT_EVAL_UPPER ? 'a' : 'A';
    void *room = NULL;
    TRY(chat_value_room(arguments->scope->memory, text->count, &room));
    char *to = room;
    for (size_t i = 0; i < text->count; i++) {
        char c = text->as.text[i];
        if ((unsigned char)c >= 0x80)
            return err_set(ERR_DATA,
                           "line %d: 'upper' and 'lower' are known "
                           "for ASCII only here",
                           arguments->node->line);
        to[i] = c >= from && c <= from + 25 ? (char)(c ^ 0x20) : c;
    }
    *out = chat_value_string(to, text->count);
    return ERR_OK;
}

enum err chat_eval_ends(struct chat_eval_arguments *arguments,
                        struct chat_value *out)
{
    assert(arguments->count == 2);
    const struct chat_value *text = &arguments->value[0];
    const struct chat_value *with = &arguments->value[1];
    TRY(chat_eval_texts(arguments));
    size_t at =
        arguments->ways == CHAT_EVAL_FRONT ? 0 : text->count - with->count;
    *out = chat_value_boolean(
        with->count <= text->count &&
        memcmp(text->as.text + at, with->as.text, with->count) == 0);
    return ERR_OK;
}

/* Where the text at `from` has `what` next; `end`: nowhere. */
static const char *text_find(const char *from, const char *end,
                             const struct chat_value *what)
{
    const char *found =
        memmem(from, (size_t)(end - from), what->as.text, what->count);
    return found != NULL ? found : end;
}

/* By white space: parts that are not empty. */
static enum err text_split_blanks(struct chat_eval_arguments *arguments,
                                  struct chat_value *out)
{
    const struct chat_value *text = &arguments->value[0];
    const char *at = text->as.text, *end = at + text->count;
    TRY(chat_value_list(arguments->scope->memory, text->count / 2 + 1, out));
    out->count = 0;
    for (;;) {
        at += unicode_blank_front(at, (size_t)(end - at));
        const char *from = at;
        while (at < end && unicode_blank_front(at, (size_t)(end - at)) == 0)
            at++;
        if (at == from)
            return ERR_OK;
        out->as.list[out->count++] =
            chat_value_string(from, (size_t)(at - from));
    }
}

/* At most so many times from the left. Between two separators side by side is
 * an empty text, but not in a text that is divided by white space. */
enum err chat_eval_split(struct chat_eval_arguments *arguments,
                         struct chat_value *out)
{
    assert(arguments->value[0].kind == CHAT_VALUE_STRING);
    const struct chat_value *text = &arguments->value[0];
    const struct chat_value *by = &arguments->value[1];
    const struct chat_value *most = &arguments->value[2];
    const char *end = text->as.text + text->count, *from = text->as.text;
    size_t parts = 1, limit = SIZE_MAX;
    TRY(chat_value_work(arguments->scope->memory, text->count));
    if (by->kind == CHAT_VALUE_UNDEFINED || by->kind == CHAT_VALUE_NONE)
        return text_split_blanks(arguments, out);
    if (by->kind != CHAT_VALUE_STRING || by->count == 0)
        return err_set(ERR_DATA, "line %d: 'split' by nothing",
                       arguments->node->line);
    if (most->kind == CHAT_VALUE_INTEGER && most->as.integer >= 0)
        limit = (size_t)most->as.integer + 1;
    while (parts < limit && (from = text_find(from, end, by)) != end) {
        from += by->count;
        parts++;
    }
    struct chat_value list;
    TRY(chat_value_list(arguments->scope->memory, parts, &list));
    from = text->as.text;
    for (size_t p = 0; p < parts; p++) {
        const char *to = p + 1 == parts ? end : text_find(from, end, by);
        list.as.list[p] = chat_value_string(from, (size_t)(to - from));
        from = to + (to != end ? by->count : 0);
    }
    *out = list;
    return ERR_OK;
}

/* What lies between is joined by another text. */
enum err chat_eval_replace(struct chat_eval_arguments *arguments,
                           struct chat_value *out)
{
    assert(arguments->count == 3);
    struct chat_scope *scope = arguments->scope;
    const struct chat_value *value = arguments->value;
    struct chat_value parts;
    TRY(chat_eval_texts(arguments));
    TRY(chat_eval_apply(scope, arguments->node, chat_eval_split, 0, value[0],
                        value[1], &parts));
    return chat_eval_apply(scope, arguments->node, chat_eval_join, 0, parts,
                           value[2], out);
}

/* The first letter of each word large, or of the text; the others small. */
enum err chat_eval_title(struct chat_eval_arguments *arguments,
                         struct chat_value *out)
{
    bool words = arguments->ways == CHAT_EVAL_UPPER;
    arguments->ways = 0;
    TRY(chat_eval_case(arguments, out));
    char *text = (char *)(uintptr_t)out->as.text;
    for (size_t i = 0; i < out->count; i++) {
        char before = i > 0 ? text[i - 1] | 0x20 : ' ';
        bool inside = i > 0 && (!words || (before >= 'a' && before <= 'z'));
        if (!inside && text[i] >= 'a' && text[i] <= 'z')
            text[i] = (char)(text[i] - 0x20);
    }
    return ERR_OK;
}

/* Lines behind the first get blanks in front, but for empty ones. */
enum err chat_eval_indent(struct chat_eval_arguments *arguments,
                          struct chat_value *out)
{
    assert(arguments->value[0].kind == CHAT_VALUE_STRING);
    static const char blanks[] = "                ";
    const struct chat_value *value = arguments->value;
    struct chat_memory *memory = arguments->scope->memory;
    int64_t width =
        value[1].kind == CHAT_VALUE_UNDEFINED ? 4 : value[1].as.integer;
    bool first = chat_value_true(&value[2]), blank = chat_value_true(&value[3]);
    const char *from = value[0].as.text, *end = from + value[0].count;
    size_t lines = 1;
    if (width < 0 || width > 16 || value[1].kind == CHAT_VALUE_STRING)
        return err_set(ERR_DATA, "line %d: 'indent' by more than 16 blanks",
                       arguments->node->line);
    for (const char *at = from; at < end; at++)
        lines += *at == '\n';
    void *room = NULL;
    TRY(chat_value_room(memory, value[0].count + lines * (size_t)width, &room));
    char *to = room;
    for (bool begin = true;; begin = false) {
        const char *line = memchr(from, '\n', (size_t)(end - from));
        const char *stop = line != NULL ? line : end;
        if (begin ? first : (stop > from || blank))
            to = mempcpy(to, blanks, (size_t)width);
        to = mempcpy(to, from, (size_t)(stop - from));
        if (line == NULL)
            break;
        *to++ = '\n';
        from = line + 1;
    }
    *out = chat_value_string(room, (size_t)(to - (char *)room));
    return ERR_OK;
}

enum err chat_eval_int(struct chat_eval_arguments *arguments,
                       struct chat_value *out)
{
    struct chat_value text = arguments->value[0];
    int64_t value = 0;
    *out = arguments->value[1].kind == CHAT_VALUE_INTEGER
               ? arguments->value[1]
               : chat_value_integer(0);
    if (text.kind == CHAT_VALUE_INTEGER || text.kind == CHAT_VALUE_BOOLEAN)
        *out = chat_value_integer(text.as.integer);
    if (text.kind != CHAT_VALUE_STRING)
        return ERR_OK;
    bool minus = text.count > 0 && *text.as.text == '-';
    for (size_t i = minus; i < text.count; i++)
        if (text.as.text[i] < '0' || text.as.text[i] > '9' ||
            __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text.as.text[i] - '0', &value))
            return ERR_OK;
    if (text.count > minus)
        *out = chat_value_integer(minus ? -value : value);
    return ERR_OK;
}

enum err chat_eval_find(struct chat_eval_arguments *arguments,
                        struct chat_value *out)
{
    assert(arguments->count == 2);
    const struct chat_value *text = &arguments->value[0];
    const struct chat_value *what = &arguments->value[1];
    const char *end = text->as.text + text->count;
    TRY(chat_eval_texts(arguments));
    TRY(chat_value_work(arguments->scope->memory, text->count));
    const char *found = text_find(text->as.text, end, what);
    int64_t at = 0;
    if (found == end && what->count > 0)
        at = -1;
    else if (what->count > 0)
        for (const char *c = text->as.text; c < found; c++)
            at += (*c & 0xc0) != 0x80;
    *out = chat_value_integer(at);
    return ERR_OK;
}

/* '{} and {}'.format(a, b): nothing stands in the brackets. */
enum err chat_eval_format(struct chat_eval_arguments *arguments,
                          struct chat_value *out)
{
    assert(arguments->value[0].kind == CHAT_VALUE_STRING);
    struct chat_memory *memory = arguments->scope->memory;
    const char *at = arguments->value[0].as.text;
    const char *end = at + arguments->value[0].count;
    size_t next = 1;
    *out = chat_value_string("", 0);
    while (at < end) {
        const char *from = at;
        while (at < end && *at != '{' && *at != '}')
            at++;
        struct chat_value part = chat_value_string(from, (size_t)(at - from));
        TRY(chat_value_join(memory, out, &part, out));
        if (at == end)
            break;
        if (end - at < 2 || (at[0] != at[1] && (at[0] != '{' || at[1] != '}' ||
                                                next >= arguments->count)))
            return err_set(ERR_DATA, "line %d: 'format' knows {} alone here",
                           arguments->node->line);
        part = chat_value_string(at, 1);
        if (at[0] != at[1])
            TRY(chat_value_text(memory, &arguments->value[next++], &part));
        TRY(chat_value_join(memory, out, &part, out));
        at += 2;
    }
    return ERR_OK;
}

/* --- tests, "is name" and those of select() and its like ---
 *
 * A test asks something of a value, with at most one value more: x is string, x
 * is divisibleby 3. select() and its like take tests by name, also those that
 * have a sign, select("==", 1), which is why comparisons are in this table. */

/* Tests of a value alone. */
static bool test_alone(const struct chat_value *value, const char *name,
                       size_t bytes, bool *out)
{
    enum chat_value_kind kind = value->kind;
    bool truth = kind == CHAT_VALUE_BOOLEAN && value->as.integer != 0;
    bool items = kind == CHAT_VALUE_STRING || kind == CHAT_VALUE_LIST ||
                 kind == CHAT_VALUE_RECORD || kind == CHAT_VALUE_UNDEFINED;
    bool integer = kind == CHAT_VALUE_INTEGER;
    const struct {
        const char *name;
        bool holds;
    } tests[] = {
        { "defined", kind != CHAT_VALUE_UNDEFINED },
        { "undefined", kind == CHAT_VALUE_UNDEFINED },
        { "none", kind == CHAT_VALUE_NONE },
        { "string", kind == CHAT_VALUE_STRING },
        /* a truth value is a number in Python, but no integer in Jinja */
        { "number", integer || kind == CHAT_VALUE_BOOLEAN },
        { "integer", integer },
        { "float", false },
        { "boolean", kind == CHAT_VALUE_BOOLEAN },
        { "true", truth },
        { "false", kind == CHAT_VALUE_BOOLEAN && !truth },
        { "mapping", kind == CHAT_VALUE_RECORD },
        { "callable", kind == CHAT_VALUE_MACRO },
        { "iterable", items },
        { "sequence", items },
        { "odd", integer && value->as.integer % 2 != 0 },
        { "even", integer && value->as.integer % 2 == 0 },
    };
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++)
        if (chat_value_is_name(name, bytes, tests[t].name)) {
            *out = tests[t].holds;
            return true;
        }
    return false;
}

enum err chat_eval_holds(struct chat_eval_arguments *arguments,
                         const char *name, size_t bytes, bool *out)
{
    assert(name != NULL && out != NULL);
    /* names, whether it is of equal values, and the order that they have not */
    static const struct {
        const char *name;
        bool equal, not ;
        int order;
    } pairs[] = {
        { "equalto", true, false, 0 },
        { "eq", true, false, 0 },
        { "==", true, false, 0 },
        { "ne", true, true, 0 },
        { "!=", true, true, 0 },
        { "lt", false, false, -1 },
        { "lessthan", false, false, -1 },
        { "gt", false, false, 1 },
        { "greaterthan", false, false, 1 },
        { "ge", false, true, -1 },
        { "le", false, true, 1 },
    };
    const struct chat_value *value = arguments->value;
    struct chat_memory *memory = arguments->scope->memory;
    int line = arguments->node->line, order = 0;
    if (arguments->count < 2 && test_alone(value, name, bytes, out))
        return ERR_OK;
    TRY(chat_value_work(memory, value[0].count + value[1].count));
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        if (!chat_value_is_name(name, bytes, pairs[p].name) ||
            arguments->count < 2)
            continue;
        if (pairs[p].equal)
            TRY(chat_value_equal(memory, &value[0], &value[1], out));
        else
            TRY(chat_eval_order(line, &value[0], &value[1], &order));
        if (!pairs[p].equal)
            *out = pairs[p].order < 0 ? order < 0 : order > 0;
        *out = *out != pairs[p].not ;
        return ERR_OK;
    }
    if (chat_value_is_name(name, bytes, "divisibleby") &&
        value[0].kind == CHAT_VALUE_INTEGER &&
        value[1].kind == CHAT_VALUE_INTEGER && value[1].as.integer > 0) {
        *out = value[0].as.integer % value[1].as.integer == 0;
        return ERR_OK;
    }
    if (chat_value_is_name(name, bytes, "in") &&
        value[1].kind == CHAT_VALUE_LIST) {
        *out = false;
        for (size_t i = 0; i < value[1].count && !*out; i++)
            TRY(chat_value_equal(memory, &value[0], &value[1].as.list[i], out));
        return ERR_OK;
    }
    return err_set(ERR_DATA, "line %d: the test 'is %.*s' is not known here",
                   line, bytes < 40 ? (int)bytes : 40, name);
}

enum err chat_eval_test(struct chat_scope *scope, const struct chat_node *node,
                        struct chat_value *out)
{
    static const struct chat_eval_function any = { .name = "a test",
                                                   .most = 2 };
    struct chat_eval_arguments arguments = { .scope = scope, .node = node };
    bool holds = false;
    TRY(chat_eval(scope, node->a, &arguments.value[0]));
    TRY(chat_eval_read(&arguments, &any));
    TRY(chat_eval_holds(&arguments, node->text, node->bytes, &holds));
    *out = chat_value_boolean(holds);
    return ERR_OK;
}
